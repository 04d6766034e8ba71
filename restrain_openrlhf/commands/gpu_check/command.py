"""`restrain gpu-check`: tries for some minutes, one check after the other, what a run of many days relies on."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from restrain_openrlhf.commands.gpu_check import CheckOutcome, Verdict, failed
from restrain_openrlhf.commands.gpu_check.gradient import check_gradient
from restrain_openrlhf.commands.gpu_check.memory import check_memory
from restrain_openrlhf.commands.gpu_check.small_run import check_training
from restrain_openrlhf.commands.options import Overrides, to_folder
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError, RestrainError

# Of the command's own folder, new or empty, and the configuration of the run that is to be started afterwards, if any.
Check = Callable[[Path, RunConfig | None], list[CheckOutcome]]


class Name(StrEnum):
    """The names that `--only` takes, in the order in which the checks run."""

    GRADIENT = "gradient"
    TRAINING = "training"
    MEMORY = "memory"


CHECKS: Mapping[Name, Check] = {
    Name.GRADIENT: check_gradient,
    Name.TRAINING: check_training,
    Name.MEMORY: check_memory,
}


COLOURS: Mapping[Verdict, str] = {"pass": "green", "fail": "red", "skipped": "yellow"}


@dataclass(frozen=True)
class CheckResult:
    """The outcomes of a check, and how long it took."""

    check: str
    outcomes: tuple[CheckOutcome, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(outcome.verdict != "fail" for outcome in self.outcomes)


def run_check(name: Name, out: Path, config: RunConfig | None = None) -> CheckResult:
    """Run a check.

    One of our own errors is a failed line; any other error is a bug of the check and ends the command.
    """
    start = time.monotonic()
    try:
        outcomes = CHECKS[name](out, config)
    except RestrainError as error:
        outcomes = [failed(name, str(error))]
    return CheckResult(name, tuple(outcomes), time.monotonic() - start)


# Without this refusal, checks that pass on a CPU could be mistaken for those of a GPU.
NO_GPU = (
    "no GPU was found on this machine, so that nothing about a GPU can be checked. Run gpu-check on the machine that "
    "will train (`restrain doctor` says what is missing there), or give --allow-cpu to try the CPU stack."
)


def gpu_check(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG",
            parser=find_config,
            help="The run that you plan: a YAML file, or a preset's name. The memory of its training step is measured.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, to_folder("Output folder; it must be new or empty.", show_default="runs/gpu-check/TIME")
    ] = None,
    only: Annotated[
        list[Name] | None, typer.Option(metavar="NAME", help="Run only this check, such as gradient. Repeatable.")
    ] = None,
    overrides: Overrides = None,
    allow_cpu: Annotated[
        bool, typer.Option("--allow-cpu", help="If there is no GPU, try the CPU stack instead of refusing.")
    ] = False,
) -> None:
    """Try on this machine what a long run relies on. Exits with status 1 if a check fails."""
    from restrain_openrlhf.machine.devices import detect, visible_gpus  # noqa: PLC0415

    console = Console(stderr=True)
    if not visible_gpus():
        if not allow_cpu:
            raise ConfigError(NO_GPU)
        console.print("No GPU was found: the results are about the CPU stack, and say nothing about a GPU.")
    run = _startable(config, overrides or [])
    folder, results = _new_folder(out), []
    for name in (name for name in CHECKS if name in (only or CHECKS)):
        with console.status(name):
            results.append(run_check(name, folder, run))
        console.print(f"{name}: {'ok' if results[-1].ok else 'failed'} ({results[-1].seconds:.0f} s)", soft_wrap=True)
        path = _write_json(results, folder, detect().name)
    Console().print(_table(results))
    console.print(f"numbers and logs: {path}", soft_wrap=True)
    if not all(result.ok for result in results):
        raise typer.Exit(1)


def _startable(path: Path | None, overrides: list[str]) -> RunConfig | None:
    """The configuration, checked to be startable here except for its reference file. Raises a RestrainError."""
    from restrain_openrlhf.hook.launch.preflight import RunInputs  # noqa: PLC0415

    if path is None:
        if overrides:
            raise ConfigError(
                "--set changes a configuration, and no configuration is given. Name one, or leave out --set."
            )
        return None
    config = load_run_config(path, parse_overrides(overrides))
    RunInputs.of(config, HostRun.startable(config).flags).load()
    return config


def _new_folder(out: Path | None) -> Path:
    """A new or empty folder, so that no earlier results can be mistaken for new ones. Raises ConfigError."""
    folder = (out or Path("runs", "gpu-check", f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}")).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} exists and is not an empty folder. Name a new one with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _table(results: Sequence[CheckResult]) -> Table:
    """A table with a row for each outcome. The first row of a check has its time."""
    made = Table("check", "", Column("found", overflow="fold"), "seconds")
    for result in results:
        for number, outcome in enumerate(result.outcomes):
            verdict = f"[{COLOURS[outcome.verdict]}]{outcome.verdict}[/]"
            seconds = "" if number else f"{result.seconds:.0f}"
            made.add_row(escape(outcome.name), verdict, escape(outcome.found), seconds)
    return made


def _write_json(results: Sequence[CheckResult], folder: Path, device: str) -> Path:
    """Write all results. This is done after every check, so that an interrupted command leaves its results."""
    path = folder / "gpu-check.json"
    document = {"device": device, "ok": all(result.ok for result in results), "checks": [asdict(r) for r in results]}
    write_whole(path, json.dumps(document, indent=2) + "\n")
    return path
