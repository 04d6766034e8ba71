"""`restrain demo`: label-free training of a small model on this machine, with a report."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import Overrides, to_folder
from restrain_openrlhf.config.command_line import find_config, parse_overrides


def demo(
    task: Annotated[
        str, typer.Option(help="premise: small majorities are often wrong; addition: most majorities are right.")
    ] = "premise",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="restrain, ttrl, srt_offline, srt_easy, or grpo_gold (trains on gold answers); may be repeated.",
            show_default="restrain and ttrl; with addition, restrain",
        ),
    ] = None,
    out: Annotated[Path, to_folder("Output folder.")] = Path("runs/demo"),
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Training steps, of 32 prompts x 16 rollouts.", show_default="40; with addition, 20"),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Train on these prompts (JSONL with `problem`) instead of the demo task.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            parser=find_config,
            help="A YAML file, or a preset's name.",
            show_default="cpu/demo; with addition, cpu/demo_addition",
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Train a small model without labels on the full stack, and report held-out accuracy. Needs no GPU."""
    from restrain_openrlhf.cli.train import step_progress  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.demo.real_prompts import train_on_real_prompts  # noqa: PLC0415
    from restrain_openrlhf.demo.report import sentence, train_folder  # noqa: PLC0415
    from restrain_openrlhf.demo.run import Demo, Listener, run_demo  # noqa: PLC0415
    from restrain_openrlhf.demo.tasks import task_named  # noqa: PLC0415

    console = Console(stderr=True)
    chosen = Demo(
        out.absolute(),
        task_named(task),
        tuple(dict.fromkeys(method)) if method else None,
        steps,
        chosen_config=config,
        overrides=tuple(parse_overrides(overrides or []).items()),
    )
    with step_progress(task, console) as (on_phase, on_step):
        listener = Listener(phase=on_phase, step=on_step)
        if prompts is not None:
            runs = train_on_real_prompts(chosen, prompts, listener)
        else:
            outcome = run_demo(chosen, listener)
    if prompts is not None:
        for run in runs.values():
            console.print(f"trained {chosen.steps} steps on {prompts}\nmetrics: {run.metrics}", soft_wrap=True)
        return
    for result in outcome.results:
        console.print(sentence(result, train_folder(chosen.out, result.method)), style="bold", soft_wrap=True)
    console.print(f"report: {outcome.report}", soft_wrap=True)
