"""`restrain init`: files as users have them, what is said of each, and that what is written passes `restrain show`."""

import json
import re
from typing import get_args

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.config.hours import CARDS, CardName
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.tasks import WORDS
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from tests.command_line import restrain
from tests.commands.k8s.experiments import IMAGE
from tests.commands.k8s.manifests import needs_kustomize
from tests.reference import toy

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-0.6B-Base"
CHATS = [
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{n} + 3?"}]}
    for n in range(5000)
]
CAPITALS = [{"question": f"The capital of country {n}?", "answer": f"City {n}"} for n in range(300)]
SUMS = [{"problem": f"{n} + 2?", "answer": n + 2} for n in range(40)]
CHOICES = [{"question": f"{n} is?", "options": ["odd", "even"], "answer": "AB"[n % 2]} for n in range(40)]
BOXES = [{"prompt": f"{n} + 2? Put it in \\boxed{{}}.", "answer": n} for n in range(40)]
# Rows, words of the command, the kind that is found, the layout, and what is said or written besides.
FILES = {
    "5,000 chats on one card of 80 GB": (
        CHATS,
        ("--model", LLAMA, "--gpu", "A100"),
        "math",
        "one_gpu/24gb/llama3.2-3b-instruct-lora",
        # By hand: 512 × 1,088 tokens a step. An engine holds 315 rollouts of 816 tokens of 131,072 bytes beside 16.06e9
        # of weights, so 0.6 × 315.7 × 2e12 / 49.8e9 = 7,600 tokens a second: 73 s. Passes, padded 1.5 and 1 times:
        # (4 × 1.5 + 4) × 8.03e9 × 557,056 / 94e12 = 476 s. 154 steps; and 4,900 / 32 votes of 73 s.
        ("column 'messages' (a chat)", "steps: 154", "hours: 23.5 of training and 3.1 of", "train 'mine/r"),
    ),
    "short texts on two cores, with gold": (
        CAPITALS,
        ("--model", WORDS.model, "--no-chat", "--gpus", 0),
        "text",
        "cpu/demo_capitals",
        ("200 to train on, 100 held", "300 of 300", "ends at <eos>", "study 'mine/"),
    ),
    "numbers": (SUMS, ("--model", QWEN, "--gpu", "RTX 4090"), "number", "one_gpu/24gb/qwen3-0.6b-base", ("20 held",)),
    "options": (CHOICES, ("--model", QWEN, "--gpu", "H200"), "choice", "one_gpu/141gb/qwen3-4b-base", ("letter",)),
    "prompts that ask for a box, on eight": (
        BOXES,
        ("--model", "Qwen/Qwen3-4B-Base", "--gpu", "H100", "--gpus", 8),
        "math",
        "dapo14k/qwen3-4b-base/restrain",
        ("they ask for", "8 × H100"),
    ),
}  # fmt: skip


def init(folder, rows, *words):
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return restrain("init", "--prompts", "rows.jsonl", "--out", "mine", *words, cwd=folder)


