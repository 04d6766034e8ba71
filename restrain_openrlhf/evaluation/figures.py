"""Draws figures of runs, such as training curves and votes, and writes pages of tables and figures."""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from restrain_openrlhf.data.outputs import replacing, write_whole
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.method.types import Floats
from restrain_openrlhf.records.metrics import ENTROPY, KL, LOSS, StepRow, each_step


def save_figures(figures: Mapping[str, Figure], out: Path) -> list[Path]:
    """Write each figure as NAME.png into `out`. Returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.png" for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        with replacing(path, "wb") as file:
            figure.savefig(file, dpi=120)
    return paths


@dataclass(frozen=True)
class PageTable:
    """A table of text, whose first column names the rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A PNG file, and what it shows."""

    title: str
    path: Path

    @property
    def data_url(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode()


def write_page(path: Path, title: str, lead: str, tables: Sequence[PageTable], pictures: Sequence[Picture]) -> None:
    environment = Environment(loader=PackageLoader("restrain_openrlhf.evaluation", "."), autoescape=True)
    page = environment.get_template("page.html.j2").render(title=title, lead=lead, tables=tables, pictures=pictures)
    write_whole(path, page)


# One small plot: its title, and its value for a step's row, which is None where the step has none.
Panel = tuple[str, Callable[[StepRow], float | None]]


def number(name: str) -> Callable[[StepRow], float | None]:
    return lambda row: row.numbers.get(name)


def vote(name: str) -> Callable[[StepRow], float | None]:
    return lambda row: float(row.votes[name])


TRAINING = (
    ("mean reward", number("rollout/reward_mean")),
    ("policy loss", number(LOSS)),
    ("KL to the reference policy, nats per token", number(KL)),
    ("entropy, nats per token", number(ENTROPY)),
    ("gradient norm", number("actor_grad_norm")),
    ("response length, tokens", number("rollout/response_length_mean")),
)
VOTES = (
    ("mean majority share", vote("majority_share_mean")),
    ("penalised rollouts", vote("low_consensus_share")),
    ("unanimous groups", vote("unanimous_share")),
    ("effective number of labels", vote("effective_labels_mean")),
    ("voters without an answer", vote("missing_share_of_voters")),
    ("most common majority across prompts", vote("top_answer_share")),
)
ALL = (*TRAINING, *VOTES)


@dataclass(frozen=True)
class RunCurves:
    """The curves of one run, and the run's name in legends.

    `steps` has all steps, and `curves` each panel's steps and values by the panel's title.
    """

    name: str
    steps: list[int]
    curves: Mapping[str, tuple[list[int], list[float]]]

    @classmethod
    def of(cls, name: str, rows: Iterable[StepRow], panels: Sequence[Panel] = ALL) -> Self:
        """The curves of a run's rows. Only the numbers that the panels show are kept in memory."""
        run = cls(name, [], {title: ([], []) for title, _ in panels})
        for row in rows:
            run.steps.append(row.step)
            for title, value in panels:
                if (number := value(row)) is not None:
                    steps, values = run.curves[title]
                    steps.append(row.step)
                    values.append(number)
        return run


def distinct_names(runs: Sequence[Path]) -> list[str]:
    """The names of the runs' folders, or the paths as given where two have one name."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else list(map(str, runs))


def load_curves(run_dir: Path, name: str | None = None) -> RunCurves:
    """The curves of a run, by default with its folder's name. Raises DataError if it has no metrics yet."""
    run = RunCurves.of(name or run_dir.name, each_step(run_dir / "metrics.jsonl"))
    if not run.steps:
        raise DataError(f"{run_dir}: has no metrics.jsonl with a finished step. Give the folder of a run.")
    return run


def draw_panels(runs: Sequence[RunCurves], panels: Sequence[Panel]) -> Figure:
    """A figure with one small plot per panel, and one line per run, which has one colour in all of them."""
    # The legend has a line for each run, for which the figure is higher.
    figure = Figure(figsize=(11, 5.5 + 0.25 * len(runs)), layout="constrained")
    for axes, (title, _) in zip(figure.subplots(2, 3).flat, panels, strict=True):
        for place, run in enumerate(runs):
            # The dots show a step between two whose numbers are not finite, such as a loss that overflowed.
            axes.plot(*run.curves[title], ".-", color=f"C{place}", linewidth=1.5, markersize=2)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step", fontsize=8)
        axes.grid(alpha=0.3)
    if len(runs) > 1:
        named = [Line2D([], [], color=f"C{place}", label=run.name) for place, run in enumerate(runs)]
        figure.legend(handles=named, loc="outside lower center")
    return figure


def save_run_figures(runs: Sequence[RunCurves], out: Path) -> list[Path]:
    """Write training.png and votes.png into `out`, with a line for each run. Returns the paths."""
    panels = {"training": TRAINING, "votes": VOTES}
    return save_figures({name: draw_panels(runs, of) for name, of in panels.items()}, out)


@dataclass(frozen=True)
class Curve:
    """pass@1 of one configuration: `values`, shape (seeds, steps), at the `steps` that all seeds have."""

    group: str
    name: str
    steps: tuple[int, ...]
    values: Floats

    @property
    def mean(self) -> Floats:
        found: Floats = self.values.mean(axis=0)
        return found

    @property
    def deviation(self) -> Floats:
        """Standard deviation over seeds at each step; 0 for a single seed."""
        found: Floats = self.values.std(axis=0, ddof=min(1, len(self.values) - 1))
        return found


def draw_held_out(curves: Sequence[Curve]) -> Figure:
    """Draw a panel for each group, with a line for each configuration: the mean over seeds ±1 sd, by step."""
    groups = list(dict.fromkeys(curve.group for curve in curves))
    most = max(Counter(curve.group for curve in curves).values())
    figure = Figure(figsize=(7.5 * len(groups), 4.5 + 0.2 * most), layout="constrained")
    for axes, group in zip(figure.subplots(1, len(groups), squeeze=False).flat, groups, strict=True):
        for curve in (each for each in curves if each.group == group):
            (line,) = axes.plot(curve.steps, curve.mean, label=curve.name)
            low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
            axes.fill_between(curve.steps, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
        axes.set(title=f"{group}: held-out pass@1", xlabel="training step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    return figure
