"""A model with a chat template in `test-time adapt`: who takes it, that all stages use it alike, and a vote in vain."""

import json
import shutil

import pytest

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.reference.offline_engine import TRAINING_MARKS, Rollout, prompt_tokens
from tests.test_time.conftest import CONFIG, Sampler, run_test_time

TEMPLATE = (
    "{% for each in messages %}<{{ each['role'] }}>{{ each['content'] }}"
    "{% if each['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)
WORD = "openrlhf.data.apply_chat_template"
TOLD = "Prompts go through the chat template of the model's tokenizer"
# Spaces and lines at the ends are a part of the prompt.
PROBLEMS = ["1+2=", " 3+4= ", "\n5+6=\n"]


@pytest.fixture
def chat_model(tmp_path):
    """The demo's model with a chat template."""
    folder = tmp_path / "chat"
    shutil.copytree(ADDITION.model, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def adapt(tmp_path, stand_ins, monkeypatch):
    """`test-time adapt` with a configuration of this text; `drawn` has the token ids that each engine was given."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    monkeypatch.setattr("test_time.adapt.write_report", lambda *_: None)
    from restrain_openrlhf.reference import offline_pass

    drawn = stand_ins.drawn = []

    class Engine(Sampler):
        def rollouts(self, prompts):
            drawn.extend((self.model, prompt.text, prompt_tokens(prompt, *self.how)) for prompt in prompts)
            return super().rollouts(prompts)

    def engine(model, sampling, tokenizer, marks=TRAINING_MARKS):
        made = Engine(stand_ins.asked, model, sampling)
        object.__setattr__(made, "how", (tokenizer, marks))
        return made

    monkeypatch.setattr(offline_pass, "RolloutEngine", engine)
    rows = [{"id": n, "problem": text} for n, text in enumerate(PROBLEMS)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps({"id": n, "answer": "3"}) + "\n" for n in range(3)))

    def run(model, text, *words):
        (tmp_path / "mine.yaml").write_text(text)
        stand_ins.plan(tmp_path / "out")
        given = ["--model", model, "--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "out"]
        given += ["--config", tmp_path / "mine.yaml", "--steps", 2, "--votes", 4]
        return run_test_time("adapt", *given, *words)

    return run


BARE = CONFIG.read_text(encoding="utf-8").replace("  data.apply_chat_template: false\n", "")
OWN_NO = f"extends: {CONFIG}\nopenrlhf: {{data.apply_chat_template: false}}\n"


@pytest.mark.parametrize(
    ("has_template", "text", "words", "uses", "told"),
    [
        (True, BARE, (), True, True),
        # What a preset says of its own model says nothing of another model; what the user says counts.
        (True, f"extends: {CONFIG}\n", (), True, True),
        (True, OWN_NO, (), False, False),
        (True, BARE, ("--set", f"{WORD}=false"), False, False),
        (False, BARE, (), False, False),
    ],
)
def test_every_stage_gives_the_policy_the_tokens_that_training_does(
    adapt, chat_model, tmp_path, stand_ins, has_template, text, words, uses, told
):
    from openrlhf.datasets.prompts_dataset import preprocess_data
    from transformers import AutoTokenizer

    model = chat_model if has_template else ADDITION.model
    done = adapt(model, text, "--no-boxed", "--gold", tmp_path / "gold.jsonl", *words)
    assert done.returncode == 0, done.stderr
    assert (TOLD in " ".join(done.stderr.split())) is told
    read = json.loads((tmp_path / "out" / "reads.json").read_text())
    assert ("--data.apply_chat_template" in read["words"]) is uses
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = [json.loads(line) for line in read["files"]["prompts.jsonl"].splitlines()]
    render = tokenizer.apply_chat_template if uses else None
    texts = [preprocess_data(row, None, "problem", None, render)[0] for row in rows]
    assert texts == ([f"<user>{problem}<bot>" for problem in PROBLEMS] if uses else PROBLEMS)
    # As the host tokenizes a prompt (openrlhf/utils/agent.py).
    ids = sorted(tokenizer(each, add_special_tokens=False)["input_ids"] for each in texts)
    models = {str(model), str(tmp_path / "out" / "train" / "model")}
    assert {each for each, *_ in stand_ins.drawn} == models
    for each in models:
        found = sorted(tokens for name, _, tokens in stand_ins.drawn if name == each)
        assert found == sorted(ids * (len(found) // len(ids))), each
    # The base model votes twice, at two temperatures, the adapted model once; each answers once greedily.
    assert len(stand_ins.drawn) == len(ids) * (3 + 2)


def test_a_template_of_the_configuration_and_one_of_the_model_are_a_question(adapt, chat_model):
    done = adapt(chat_model, BARE.replace("openrlhf:\n", 'openrlhf:\n  data.input_template: "Q: {}"\n'))
    assert done.returncode == 2
    assert "data.input_template is set. data.apply_chat_template is not set" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("answered", "surer", "words", "goes_on"),
    [(1, 1, (), False), (2, 1, (), False), (2, 2, (), True), (1, 1, ("null",), True)],
)
def test_a_base_vote_of_which_most_has_no_answer_ends_there_and_says_what_to_change(
    adapt, chat_model, tmp_path, stand_ins, monkeypatch, answered, surer, words, goes_on
):
    """Of four rollouts `answered` have an answer (`surer` at T 0.6), one is cut off, the others end without one."""

    def rollout(sampler, _prompt, place):
        text = "so \\boxed{7}" if place < (answered if sampler.sampling.temperature == 1 else surer) else "no idea"
        return Rollout(text, tokens=5, truncated=place == 3)

    monkeypatch.setattr(Sampler, "_rollout", rollout)
    limit = [word for value in words for word in ("--set", f"missing_limit={value}")]
    done = adapt(chat_model, OWN_NO, *limit)
    said, out = " ".join(done.stderr.split()), tmp_path / "out"
    assert (done.returncode, (out / "train" / "train.log").exists()) == ((0, True) if goes_on else (2, False)), said
    assert (out / "base_vote.jsonl").exists() is (goes_on or answered == 2)
    if not goes_on:
        for part in (
            "75.0% of the pass's rollouts have no answer",
            "'no idea'",
            "25% were cut off at 14 tokens: raise rollout.max_new_tokens.",
            "lack the tokenizer's chat template: set openrlhf.data.apply_chat_template",
            "raise `missing_limit` (now 0.5), or set it to null",
        ):
            assert part in said
