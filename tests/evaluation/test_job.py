"""The command that makes an evaluation in a process of its own asks for what its request says."""

import pytest

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation import job
from restrain_openrlhf.evaluation.job import Request
from tests.command_line import restrain


@pytest.fixture
def asked(monkeypatch):
    """What `restrain eval` was asked for: its request and the benchmarks' names. It ends there."""
    found = []

    def keep(request, benchmarks, _shard):
        found.append((request, [entry.name for entry in benchmarks]))
        raise RunError("asked")

    monkeypatch.setattr(job, "prepare", keep)
    return found


@pytest.mark.parametrize(
    "more",
    [
        {"protocol": "greedy", "n": 1, "max_new_tokens": 16},
        {"n": 4, "max_new_tokens": 100, "seed": 7, "template": "plain", "context": 256, "tensor_parallel_size": 2},
        {"max_new_tokens": 8, "seed": 7},
    ],
)
def test_the_command_makes_the_same_request(asked, tmp_path, write_jsonl, more):
    files = {name: write_jsonl(f"{name}.jsonl", [{"id": "a", "problem": "1+1=", "answer": "2"}]) for name in "xy"}
    benchmarks = ",".join(f"{name}={path}" for name, path in files.items())
    request = Request(model="some/model", benchmarks=benchmarks, out=tmp_path / "out", **more)
    typed = request.model_dump(exclude_defaults=True).items()
    words = [word for name, value in typed for word in (f"--{name.replace('_', '-')}", str(value))]
    assert restrain("eval", *words).returncode == 2
    assert asked == [(request, ["x", "y"])]
