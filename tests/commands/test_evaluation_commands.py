"""What a user types around data and evaluation, and what bad input gets."""

import json

import pytest

from restrain_openrlhf.commands import evaluate
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.job import Evaluation, Request
from restrain_openrlhf.reference.sampling_pass import Shard
from tests.command_line import refused, restrain
from tests.conftest import rows_of

OWN = [{"id": "a", "problem": "1+1=", "answer": "2"}, {"id": "b", "problem": "2+2=", "answer": "4"}]


def test_math12k_is_kept_apart_from_math500(tmp_path, write_jsonl):
    write_jsonl("math500.jsonl", [{"problem": "What is $3$?", "answer": "3", "unique_id": "t/1.json"}])
    source = write_jsonl("math.jsonl", [{"problem": text, "answer": "3"} for text in ("What is 3?", "What is 4?")])
    words = ("data", "prepare", "math12k", "--source", source, "--any-count", "--out", tmp_path / "t.jsonl")
    done = restrain(*words, "--benchmark-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows_of(tmp_path / "t.jsonl") == [{"id": "1", "problem": "What is 4?"}]
    assert [row["answer"] for row in rows_of(tmp_path / "t.gold.jsonl")] == ["3"]
    assert "1 prompts were problems of math500 and are left out" in done.stdout
    (tmp_path / "none").mkdir()
    message = refused(*words, "--benchmark-dir", tmp_path / "none")
    assert "math12k: its prompts must be compared with math500, which could not be read." in message
    assert "Name a folder that has a copy with --benchmark-dir." in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "prepare", "dapo", "--out", "x.jsonl"), "no known training set"),
        (("data", "prepare", "own", "--out", "x.csv"), "name a .jsonl file"),
        (("data", "prepare", "own", "--out", "x.jsonl"), "No place on the hub is known"),
        (("data", "prepare", "synthetic-s1k", "--out", "x.jsonl"), "Give a copy of your own"),
        (("data", "prepare", "own", "--source", "absent.csv", "--out", "x.jsonl"), "no such file"),
        (("data", "prepare", "own", "--source", "x.jsonl", "--out", "x.jsonl"), "is the input file"),
        (
            ("data", "prepare", "own", "--source", "x.jsonl", "--out", "t.jsonl", "--supervised", "t.gold.jsonl"),
            "--supervised t.gold.jsonl: is one of the files of --out",
        ),
        (
            ("data", "prepare", "own", "--source", "x.jsonl", "--out", "t.jsonl", "--supervised", "x.jsonl"),
            "--supervised x.jsonl: is the input file",
        ),
        (("data", "prepare", "own", "--source", "x.jsonl", "--first", "0", "--out", "t.jsonl"), "--first"),
        (("regrade", "absent.jsonl"), "holds no evaluation"),
        (("table", "absent"), "holds no evaluation"),
        (("table", "a=absent", "a=absent"), "Two runs have the same name"),
        (("plot", "absent", "--out", "x"), "has no metrics.jsonl with a finished step"),
    ],
)
def test_bad_input_is_one_line(tmp_path, words, message):
    assert message in refused(*words)


EVAL = ("eval", "--model", ADDITION.model, "--template", "plain", "--max-new-tokens", "8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--benchmarks", "aime42"), "no known benchmark. Did you mean 'aime25'? Known: math500"),
        (("--benchmarks", " , "), "give one or more names"),
        (("--benchmarks", "aime24,aime24=x.jsonl"), "each once"),
        (("--benchmarks", "aime24,amc83", "--benchmark-dir", "."), "has no aime24.jsonl"),
        (("--benchmarks", "../x=absent.jsonl"), "'../x' cannot name a folder"),
        (("--benchmarks", "OWN", "--shard", "2/2"), "--shard '2/2'"),
        (("--benchmarks", "OWN", "--protocol", "beam"), "'beam' is not one of"),
        (("--benchmarks", "OWN", "--protocol", "greedy", "--n", "4"), "all equal"),
        (("--benchmarks", "OWN", "--answers", "math", "--model", "./absent"), "no such model folder"),
        (("--benchmarks", "OWN"), "Give the kind, such as --answers math"),
    ],
)
def test_bad_evaluations_are_one_line(tmp_path, write_jsonl, words, message):
    own = write_jsonl("own.jsonl", OWN)
    words = [str(own) if word == "OWN" else word for word in words]
    assert message in refused(*EVAL, "--out", tmp_path / "out", *words)


