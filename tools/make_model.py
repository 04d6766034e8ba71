"""Makes a demo task's base model: a small Qwen3, taught on examples with errors, and measured before it is accepted.

`python -m tools.make_model --task premise --out DIR` makes the model that the demo trains; it takes
minutes on one core. `--task careless` makes the addition model whose wrong answers agree with each other, `--task
calculator` one that can also ask the calculator of `examples/calculator_agent.py`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from restrain_openrlhf.commands.main import run_app
from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.premise import PREMISE
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, TASKS
from tools.calibration import BOUNDS, Calibration, calibrate, refuse_outside
from tools.teaching import RECIPES, teach, untaught
from tools.tokenizer import make_tokenizer

CALIBRATED_ON = 640


def main(
    out: Annotated[Path, to_folder("Output folder; it must be new or empty.")],
    task: Annotated[str, typer.Option(help=f"Which model to make: {', '.join(RECIPES)}.")] = "premise",
) -> None:
    """Make the model, measure it, and write it as a Hugging Face folder in bf16."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise typer.BadParameter(f"{out} exists and is not an empty folder. Name a new one.", param_hint="--out")
    if task not in RECIPES:
        raise typer.BadParameter(f"{task!r} is none of {', '.join(RECIPES)}.", param_hint="--task")
    found = write_model(out, task)
    for name, value in asdict(found).items():
        Console().print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")


def write_model(out: Path, name: str) -> Calibration:
    """Make a model and write it; the folder appears only when it is complete. Raises DataError outside its bounds."""
    # The order of sums depends on the number of threads, and the weights on the order of sums.
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    model = teach(untaught(name), tokenizer, RECIPES[name]).to(torch.bfloat16)
    task = PREMISE if name == "calculator" else TASKS.get(name, ADDITION)
    config = load_run_config(find_config(task.preset))
    length, problems = int(config.openrlhf["rollout.max_new_tokens"]), task.training_problems(CALIBRATED_ON)
    found = calibrate(model.float(), tokenizer, problems, kind=config.answers, most_tokens=length)
    refuse_outside(found, BOUNDS[name])
    partial = out.with_name(out.name + ".partial")
    model.to(torch.bfloat16).save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    if out.exists():
        out.rmdir()
    partial.replace(out)
    return found


def run() -> None:
    """The command, with its errors as `restrain` prints them."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app)


if __name__ == "__main__":
    run()
