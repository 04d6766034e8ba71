"""The command that makes an evaluation in a process of its own asks for what its request says."""

import pytest

from restrain_openrlhf.commands import evaluate
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.job import Request
from restrain_openrlhf.reference.sampling_pass import Shard
from tests.command_line import restrain


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
