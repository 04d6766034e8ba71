"""What the CPU stand-ins save of every start: a sampling pass and a training run, as they are and with vLLM's defaults.

Whole commands in processes of their own, in turn, by the clock. Training is two steps of the demo's model: what is
measured is Ray, vLLM and DeepSpeed starting and ending. Nothing here applies to GPUs.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track

from restrain_openrlhf.demo.addition import training_problems
from restrain_openrlhf.demo.problems import write_gold
from restrain_openrlhf.demo.tasks import ADDITION

REPEATS = 3
# What vLLM and torch would do where nobody says otherwise.
DEFAULTS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "TORCH_COMPILE_DISABLE": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
RESTRAIN = (sys.executable, "-m", "restrain_openrlhf.cli.main")
SMALL = (
    "method={name: ttrl}",
    "reference=",
    "openrlhf.data.max_samples=16",
    "openrlhf.rollout.batch_size=8",
    "openrlhf.rollout.n_samples_per_prompt=8",
    "openrlhf.train.batch_size=64",
)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        write_gold(prompts, training_problems(16))
        commands = {"sampling pass": sampling(prompts), "training, two steps": training(prompts)}
        for name, command in commands.items():
            report(name, command, Path(folder) / "out")


def sampling(prompts: Path) -> list[str]:
    """`restrain eval` of 16 problems, four responses each."""
    words = ("eval", "--model", ADDITION.model, "--benchmarks", f"task={prompts}", "--template", "plain")
    return [*RESTRAIN, *map(str, words), "--max-new-tokens", "14", "--n", "4", "--out"]


def training(prompts: Path) -> list[str]:
    """Two steps of `restrain train`; the folder completes the last word."""
    items = (*SMALL, f"openrlhf.actor.model_name_or_path={ADDITION.model}", f"openrlhf.data.prompt_dataset={prompts}")
    sets = [word for item in items for word in ("--set", item)]
    return [*RESTRAIN, "train", str(ADDITION.config), *sets, "--set"]


def report(name: str, command: list[str], out: Path) -> None:
    """Ratios of each pair, after one run that builds what is built once."""
    seconds(command, out, {})
    ratios = []
    for _ in track(range(REPEATS), name):
        defaults = seconds(command, out, DEFAULTS)
        ratios.append(seconds(command, out, {}) / defaults)
    low, high = min(ratios), max(ratios)
    Console().print(f"{name}: {statistics.median(ratios):.2f} of the time with the defaults ({low:.2f} to {high:.2f})")


def seconds(command: list[str], out: Path, environment: dict[str, str]) -> float:
    """One run from nothing."""
    shutil.rmtree(out, ignore_errors=True)
    last = f"run_dir={out}" if command[-1] == "--set" else str(out)
    start = time.perf_counter()
    subprocess.run([*command, last], env={**os.environ, **environment}, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
