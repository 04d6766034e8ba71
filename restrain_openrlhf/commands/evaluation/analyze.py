"""`restrain analyze`: counts in a run's kept rollouts how often its pseudo-labels were right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.commands.options import GOLD
from restrain_openrlhf.evaluation.label_quality import LabelQuality, Measures, label_quality
from restrain_openrlhf.evaluation.prompt_gold import gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import kept_prompts, read_kept

EXACTLY = ", right as votes are equal (--exact)"
COLUMNS = ("groups", "majority right", "some right", "signal agrees", "weight on right")


def analyze(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, with kept rollouts.")],
    gold: Annotated[Path, typer.Option(help=GOLD)],
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Count an answer as right only if it would vote for the same class as gold. Otherwise it is graded as "
            "in evaluations, with their tolerance.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count with gold: were the majorities that a run trained on right, and did training reward right rollouts?"""
    next(read_kept(run))
    answers = gold_for(kept_prompts(run), gold, RunFolder(run).flags(), RunFolder(run).kind, exact=exact)
    found = label_quality(run, gold, read_kept(run), answers)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    by_size = [(f"{row.size} of {row.voters}", row.measures) for row in found.by_size]
    by_step = [
        (str(row.first) if row.first == row.last else f"{row.first} to {row.last}", row.measures)
        for row in found.by_window
    ]
    console = Console(soft_wrap=True, highlight=False)
    console.print(_totals(found))
    console.print(_parts("by its size", "majority", by_size))
    console.print(_parts("by step", "step", by_step))


def _totals(found: LabelQuality) -> Table:
    table = Table("of the kept rollouts", "", title=f"{found.run}{EXACTLY * found.exact}", title_justify="left")
    total = found.total
    bounds = f"[{_percent(total.label_low)}, {_percent(total.label_high)}]"
    rows = {
        "groups with gold, without": f"{total.groups}, {found.groups_without_gold}",
        "prompts without gold, of all": f"{found.prompts_without_gold} of {found.prompts}",
        "label accuracy: the majority is right": f"{_percent(total.label_accuracy)} {bounds}",
        "some rollout is right": _percent(total.some_right),
        "rollouts that are right": _percent(total.rollout_accuracy),
        "reward accuracy: the signal's sign agrees": f"{_percent(total.reward_accuracy)} of {total.signals} rollouts",
        "right rollouts pushed up": _percent(total.right_pushed_up),
        "wrong rollouts pushed down": _percent(total.wrong_pushed_down),
        "weight on right answers": _percent(total.weight_on_right),
        "penalised groups that had a right rollout": f"{total.penalized_with_right} of {total.penalized}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _parts(title: str, of: str, rows: Sequence[tuple[str, Measures]]) -> Table:
    table = Table(of, *COLUMNS, title=title, title_justify="left")
    for name, found in rows:
        shares = (found.label_accuracy, found.some_right, found.reward_accuracy, found.weight_on_right)
        table.add_row(name, str(found.groups), *map(_percent, shares))
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
