"""What training a pretrained model takes on the CPU stack, by steps and by processes: SmolLM2-135M-Instruct.

    python benchmarks/real_model.py                      20 steps of 8 x 16 rollouts: the parts of a step, and memory
    python benchmarks/real_model.py --package DIRECTORY  the same by another checkout before it, in the same run
    python benchmarks/real_model.py --stock              the same model, prompts and flags by OpenRLHF without the hook

Seconds are the host's own; medians over all steps but the first are printed. Memory is the resident size of each of
Ray's processes, looked at once a second: the most in the third step, and in the last but one. What a sync sends is
measured by benchmarks/weight_sync.py.
"""

import argparse
import ast
import os
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.config.host_flags import to_arguments
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.problems import write_gold
from restrain_openrlhf.data.demo_tasks.smollm2 import make_smollm2, smollm2_folder
from restrain_openrlhf.data.demo_tasks.tasks import CAPITALS
from restrain_openrlhf.machine.devices import detect

ROOT = Path(__file__).parent.parent
PRESET = ROOT / "configs" / "cpu" / "demo_capitals.yaml"
PHASES = ("generation", "make_experience", "ppo_train", "broadcast", "step_total")
PROCESSES = ("PolicyModelActor", "ReferenceModelActor", "RolloutRayActor", "EngineCore", "PPOTrainer")
# The host's line of a finished step (openrlhf/trainer/ppo_trainer.py).
STEP = re.compile(r"Global step (\d+): (\{.*\})")
# Stock GRPO is rewarded for gold in the response.
REWARD = """import torch

def reward_func(queries, prompts, labels):
    return torch.tensor([float(label in query) for query, label in zip(queries, labels)])
"""
GIBIBYTE = 2**30


@dataclass
class Watched:
    """One run: the seconds of each phase by step, and each process's bytes of memory by the steps finished so far."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))


def overrides(folder: Path, steps: int) -> dict[str, object]:
    """What a run in `folder` sets on top of the preset."""
    return {
        "run_dir": str(folder / "run"),
        "reference": None,
        "method.prompt_weight": "online",
        "steps": steps,
        "openrlhf.actor.model_name_or_path": str(smollm2_folder()),
        "openrlhf.data.prompt_dataset": str(folder / "prompts.jsonl"),
        "openrlhf.ckpt.save_steps": 1000,
    }


def restrain(folder: Path, steps: int) -> list[str]:
    """The command of RESTRAIN."""
    items = {**overrides(folder, steps), "reference": ""}
    words = [word for name, value in items.items() for word in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "restrain_openrlhf.commands.main", "train", str(PRESET), *words]


def stock(folder: Path, steps: int) -> list[str]:
    """The command of OpenRLHF without the hook, with the same flags, a reward and the column with answers."""
    (folder / "reward.py").write_text(REWARD)
    run = HostRun.of(load_run_config(PRESET, overrides(folder, steps)))
    flags = {**detect().host_flags, **run.stated}
    changed = {
        "reward.remote_url": str(folder / "reward.py"),
        "data.label_key": "answer",
        "train.num_episodes": 1,
        "data.max_samples": steps * flags["rollout.batch_size"],
        "train.agent_func_path": None,
    }
    return [sys.executable, __file__, "--host", *to_arguments({**flags, **changed})]


def run_host(words: Sequence[str]) -> None:
    """OpenRLHF's own program on this stack: each process gets what it takes from CUDA, and nothing else of ours."""
    import ray

    from restrain_openrlhf.config.gpu_layout import GpuLayout
    from restrain_openrlhf.config.host_flags import ENTRY_POINT, parse

    device = detect()
    device.install()
    gpus = GpuLayout.of(vars(parse(words))).needed
    setup = {"env_vars": device.environment, "worker_process_setup_hook": "restrain_openrlhf.machine.cpu.install"}
    ray.init("local", runtime_env=setup, num_gpus=gpus, num_cpus=gpus + 4, include_dashboard=False)
    sys.argv = [ENTRY_POINT, *words]
    runpy.run_module(ENTRY_POINT, run_name="__main__", alter_sys=True)


def watch(words: Sequence[str], package: Path, log: Path, output: Path) -> Watched:
    """Run a command with this package first, and look at its processes until it ends. `log` has the host's lines."""
    found, environment = Watched(), {**os.environ, "PYTHONPATH": str(package)}
    with output.open("w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=package)
        while process.poll() is None:
            look(psutil.Process(process.pid), len(steps_in(log)), found.memory)
            time.sleep(1)
    if process.returncode:
        raise SystemExit(f"The run failed:\n{output.read_text(errors='replace')[-3000:]}")
    for status in steps_in(log):
        for phase in PHASES:
            found.seconds[phase].append(status[f"timing/{phase}"])
    return found


def look(parent: psutil.Process, steps: int, memory: dict[str, dict[int, int]]) -> None:
    """Note the most memory of each of Ray's processes in this step."""
    for each in parent.children(recursive=True):
        try:
            title, size = " ".join(each.cmdline()), each.memory_info().rss
        except psutil.Error:
            continue
        for name in PROCESSES:
            if name in title:
                memory[name][steps] = max(size, memory[name].get(steps, 0))


def steps_in(log: Path) -> list[Mapping[str, float]]:
    """What the host has logged of each finished step."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return [ast.literal_eval(match[2]) for match in STEP.finditer(text)]


def table_of(runs: Mapping[str, Watched]) -> Table:
    """Medians without the first step, and the memory of the second step and of the last."""
    table = Table("run", *(f"{phase}, s" for phase in PHASES), *(f"{name}, GiB" for name in PROCESSES))
    for name, run in runs.items():
        seconds = [f"{statistics.median(run.seconds[phase][1:]):.1f}" for phase in PHASES]
        by_step = [list(run.memory[process].values()) for process in PROCESSES]
        sizes = [
            f"{sizes[2] / GIBIBYTE:.2f} to {sizes[-2] / GIBIBYTE:.2f}" if len(sizes) > 3 else "" for sizes in by_step
        ]
        table.add_row(name, *seconds, *sizes)
    return table


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--package", type=Path, help="another checkout, which runs first")
    parser.add_argument("--stock", action="store_true", help="OpenRLHF without the hook as well")
    options = parser.parse_args()
    make_smollm2()
    with tempfile.TemporaryDirectory() as made:
        runs: dict[str, Watched] = {}
        for name, command, package in (
            ("other checkout", restrain, options.package),
            ("RESTRAIN", restrain, ROOT),
            ("stock OpenRLHF", stock, ROOT if options.stock else None),
        ):
            if package is None:
                continue
            folder = Path(made) / name.replace(" ", "-")
            folder.mkdir()
            write_gold(folder / "prompts.jsonl", CAPITALS.training_set(options.steps * 8))
            output = folder / "output"
            log = output if command is stock else folder / "run" / "train.log"
            runs[name] = watch(command(folder, options.steps), package.resolve(), log, output)
            # Now, because a later run may fail.
            Console(width=200).print(table_of(runs))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--host"]:
        run_host(sys.argv[2:])
    else:
        main()
