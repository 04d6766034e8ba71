"""A test-time adaptation without Ray and vLLM: stand-ins for the sampler and for the process that trains."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine import processes
from restrain_openrlhf.reference import sampling_pass
from restrain_openrlhf.reference.offline_engine import Rollout, Sampling
from restrain_openrlhf.reference.prompts import Prompt
from tests.command_line import Done, call, restrain
from tests.conftest import ROOT

CONFIG = ROOT / "configs" / "cpu" / "test_time.yaml"


def right_answer(problem: str) -> str:
    """A sum as the demo's problems ask for it; for other text a number that it alone has."""
    first, plus, second = problem.removesuffix("=").partition("+")
    if plus and first.isdigit() and second.isdigit():
        return str(int(first) + int(second))
    return str(int(hashlib.sha256(problem.encode()).hexdigest()[:6], 16))


@dataclass(frozen=True)
class Sampler:
    """Stands in for the vLLM engine: of four rollouts the base model has one right, and a trained one three."""

    asked: list[tuple[str, int, str]]
    model: str
    sampling: Sampling

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        self.asked.extend((self.model, self.sampling.n, prompt.text) for prompt in prompts)
        return [[self._rollout(prompt, place) for place in range(self.sampling.n)] for prompt in prompts]

    def _rollout(self, prompt: Prompt, place: int) -> Rollout:
        is_right = place % 4 == 0 if self.model == str(ADDITION.model) else place % 4 != 0
        answer = right_answer(prompt.text) if is_right else f"0.{place + 1}"
        return Rollout(f"so \\boxed{{{answer}}}", tokens=5, truncated=False)


@dataclass
class StandIns:
    """What was sampled: model, rollouts, prompt. `plan` is for the process that trains (tests/test_time/trainer.py)."""

    row: dict
    asked: list[tuple[str, int, str]] = field(default_factory=list)

    def plan(self, out: Path, **what: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "plan.json").write_text(json.dumps({"row": self.row, **what}))

    def refuse_processes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on no command may be started in a process, and no training."""
        from restrain_openrlhf.hook.launch import train

        def refuse(commands: Sequence[processes.Command], **_more: object) -> None:
            raise RunError(f"a process was started: {commands[0].words[0]}")

        monkeypatch.setattr(processes, "run_together", refuse)
        monkeypatch.setattr(train, "_run_host", None)


@pytest.fixture
def stand_ins(tmp_path, monkeypatch) -> StandIns:
    """In the two places where an adaptation starts a process, and where our own commands start an engine."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.launch import train
    from restrain_openrlhf.hook.run_log import append_step
    from restrain_openrlhf.reference import offline_pass
    from tests.hook.test_trainer_metrics import votes

    append_step(tmp_path / "row.jsonl", 1, {"restrain/policy_entropy": 1.0}, votes())
    made = StandIns(json.loads((tmp_path / "row.jsonl").read_text()))
    monkeypatch.setattr(offline_pass, "RolloutEngine", lambda model, sampling, *_: Sampler(made.asked, model, sampling))
    monkeypatch.setattr(sampling_pass, "visible_gpus", lambda: ())
    monkeypatch.setattr(processes, "run_together", run_here)
    monkeypatch.setattr(train, "ENTRY_POINT", "tests.test_time.trainer")
    monkeypatch.setattr(train, "POLL_SECONDS", 0.02)
    return made


def run_here(commands: Sequence[processes.Command], on_poll=lambda: None) -> None:
    """`restrain WORDS...` in this process."""
    for command in commands:
        done = restrain(*command.words)
        with command.log.open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise RunError(done.stderr)
        on_poll()


def run_test_time(*words: object) -> Done:
    """`test-time WORDS...`."""
    from test_time.cli import main

    return call(main, *words)
