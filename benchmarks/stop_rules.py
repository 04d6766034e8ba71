"""What the stop rules and the choice of a checkpoint, both blind to gold, would have done in a study's runs.

Reads the folder that `make study` leaves (its evaluations are taken as the checkpoints there were), and compares the
accuracy of the model that would have been kept with the last one's, the base model's and the best there was.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.run.metrics import HeldOutAccuracy, StepRow, read_held_out, read_steps
from test_time.checkpoints import SavedModel, best, last_good
from test_time.stopping import StopRules, alarm

GOLD = "grpo_gold"


@dataclass(frozen=True)
class Judged:
    """Accuracies of one run, pass@1 in [0, 1], by which model is taken; `by_signal` and `last_good` without gold."""

    regime: str
    method: str
    stopped: bool
    base: float
    last: float
    last_good: float
    by_signal: float
    best: float


def judge(run: Path) -> Judged:
    """What the rules would have made of one run. The base model's share of its commonest answer: the first step's."""
    rows, evaluations = read_steps(run / "metrics.jsonl"), read_held_out(run)
    accuracy = {each.step: each.pass_at_1 for each in evaluations}
    models = [SavedModel(step, run) for step in accuracy if step]
    found = alarm(rows, rows[0].votes["top_answer_share"], StopRules())
    return Judged(
        regime=run.parents[1].name,
        method=run.parent.name,
        stopped=found is not None,
        base=accuracy[0],
        last=_last(evaluations, rows),
        last_good=accuracy[chosen.step] if (chosen := last_good(models, found)) else accuracy[0],
        by_signal=accuracy[chosen.step] if (chosen := best(models, rows, found)) else accuracy[0],
        best=max(accuracy.values()),
    )


def _last(evaluations: Sequence[HeldOutAccuracy], rows: Sequence[StepRow]) -> float:
    return next(each.pass_at_1 for each in reversed(evaluations) if each.step <= rows[-1].step)


def main() -> None:
    """Print a line per regime, with and without the supervised upper bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, default=Path("runs/study"))
    options = parser.parse_args()
    runs = sorted(path.parent for path in options.study.glob("*/*/seed-*/completed.json"))
    if not runs:
        Console().print(f"{options.study}: no finished runs there. Make them with `make study`, or give --study.")
        return
    judged = [judge(run) for run in runs]
    table = Table("regime", "runs", "ended early", "base", "last", "last good", "by signal", "best there was")
    for regime in sorted({each.regime for each in judged}):
        for name, gold in (("label-free", False), ("gold", True)):
            part = [each for each in judged if each.regime == regime and (each.method == GOLD) is gold]
            if part:
                table.add_row(f"{regime}, {name}", str(len(part)), *_cells(part))
    Console().print(table)


def _cells(part: Sequence[Judged]) -> list[str]:
    means = [
        sum(getattr(each, name) for each in part) / len(part)
        for name in ("base", "last", "last_good", "by_signal", "best")
    ]
    return [str(sum(each.stopped for each in part)), *(f"{100 * mean:.1f}" for mean in means)]


if __name__ == "__main__":
    main()
