"""The command that makes an evaluation in a process of its own asks for what its request says."""

import pytest

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation import job
from restrain_openrlhf.evaluation.job import Request, eval_command
from restrain_openrlhf.evaluation.protocol import choose_protocol
from tests.commands import restrain


@pytest.fixture
def asked(monkeypatch):
    """What `restrain eval` was asked for: its request and the benchmarks' names. It ends there."""
    found = []

    def keep(request, benchmarks):
        found.append((request, [entry.name for entry in benchmarks]))
        raise RunError("asked")

    monkeypatch.setattr(job, "prepare", keep)
    return found


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        (choose_protocol("greedy", 1, 16), {}),
        (choose_protocol("paper", 4, 100, seed=7), {"template": "plain", "context": 256, "tensor_parallel_size": 2}),
        (choose_protocol("paper", None, 8), {"labels": {"step": "3", "method": "ttrl"}}),
        (choose_protocol("qwen25-math", None, None), {"template": "cot", "shots": 4}),
    ],
)
def test_the_command_makes_the_same_request(asked, tmp_path, write_jsonl, protocol, more):
    files = {name: write_jsonl(f"{name}.jsonl", [{"id": "a", "problem": "1+1=", "answer": "2"}]) for name in "xy"}
    request = Request("some/model", tmp_path / "out", protocol, **more)
    assert restrain(*eval_command(request, files)).returncode == 2
    assert asked == [(request, ["x", "y"])]
