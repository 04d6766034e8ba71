"""`restrain gpu-check`: tries for some minutes, one check after the other, what a run of many days relies on."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from os import environ
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from restrain_openrlhf.commands.gpu_check import CheckOutcome, Verdict, failed, judged, measured, skipped
from restrain_openrlhf.commands.gpu_check.gradient import check_gradient
from restrain_openrlhf.commands.gpu_check.memory import check_memory
from restrain_openrlhf.commands.gpu_check.small_run import check_training
from restrain_openrlhf.commands.options import Overrides, to_folder
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError, RestrainError

# Of the command's own folder, new or empty, and the configuration of the run that is to be started afterwards, if any.
Check = Callable[[Path, RunConfig | None], list[CheckOutcome]]
Name = Literal["gradient", "training", "memory", "nccl"]
ALL_REDUCE = "restrain_openrlhf.hook.launch.all_reduce"


def check_nccl(out: Path, config: RunConfig | None) -> list[CheckOutcome]:
    """Sum a tensor over all GPUs of the Ray cluster, or of this machine. Skipped where nothing is exchanged."""
    from restrain_openrlhf.machine.devices import visible_gpus  # noqa: PLC0415

    if not visible_gpus()[1:] and "RAY_ADDRESS" not in environ:
        return [skipped("sums by NCCL", "it needs more than one GPU")]
    (found,) = measured(ALL_REDUCE, [], out / "nccl.log")
    return [judge_sums(GpuLayout.of(HostRun.of(config).flags).needed if config else 1, **found)]


def judge_sums(needed: int, gpus: int, nodes: int, wrong: int, gb_per_second: float) -> CheckOutcome:
    """Failed if a GPU has a wrong sum, or there are fewer than CONFIG needs. The bandwidth is only reported."""
    right = f"{gpus - wrong} of {gpus} GPUs on {nodes} nodes have the right sum ({needed} GPUs are needed)"
    holds = not wrong and gpus >= needed
    return judged("sums by NCCL", holds, f"{right}; {gb_per_second:.1f} GB/s of bus bandwidth")


CHECKS: Mapping[Name, Check] = {
    "gradient": check_gradient,
    "training": check_training,
    "memory": check_memory,
    "nccl": check_nccl,
}
COLOURS: Mapping[Verdict, str] = {"pass": "green", "fail": "red", "skipped": "yellow"}
RESULTS = "gpu-check.jsonl"
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
    only: Annotated[Name | None, typer.Option(help="Run only this check.")] = None,
    overrides: Overrides = None,
    allow_cpu: Annotated[
        bool, typer.Option("--allow-cpu", help="If there is no GPU, try the CPU stack instead of refusing.")
    ] = False,
) -> None:
    """Try on this machine what a long run relies on. Exits with status 1 if a check fails."""
    from restrain_openrlhf.machine.devices import visible_gpus  # noqa: PLC0415

    console = Console(stderr=True)
    if not visible_gpus():
        if not allow_cpu:
            raise ConfigError(NO_GPU)
        console.print("No GPU was found: the results are about the CPU stack, and say nothing about a GPU.")
    run, folder, found = _startable(config, overrides or []), _new_folder(out), list[CheckOutcome]()
    for name in (name for name in CHECKS if only in (None, name)):
        with console.status(name):
            outcomes = run_check(name, folder, run)
        for outcome in outcomes:
            Console().print(f"{outcome.verdict}:", style=COLOURS[outcome.verdict], end=" ")
            typer.echo(f"{outcome.name}: {outcome.found}")
        found += outcomes
        # After every check, so that an interrupted command leaves its results.
        write_whole(folder / RESULTS, "".join(dump(asdict(each)) for each in found))
    console.print(f"results and logs: {folder}", soft_wrap=True)
    if any(outcome.verdict == "fail" for outcome in found):
        raise typer.Exit(1)


def run_check(name: Name, out: Path, config: RunConfig | None = None) -> list[CheckOutcome]:
    """What a check finds.

    One of our own errors is a failed line; any other error is a bug of the check and ends the command.
    """
    try:
        return CHECKS[name](out, config)
    except RestrainError as error:
        return [failed(name, str(error))]


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
