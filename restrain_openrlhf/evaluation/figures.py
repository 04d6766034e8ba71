"""Draws figures of runs, such as training curves, votes and speed, and writes pages of tables and figures."""

import base64
import gc
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Self

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from restrain_openrlhf.data.outputs import replacing, write_whole
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import SizeRow
from restrain_openrlhf.records.metrics import (
    ENTROPY,
    GENERATED_PER_SECOND,
    KL,
    LOSS,
    TRAINED_PER_SECOND,
    StepRow,
    each_step,
)


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
    """Write the page, with text escaped and pictures embedded."""
    environment = Environment(loader=PackageLoader("restrain_openrlhf.evaluation", "."), autoescape=True)
    page = environment.get_template("page.html.j2").render(title=title, lead=lead, tables=tables, pictures=pictures)
    write_whole(path, page)


@dataclass(frozen=True)
class Panel:
    """One small plot: its title, and its value for a step's row (None is not drawn, and NaN is marked)."""

    title: str
    value: Callable[[StepRow], float | None]


def number(name: str) -> Callable[[StepRow], float | None]:
    return lambda row: row.numbers.get(name)


def vote(name: str) -> Callable[[StepRow], float | None]:
    return lambda row: float(row.votes[name])


TRAINING = (
    Panel("mean reward", number("rollout/reward_mean")),
    Panel("policy loss", number(LOSS)),
    Panel("KL to the reference policy, nats per token", number(KL)),
    Panel("entropy, nats per token", number(ENTROPY)),
    Panel("gradient norm", number("actor_grad_norm")),
    Panel("response length, tokens", number("rollout/response_length_mean")),
)
VOTES = (
    Panel("mean majority share", vote("majority_share_mean")),
    Panel("groups below κ", vote("low_consensus_share")),
    Panel("unanimous groups", vote("unanimous_share")),
    Panel("effective number of labels", vote("effective_labels_mean")),
    Panel("voters without an answer", vote("missing_share_of_voters")),
    Panel("most common majority across prompts", vote("top_answer_share")),
)
SPEED = (
    Panel("generation and scoring, seconds", number("timing/generation")),
    Panel("log-probabilities, seconds", number("timing/make_experience")),
    Panel("training, seconds", number("timing/ppo_train")),
    Panel("weight sync, seconds", number("timing/broadcast")),
    Panel("generated tokens per second", number(GENERATED_PER_SECOND)),
    Panel("trained tokens per second", number(TRAINED_PER_SECOND)),
)
ALL = (*TRAINING, *VOTES, *SPEED)


@dataclass(frozen=True)
class RunCurves:
    """The curves of one run, and the run's name in legends.

    `steps` has all steps. `curves` has each panel's steps and values by the panel's title. `sizes` has, for all steps
    in turn, the share of groups with each size of the majority.
    """

    name: str
    steps: "array[int]"
    curves: Mapping[str, tuple["array[int]", "array[float]"]]
    sizes: "array[float]"

    @classmethod
    def of(cls, name: str, rows: Iterable[StepRow], panels: Sequence[Panel] = ALL) -> Self:
        """The curves of a run's rows. Only the numbers that the panels show are kept in memory."""
        curves = {panel.title: (array("q"), array("d")) for panel in panels}
        run = cls(name, array("q"), curves, array("f"))
        values = {panel.title: panel.value for panel in panels}
        for row in rows:
            run.steps.append(row.step)
            run.sizes.extend(count / row.votes["prompts"] for count in row.votes["majority_histogram"])
            for title, value in values.items():
                if (number := value(row)) is not None:
                    curves[title][0].append(row.step)
                    curves[title][1].append(number)
        return run

    def lost(self, panel: Panel) -> list[int]:
        """The steps whose number was not finite.

        The line has a gap there, which would be invisible for a single step.
        """
        return [step for step, value in zip(*self.curves[panel.title], strict=True) if math.isnan(value)]


def distinct_names(runs: Sequence[Path]) -> list[str]:
    """The runs' paths without the parts with which all of them begin or end.

    The name of a single run is that of its folder.
    """
    parts = [run.resolve().parts for run in runs]
    if len(set(parts)) == 1:
        return [run.resolve().name for run in runs]
    first, last = (
        len(list(takewhile(lambda column: len(set(column)) == 1, zip(*of, strict=False))))
        for of in (parts, [each[::-1] for each in parts])
    )
    names = ["/".join(each[first : len(each) - last]) or each[-1] for each in parts]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def load_curves(run_dir: Path, name: str | None = None) -> RunCurves:
    """The curves of a run, by default with its folder's name. Raises DataError if it has no metrics yet."""
    run = RunCurves.of(name or run_dir.name, each_step(run_dir / "metrics.jsonl"))
    if not run.steps:
        raise DataError(f"{run_dir}: has no metrics.jsonl with a finished step. Give the folder of a run.")
    return run


