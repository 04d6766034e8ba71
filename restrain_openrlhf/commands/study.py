"""`restrain study`: trains configurations with several seeds, and compares their held-out accuracy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from restrain_openrlhf.commands.options import Overrides, to_folder
from restrain_openrlhf.config.checks.keys import unsaid_template
from restrain_openrlhf.config.command_line import find_config, override_words, parse_overrides
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError, DataError, ReferencePassError, RunError
from restrain_openrlhf.evaluation.paired import over_seeds
from restrain_openrlhf.machine.processes import Command, run_together
from restrain_openrlhf.records.folder import RunFolder, RunRecord
from restrain_openrlhf.records.metrics import KL, each_step, read_held_out
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import sample_reference

if TYPE_CHECKING:
    from restrain_openrlhf.evaluation.figures import Curve

FIRST_SEED = 42
SET_BY_STUDY = frozenset({"run_dir", "openrlhf.train.seed", "evaluate_first"})
HEADER = ("group", "method", "seeds", "before", "after", "sd", "best", "at step", "steps")
NO_KL = "not known, because a run has no KL to the base model in its numbers (algo.kl.init_coef: 0)"


@dataclass(frozen=True)
class StudyRun:
    """One run of a study. `name` is its configuration's file name, `group` the name of that file's folder."""

    name: str
    group: str
    seed: int
    config: RunConfig
    command: Command

    @property
    def label(self) -> str:
        return f"{self.group}/{self.name} seed {self.seed}"


def study(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG...", parser=find_config, help="YAML files, or presets' names.")
    ],
    out: Annotated[Path, to_folder("Output folder for runs, tables and figures.")] = Path("runs/study"),
    seeds: Annotated[int, typer.Option(min=1, help="Runs per configuration, with seeds 42, 43 and so on.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    overrides: Overrides = None,
) -> None:
    """Train every CONFIG with every seed and compare held-out accuracy. To resume, run the same command.

    Missing and unfinished reference files are sampled first, each once.
    """
    runs = plan_study(configs, seeds, out, parse_overrides(overrides or []))
    run_study(runs, jobs, out, Console(stderr=True, soft_wrap=True))


def plan_study(
    sources: Sequence[Path], seeds: int, out: Path, overrides: Mapping[str, object] | None = None
) -> list[StudyRun]:
    """Every configuration with seeds 42, 43, …, seed by seed, so that half a study compares all methods.

    Raises ConfigError for two configurations with one name, for one without a held-out set, and for an override of a
    key that the study sets.
    """
    if own := sorted(SET_BY_STUDY & (overrides or {}).keys()):
        raise ConfigError(f"--set {own[0]}: a study sets it for each run. Leave it out; --seeds and --out choose.")
    if len({(source.absolute().parent.name, source.stem) for source in sources}) < len(sources):
        raise ConfigError("Two configurations have one name, and their runs would share a folder. Rename one.")
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    return [_run(source, seed, out, overrides or {}) for seed in numbers for source in sources]


def _run(source: Path, seed: int, out: Path, overrides: Mapping[str, object]) -> StudyRun:
    group, name = source.absolute().parent.name, source.stem
    folder = out.absolute() / group / name / f"seed-{seed}"
    placed = {**overrides, "run_dir": str(folder), "openrlhf.train.seed": seed, "evaluate_first": True}
    config = load_run_config(source, placed)
    if reason := unsaid_template(flags_of(config)):
        raise ConfigError(f"{source}: {reason}")
    for flag in ("eval.dataset", "eval.steps", "data.label_key"):
        if not config.openrlhf.get(flag):
            raise ConfigError(
                f"{source}: openrlhf has no {flag}, and a study compares accuracy on held-out problems. Set "
                "eval.dataset (problems with answers), eval.steps and data.label_key, in the file or with --set."
            )
    command = Command(["train", str(source), *override_words(placed)], folder.with_name(f"{folder.name}.log"))
    return StudyRun(name, group, seed, config, command)


def run_study(runs: Sequence[StudyRun], jobs: int, out: Path, console: Console) -> None:
    """Train the runs that are not complete, `jobs` at a time, and rewrite the table after each success.

    A run that fails does not stop the others: RunError at the end names the log of each, and the same command resumes
    them. RunError is raised before anything trains if a folder, even of a complete run, holds a run of another
    configuration or other inputs.
    """
    for config in {run.config.read_reference: run.config for run in reversed(runs)}.values():
        make_reference(config, console)
    for run in runs:
        here = HostRun.of(run.config)
        RunFolder(run.config.run_dir).refuse_another(RunRecord(here.config, here.stated))
    waiting = {run.command.log: run for run in runs if not RunFolder(run.config.run_dir).completed.exists()}
    failed: list[Path] = []

    def on_end(command: Command, status: int) -> None:
        console.print(f"{waiting[command.log].label}: {'FAILED' if status else 'done'}")
        if status:
            failed.append(command.log)
        else:
            write_study(runs, out)

    run_together([run.command for run in waiting.values()], [{}] * jobs, on_end=on_end)
    if failed:
        logs = "\n".join(map(str, failed))
        raise RunError(f"{len(failed)} of {len(runs)} runs failed. Fix the errors in these logs, then rerun:\n{logs}")
    write_study(runs, out)
    console.print(f"table: {out / 'table.md'}")


def make_reference(config: RunConfig, console: Console) -> None:
    """Sample the reference file that the run's method reads, unless a run can read it as it is.

    Sampling resumes an unfinished one, and reports what is wrong with any other.
    """
    if (reference := config.read_reference) is None:
        return
    try:
        load_reference(reference)
    except (ReferencePassError, DataError):
        console.print(f"sampling the reference {reference}")
        sample_reference(config, reference)


def accuracies(runs: Sequence[StudyRun]) -> "list[Curve]":
    """Held-out pass@1 of each configuration that has been evaluated, in the order of the study."""
    from restrain_openrlhf.evaluation.figures import Curve  # noqa: PLC0415 - imports matplotlib

    found = []
    for (group, name), of_seeds in evaluated(runs).items():
        seeds = [{each.step: each.pass_at_1 for each in rows} for rows in of_seeds.values()]
        if steps := sorted(set.intersection(*map(set, seeds))):
            values = np.array([[by_step[step] for step in steps] for by_step in seeds])
            found.append(Curve(group, name, tuple(steps), values))
    return found


@dataclass(frozen=True)
class EvaluatedStep:
    """pass@1 in [0, 1] after a step, and the policy's KL to the base model in that step, in nats.

    It is 0 before training, and in all steps of a run that logs none.
    """

    step: int
    pass_at_1: float
    kl: float


def evaluated(runs: Sequence[StudyRun]) -> dict[tuple[str, str], dict[int, list[EvaluatedStep]]]:
    """The evaluations of each configuration, (group, name), by seed. A run without any is left out."""
    found: dict[tuple[str, str], dict[int, list[EvaluatedStep]]] = {}
    for run in runs:
        if rows := read_held_out(run.config.run_dir):
            metrics = RunFolder(run.config.run_dir).metrics
            kl = {row.step: row.numbers.get(KL, 0.0) for row in (each_step(metrics) if metrics.exists() else ())}
            own = [EvaluatedStep(row.step, row.pass_at_1, kl.get(row.step, 0.0)) for row in rows]
            found.setdefault((run.group, run.name), {})[run.seed] = own
    return found


def paired_lines(runs: Sequence[StudyRun]) -> Iterator[str]:
    """The differences of each two configurations of a group at equal seeds: at equal KL, and at each one's best."""
    rates = {(run.group, run.name): flags_of(run.config)["actor.adam.lr"] for run in runs}
    for (one, first), (other, second) in combinations(evaluated(runs).items(), 2):
        if one[0] != other[0] or not (seeds := sorted(first.keys() & second.keys())):
            continue
        pairs = [(first[seed], second[seed]) for seed in seeds]
        known = f"both {rates[one]:g}" if rates[one] == rates[other] else f"{rates[other]:g} and {rates[one]:g}"
        yield f"- {other[1]} − {one[1]} ({other[0]}; learning rate: {known})"
        knows_kl = all(any(each.kl for each in rows) for pair in pairs for rows in pair)
        equal = over_seeds([_at_equal_kl(b, a) - _at_equal_kl(a, b) for a, b in pairs]) if knows_kl else NO_KL
        yield f"  - at equal KL: {equal}"
        best = over_seeds([max(each.pass_at_1 for each in b) - max(each.pass_at_1 for each in a) for a, b in pairs])
        yield f"  - each at its best step, chosen on these problems: {best}"


