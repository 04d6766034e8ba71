"""`restrain demo`: label-free training of a small model on this machine, with a report."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import Overrides
from restrain_openrlhf.config.command_line import find_config, parse_overrides


def demo(
    method: Annotated[
        str, typer.Option(help="restrain, ttrl, srt_offline, srt_easy, or grpo_gold (trains on gold answers).")
    ] = "restrain",
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps, of 32 prompts x 16 rollouts.")] = 20,
    prompts: Annotated[
        Path | None, typer.Option(help="Train on these prompts (JSONL with `problem`) instead of the demo task.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", parser=find_config, help="A YAML file, or a preset's name.", show_default="cpu/demo"
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Train a small model without labels on the full stack, and report held-out accuracy. Needs no GPU."""
    from restrain_openrlhf.cli.train import step_progress  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.demo.real_prompts import train_on_real_prompts  # noqa: PLC0415
    from restrain_openrlhf.demo.report import summary  # noqa: PLC0415
    from restrain_openrlhf.demo.run import CONFIG, Demo, Listener, run_demo  # noqa: PLC0415

    console = Console(stderr=True)
    chosen = Demo(
        out.absolute(),
        method,
        steps,
        config=config or CONFIG,
        overrides=tuple(parse_overrides(overrides or []).items()),
    )
    with step_progress(f"{method}", console) as (on_phase, on_step):
        listener = Listener(phase=on_phase, step=on_step)
        if prompts is not None:
            run = train_on_real_prompts(chosen, prompts, listener)
        else:
            outcome = run_demo(chosen, listener)
    if prompts is not None:
        console.print(f"trained {steps} steps on {prompts}\nmetrics: {run.metrics}", soft_wrap=True)
        return
    console.print(summary(method, outcome.before, outcome.after), style="bold", soft_wrap=True)
    console.print(f"report: {outcome.report}\nmodel: {outcome.model}", soft_wrap=True)
