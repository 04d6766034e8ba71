"""Reading a run's evaluations.jsonl: held-out accuracy by training step."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = "evaluations.jsonl"
SUFFIX = "_pass1"


@dataclass(frozen=True)
class Evaluation:
    """pass@1 in [0, 1] after `step` training steps, the mean over the host's evaluation sets."""

    step: int
    pass_at_1: float


def read_evaluations(run_dir: Path) -> list[Evaluation]:
    """All whole rows, in order of steps; none where nothing was evaluated."""
    path = run_dir / FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [Evaluation(int(row["step"]), _mean_pass(row)) for row in rows]


def _mean_pass(row: dict[str, float]) -> float:
    """The host names them eval_<datasource>_pass1 (trainer/ppo_trainer.py, compute_eval_metrics)."""
    values = [value for name, value in row.items() if name.endswith(SUFFIX)]
    return sum(values) / len(values)