def _at_equal_kl(run: Sequence[EvaluatedStep], other: Sequence[EvaluatedStep]) -> float:
    """pass@1 at the last evaluation whose KL is at most what both runs reach."""
    limit = min(max(each.kl for each in rows) for rows in (run, other))
    return [each.pass_at_1 for each in run if each.kl <= limit][-1]


def write_study(runs: Sequence[StudyRun], out: Path) -> None:
    """Write table and curves from the runs' files so far. Raises RunError if none has been evaluated yet."""
    from restrain_openrlhf.evaluation.figures import draw_held_out, save_figures  # noqa: PLC0415 - imports matplotlib

    found = accuracies(runs)
    if not found:
        raise RunError(f"{out}: no run has an evaluation yet, so there is nothing to report. Read the runs' logs.")
    rows = list(map(accuracy_row, found))
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in (HEADER, ["---"] * len(HEADER), *rows))
    pairs = "".join(f"{line}\n" for line in paired_lines(runs))
    compared = f"\n## Differences at equal seeds, with 95 % intervals\n\n{pairs}" if pairs else ""
    write_whole(out / "table.md", f"## Held-out accuracy (pass@1)\n\n{lines}{compared}")
    save_figures({"curves": draw_held_out(found)}, out)


def accuracy_row(curve: "Curve") -> list[str]:
    """A row of the table, with means over seeds; `sd` is the standard deviation of `after`."""
    means = curve.mean
    best = int(means.argmax())
    return [
        curve.group,
        curve.name,
        str(len(curve.values)),
        f"{means[0]:.1%}",
        f"{means[-1]:.1%}",
        f"{curve.deviation[-1]:.1%}" if len(curve.values) > 1 else "–",
        f"{means[best]:.1%}",
        str(curve.steps[best]),
        str(curve.steps[-1]),
    ]
