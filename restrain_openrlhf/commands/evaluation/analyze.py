"""`restrain analyze`: how far majorities can be trusted, of a file of rollouts or of a run's kept ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.commands.options import GOLD, to_folder
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.estimators import reliability
from restrain_openrlhf.evaluation.grade import grade_rollouts, read_rollouts
from restrain_openrlhf.evaluation.label_quality import LabelQuality, Measures, label_quality
from restrain_openrlhf.evaluation.prompt_gold import gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import read_kept

COLUMNS = ("groups", "majority right", "some right", "signal agrees", "weight on right")


def analyze(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN|ROLLOUTS.jsonl", help="A run's folder; or rows {id, problem, responses, answer?}."),
    ],
    gold: Annotated[Path | None, typer.Option(help=GOLD)] = None,
    out: Annotated[
        Path | None, to_folder("Folder for pictures and numbers.", show_default="of a run: RUN/analysis")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Of a run: print JSON.")] = False,
) -> None:
    """Count right answers: were a run's pseudo-labels right (RUN), how reliable are majorities (ROLLOUTS.jsonl)."""
    if path.is_dir():
        _analyze_run(path, gold, out or path / "analysis", as_json)
    elif out is None or as_json:
        raise ConfigError(f"{path}: is no run's folder. A file of rollouts needs --out FOLDER, and has no --json.")
    else:
        _analyze_file(path, gold, out)


def _analyze_run(run: Path, gold: Path | None, out: Path, as_json: bool) -> None:
    from restrain_openrlhf.evaluation.figures.page import save_figures  # noqa: PLC0415 - imports matplotlib
    from restrain_openrlhf.evaluation.figures.reliability import draw_labels  # noqa: PLC0415

    if gold is None:
        raise ConfigError(f"{run}: --gold FILE is needed: kept rollouts hold no gold. Give the prompts' answers.")
    answers = gold_for({group.prompt for group in read_kept(run)}, gold, RunFolder(run).flags())
    found = label_quality(run, gold, read_kept(run), answers)
    pictures, text = save_figures({"labels": draw_labels(found)}, out), found.model_dump_json(indent=2)
    (out / "labels.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
        return
    by_size = [(f"{row.size} of {row.voters}", row.measures) for row in found.by_size]
    by_step = [
        (str(row.first) if row.first == row.last else f"{row.first} to {row.last}", row.measures)
        for row in found.by_window
    ]
    tables = (_totals(found), _parts("by its size", "majority", by_size), _parts("by step", "step", by_step))
    console = Console(soft_wrap=True, highlight=False)
    for part in (*tables, out / "labels.json", *pictures):
        console.print(part)


def _totals(found: LabelQuality) -> Table:
    table = Table("of the kept rollouts", "", title=found.run, title_justify="left")
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


def _analyze_file(rollouts: Path, gold: Path | None, out: Path) -> None:
    from restrain_openrlhf.evaluation.figures.reliability import save_reliability  # noqa: PLC0415 - imports matplotlib

    rows = reliability(grade_rollouts(read_rollouts(rollouts), rollouts, gold))
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for row in rows:
        console.print(
            f"majority of {row.size} of {row.n}: {row.problems} problems, pass@{row.n} {row.pass_at_n:.1%}, "
            f"majority right {row.majority_accuracy:.1%} [{row.majority_low:.1%}, {row.majority_high:.1%}]"
        )
    for path in save_reliability(rows, rollouts.stem, out):
        console.print(path)