@pytest.mark.parametrize("case", FILES)
def test_both_configurations_pass_show_and_training_sees_no_answer(tmp_path, case, monkeypatch):
    rows, words, kind, layout, said = FILES[case]
    done = init(tmp_path, rows, *words)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "mine" / "restrain.yaml").read_text()
    assert f"kind of answer: {kind}, " in done.stdout
    assert f"extends: {layout}\n" in text
    for each in said:
        assert each in done.stdout
    monkeypatch.chdir(tmp_path)
    for name, method in (("restrain", "restrain"), ("ttrl", "ttrl")):
        shown = restrain("show", f"mine/{name}.yaml", cwd=tmp_path)
        assert (shown.returncode, load_run_config(tmp_path / f"mine/{name}.yaml").method.name) == (0, method)
    training, held = (
        [json.loads(line) for line in (tmp_path / "mine" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("prompts", "heldout")
    )
    assert not any("answer" in row for row in training)
    assert all(("answer" in row) == ("answer" in rows[0]) for row in held)
    assert {str(row["problem"]) for row in training}.isdisjoint({str(row["problem"]) for row in held})
    assert len(training) + len(held) == len(rows)
    # A commented key of the evaluation is one that the rows cannot serve.
    assert ("  # eval.dataset" in text) == ("answer" not in rows[0])
    again = init(tmp_path, rows, *words)
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("rows", "words", "reason"),
    [
        (SUMS, ("--model", "a/b", "--gpu", "A100"), "Give --chat, or --no-chat"),
        (SUMS, ("--model", "a/b-Instruct", "--gpu", "A100"), "its shape is not known here"),
        (SUMS, ("--model", QWEN, "--gpu", "A100", "--compare", "grpo_gold"), "needs no gold answers"),
        (SUMS, ("--model", QWEN, "--gpu", "A100", "--answer-column", "gold"), "has no column 'gold'"),
        (SUMS[:1], ("--model", QWEN, "--gpu", "A100"), "one is held out"),
        (SUMS, ("--model", LLAMA, "--gpu", "RTX 4090"), "fit no layout of 1 × RTX 4090"),
        (CHATS, ("--model", QWEN, "--gpu", "A100", "--no-chat"), "the prompts are chats"),
        (
            [{**SUMS[0], "problem": "x" * 9000}, SUMS[1]],
            ("--model", WORDS.model, "--no-chat", "--gpus", 0),
            "tokens at most",
        ),
    ],
)
def test_what_cannot_be_set_up_is_refused_and_nothing_is_written(tmp_path, rows, words, reason):
    done = init(tmp_path, rows, *words)
    assert (done.returncode, bool(re.search(re.escape(reason), done.stderr))) == (2, True), done.stderr
    assert not (tmp_path / "mine").exists()


def test_every_card_can_be_typed():
    assert get_args(CardName) == tuple(CARDS)


def test_a_base_vote_chooses_the_kind_whose_answers_agree_most(tmp_path):
    prompts, kind = toy.prompts(4), parse_kind({"name": "text"})
    texts = ("I think it is Rome, surely so.", "Well, Rome, is my guess.", "Rome, as all know.", "It: Rome, yes.")
    rollouts = [Rollout(text, 5, truncated=False) for text in texts]
    write_rows(tmp_path / "ref.jsonl", [ReferenceRow.of(kind, prompt, rollouts, is_shown=True) for prompt in prompts])
    made = {"answers": kind.model_dump(mode="json"), "extractor_version": kind.whole_version}
    toy.provenance(prompts, **made).write(tmp_path / "ref.jsonl")
    done = init(tmp_path, CAPITALS, "--model", QWEN, "--gpu", "A100", "--votes", "ref.jsonl")
    assert done.returncode == 0, done.stderr
    assert "answers: {name: text, read: agreed}" in (tmp_path / "mine" / "restrain.yaml").read_text()
    assert "reads 100% (100% agree with another one of their group)" in done.stdout


def test_an_engineer_with_5000_chats_and_one_card_of_80_gb_sees_all_before_anything_runs(tmp_path):
    """What `init` wrote is shown, fits the card, and is rendered for a cluster with the commands of each step."""
    assert init(tmp_path, CHATS, "--model", LLAMA, "--gpu", "A100").returncode == 0
    shown = restrain("show", "mine/restrain.yaml", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for said in ("name: restrain", "name: math", "--data.apply_chat_template", "--ds.lora.rank 32", f"_path {LLAMA}"):
        assert said in shown.stdout
    assert "--data.input_template" not in shown.stdout, "the chats ask for the box themselves"
    memory = restrain("show", "mine/restrain.yaml", "--memory", "--gpu-memory", 80, cwd=tmp_path)
    assert "Peak: 62.7 GiB, generation, of the GPU's 80.0: 17.3 left" in memory.stdout, memory.stderr
    row = json.loads((tmp_path / "mine" / "prompts.jsonl").read_text().splitlines()[0])
    assert row["problem"][-1]["content"].endswith(
        "+ 3?\nPlease reason step by step, and put your final answer within \\boxed{}."
    )
    needs_kustomize()
    words = ("mine/restrain.yaml", "--overlay", "single-node", "--image", IMAGE, "--out", "manifests")
    rendered = restrain("k8s", "render", *words, cwd=tmp_path)
    assert rendered.returncode == 0, rendered.stderr
    assert "manifests/run.sh" in rendered.stdout + rendered.stderr
    steps = [path.stem[3:] for path in sorted((tmp_path / "manifests").glob("*.yaml"))]
    assert [name for name in steps if name in ("reference", "premise", "train")] == ["reference", "premise", "train"]
