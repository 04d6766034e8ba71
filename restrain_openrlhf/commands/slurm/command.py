"""`restrain slurm render`: the Slurm job of one configuration."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_folder

node_option = partial(typer.Option, rich_help_panel="The nodes")
runtime_option = partial(typer.Option, rich_help_panel="Where commands run")

slurm = typer.Typer(help="Write Slurm jobs.", no_args_is_help=True)


@slurm.callback()
def _commands() -> None:
    """With one command and no callback, typer would drop the word `render`."""


@slurm.command()
def render(
    config: ConfigFile,
    gpus_per_node: Annotated[int, node_option(min=1, help="GPUs of a node.")],
    out: Annotated[Path, to_folder("New folder for the job, which all nodes see.", metavar="DIR")],
    overrides: Overrides = None,
    time: Annotated[str, typer.Option(help="The longest time of one start, as Slurm has it.")] = "24:00:00",
    warning: Annotated[
        int, typer.Option(min=60, metavar="SECONDS", help="So long before its end the job stops and is queued again.")
    ] = 300,
    cpus_per_node: Annotated[
        int | None, node_option(min=1, help="CPUs of a node.", show_default="8 for each GPU")
    ] = None,
    mem: Annotated[str, node_option(help="Memory of a node; 0 is all of it.")] = "0",
    gpu_type: Annotated[str | None, node_option(help="Slurm's name of the GPU, such as h100.")] = None,
    gpu_memory: Annotated[
        int | None, node_option(min=1, metavar="GIB", help="Memory of a GPU: a CONFIG that cannot fit is refused.")
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Another option of sbatch, such as partition=gpu. Repeatable."),
    ] = None,
    venv: Annotated[Path | None, runtime_option(help="Virtual environment that is activated.")] = None,
    apptainer: Annotated[str | None, runtime_option(metavar="IMAGE", help="Run in this image by apptainer.")] = None,
    pyxis: Annotated[
        str | None, runtime_option(metavar="IMAGE", help="Run in this image by Slurm's plugin pyxis.")
    ] = None,
    bind: Annotated[
        list[str] | None, runtime_option(metavar="FROM:TO", help="Folder that the container sees. Repeatable.")
    ] = None,
    setup: Annotated[
        Path | None, runtime_option(metavar="FILE", help="Shell file that is read first: modules, variables, secrets.")
    ] = None,
) -> None:
    """Write the Slurm job that trains CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs no Slurm."""
    from restrain_openrlhf.commands.slurm.job import Allocation, Runtime, load_job  # noqa: PLC0415
    from restrain_openrlhf.commands.slurm.job import render as write  # noqa: PLC0415
    from restrain_openrlhf.config.command_line import parse_overrides  # noqa: PLC0415 - keeps `--help` quick

    allocation = Allocation(
        gpus_per_node=gpus_per_node,
        time=time,
        cpus_per_node=cpus_per_node,
        memory=mem,
        gpu_type=gpu_type,
        gpu_memory=gpu_memory,
        warning=warning,
        sbatch=tuple(sbatch or ()),
    )
    runtime = Runtime(venv and venv.absolute(), apptainer, pyxis, tuple(bind or ()), setup and setup.absolute())
    job = load_job(config, parse_overrides(overrides or []), allocation, runtime)
    script = write(job, out)
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    console.print(f"{job.layout.nodes} nodes of {job.layout.gpus} GPUs. Submit it with:")
    typer.echo(f"sbatch {script}")