def draw_panels(runs: Sequence[RunCurves], panels: Sequence[Panel]) -> Figure:
    """A figure with one small plot per panel, and one line per run, which has one colour in all of them."""
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 3).flat, panels, strict=True):
        for place, run in enumerate(runs):
            _line(axes, run, panel, f"C{place}")
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel("step", fontsize=8)
        axes.grid(alpha=0.3)
    _add_legend(figure, runs, panels)
    return figure


def _add_legend(figure: Figure, runs: Sequence[RunCurves], panels: Sequence[Panel]) -> None:
    """Below the plots: the runs, if there are several, and the mark of lost numbers, if there is any."""
    named = [Line2D([], [], color=f"C{place}", label=run.name) for place, run in enumerate(runs)] * (len(runs) > 1)
    if any(run.lost(panel) for run in runs for panel in panels):
        named.append(Line2D([], [], color="gray", marker="x", linestyle="", label="no finite number"))
    for columns in (4, 3, 2, 1) if named else ():
        legend = figure.legend(handles=named, loc="outside lower center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width < figure.bbox.width:
            break
        legend.remove()
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + sum(each.get_window_extent().height for each in figure.legends) / figure.dpi)


def _line(axes: Axes, run: RunCurves, panel: Panel, colour: str) -> None:
    axes.plot(*run.curves[panel.title], color=colour, linewidth=1.5)
    if lost := run.lost(panel):
        middle = [0.5] * len(lost)
        axes.plot(lost, middle, "x", color=colour, transform=axes.get_xaxis_transform(), markersize=9)


def draw_majority_sizes(run: RunCurves, brightest: float) -> Figure:
    """A figure of the share of groups by the size of their majority (vertical) and the step (horizontal).

    The colours go from 0 to the share `brightest`.
    """
    shares = np.frombuffer(run.sizes, dtype=np.float32).reshape(len(run.steps), -1)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    extent = (run.steps[0] - 0.5, run.steps[-1] + 0.5, -0.5, shares.shape[1] - 0.5)
    image = axes.imshow(shares.T, vmin=0, vmax=brightest, origin="lower", aspect="auto", extent=extent)
    axes.set_title(f"{run.name}: size of the majority", wrap=True)
    axes.set(xlabel="step", ylabel="voters in the majority")
    figure.colorbar(image, label="share of groups")
    return figure


def save_run_figures(runs: Sequence[RunCurves], out: Path) -> list[Path]:
    """Write training.png, votes.png, speed.png and one figure of majority sizes per run into `out`.

    The figures of majority sizes have one scale of colours, so that runs can be compared. Returns the paths.
    """
    panels = {"training": TRAINING, "votes": VOTES, "speed": SPEED}
    figures = [(name, partial(draw_panels, runs, of)) for name, of in panels.items()]
    drawn = partial(draw_majority_sizes, brightest=max(max(run.sizes) for run in runs))
    figures += [(f"majority-{run.name.replace('/', '-')}", partial(drawn, run)) for run in runs]
    paths: list[Path] = []
    for name, draw in figures:
        paths += save_figures({name: draw()}, out)
        # A figure holds several copies of its points, and refers to itself, so only the garbage collector frees it.
        gc.collect()
    return paths


def draw_reliability(rows: Sequence[SizeRow], title: str) -> Figure:
    """A figure of pass@n and the majority's accuracy by the majority's size, above the number of problems."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    sizes, n = [row.size for row in rows], rows[0].n
    upper.plot(sizes, [row.pass_at_n for row in rows], marker="o", label=f"pass@{n}: some rollout is right")
    upper.plot(sizes, [row.majority_accuracy for row in rows], "s-", color="tab:orange", label="the majority is right")
    upper.vlines(sizes, [row.majority_low for row in rows], [row.majority_high for row in rows], color="tab:orange")
    upper.set(title=title, ylabel="share of problems", ylim=(-0.03, 1.03))
    upper.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    lower.bar(sizes, [row.problems for row in rows], color="tab:gray")
    lower.set(xlabel=f"rollouts in the majority, of {n}", ylabel="problems")
    lower.set_xticks(range(0, n + 1, max(1, n // 16)))
    return figure