def test_prompts_longer_than_the_context_are_named_and_none_is_cut(tmp_path, write_jsonl):
    pytest.importorskip("transformers", reason="needs transformers: make install")
    rows = [
        *OWN,
        {"id": "long-1", "problem": "1" * 1500, "answer": "1"},
        {"id": "long-2", "problem": "1" * 1900, "answer": "1"},
    ]
    words = (
        "--benchmarks",
        write_jsonl("own.jsonl", rows),
        "--answers",
        "math",
        "--max-new-tokens",
        "600",
        "--out",
        tmp_path / "out",
    )
    message = refused(*EVAL, *words)
    assert (
        "2 of 4 prompts are too long: a context of 2048 tokens with 600 new tokens leaves 1448 for the prompt"
        in message
    )
    assert "long-1 (1500), long-2 (1900)" in message
    assert not list((tmp_path / "out").rglob("responses*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--template", "llama"), "is not a template. Known: auto, qwen25-math-cot"),
        (("--template", "chat-boxed"), "no chat template"),
        (("--context", "4096"), "allows at most 2048 tokens"),
        (("--answers", "{name: text, read: tag}", "--template", "{}\\boxed{{}}"), "asks for a box, in which the kind"),
    ],
)
def test_what_the_model_cannot_do_is_one_line(tmp_path, write_jsonl, words, message):
    pytest.importorskip("transformers", reason="needs transformers: make install")
    own = ("--benchmarks", write_jsonl("own.jsonl", OWN), "--answers", "math")
    assert message in refused(*EVAL, *own, "--out", tmp_path / "o", *words)


def test_a_file_of_ones_own_has_the_kind_of_the_run_that_trained_the_model(tmp_path, write_jsonl):
    """Of an adaptation's checkpoint, too; a known benchmark has its own kind, and what is typed comes first."""
    own = write_jsonl("own.jsonl", [{"problem": "Is Paris a city?", "answer": "yes"}])
    run = {"answers": {"name": "text"}, "openrlhf": {"actor.model_name_or_path": "base"}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    for name in ("model", "checkpoints/global_step8_hf"):
        model = tmp_path / "run" / name
        model.mkdir(parents=True)
        for words, kind in (({}, "text"), ({"answers": "number"}, "number")):
            request = Request(model=str(model), benchmarks=f"aime24={own},mine={own}", out=tmp_path / "out", **words)
            known, mine = Evaluation(request).benchmarks
            assert (known.kind.name, mine.kind.name) == (words.get("answers", "math"), kind)
            assert mine.problems[0].problem == "Is Paris a city?", "without the hint of Qwen2.5-Math's code"


@pytest.mark.parametrize(
    "more",
    [
        {"protocol": "greedy", "n": 1, "max_new_tokens": 16},
        {"n": 4, "max_new_tokens": 100, "seed": 7, "template": "plain", "context": 256, "tensor_parallel_size": 2},
        {"shard": "1/3", "answers": "{name: text, read: tag}", "column": "q"},
    ],
)
def test_the_command_makes_the_same_request(monkeypatch, tmp_path, more):
    asked = []

    def keep(request):
        asked.append(request)
        raise RunError("asked")

    monkeypatch.setattr(evaluate, "Evaluation", keep)
    request = Request(
        model="some/model", benchmarks=("x=x.jsonl", "aime24", "amc83", "math500"), out=tmp_path / "out", **more
    )
    given = request.model_dump(exclude_defaults=True).items()
    words = ["eval", *(word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value)))]
    assert restrain(*words).returncode == 2
    assert asked == [request]
    assert request.shard == (Shard(1, 3) if "shard" in more else Shard(0, 1))
