"""What training a pretrained model takes on the CPU stack, by steps and by processes: SmolLM2-135M-Instruct.

    python benchmarks/real_model.py                      20 steps of 8 x 16 rollouts: the parts of a step, and memory
    python benchmarks/real_model.py --package DIRECTORY  the same by another checkout before it, in the same run
    python benchmarks/real_model.py --package . --set KEY=VALUE  without a setting, then with it
    python benchmarks/real_model.py --stock              the same model, prompts and flags by OpenRLHF without the hook

Seconds are the host's own, and medians over all steps but the first; RESTRAIN's are also divided by the other run's.
The bytes of a weight sync are what the policy's process wrote in a step, to connections and files, by the kernel's
count. Memory is looked at every two seconds, as RSS and as PSS, which counts shared pages once: the most in the third
step, the most from then on, and the most in the last step; and the least PSS in the third step and in the last, which
is what a process keeps when the step's tensors are gone.
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
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise, product
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
# The line also shows an object of the hook, which is no Python literal (hook/policy/experience.py).
SENT = re.compile(r"StepGap\(.*?\)\)")
# Stock GRPO is rewarded for gold in the response. The host asks for each rollout by itself (openrlhf/utils/agent.py).
REWARD = """
def reward_func(queries, prompts, labels):
    (query,), (label,) = queries, labels
    return {"rewards": float(label in query), "scores": float(label in query)}
"""
OURS = "RESTRAIN"
TOKENS = "response_length"
GIBIBYTE = 2**30
# The first steps allocate what the later ones use again.
SETTLED = 2
# A process grows if the least that it has in the last step is above that of the third by more than this share.
FLAT = 0.02


@dataclass(frozen=True)
class Bytes:
    """A process in one step: its largest RSS, its largest and smallest PSS, and the bytes written at the first look.

    Later looks may be in the middle of the step's weight sync.
    """

    rss: int
    pss: int
    least: int
    written: int

    def then(self, later: "Bytes") -> "Bytes":
        """With a later look in the same step."""
        most = max(self.rss, later.rss), max(self.pss, later.pss)
        return Bytes(*most, min(self.least, later.least), self.written)


@dataclass
class Watched:
    """One run: what the host says of each step, and each process's bytes by the number of steps finished so far."""

    steps: list[Mapping[str, float]] = field(default_factory=list)
    processes: dict[str, dict[int, Bytes]] = field(default_factory=lambda: defaultdict(dict))

    def median(self, name: str) -> float:
        """Of one of the host's numbers, without the first step."""
        return statistics.median(step[name] for step in self.steps[1:])

    def settled(self, process: str) -> list[Bytes]:
        """By step, from the third to the last; none of a process that this run does not have."""
        return [each for step, each in self.processes[process].items() if SETTLED <= step < len(self.steps)]

    @property
    def of_a_sync(self) -> float:
        """The bytes that the policy's process wrote in a step with its weight sync, in the median."""
        written = [each.written for each in self.settled("PolicyModelActor")]
        return statistics.median(after - before for before, after in pairwise(written))


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
    from restrain_openrlhf.hook.train_ppo_ray import HOST_ENVIRONMENT, THREADS

    device = detect()
    device.install()
    gpus = GpuLayout.of(vars(parse(words))).needed
    # Those of a run with the hook (start_ray): the host's own, and a user's number of threads.
    environment = {**HOST_ENVIRONMENT, **device.environment, THREADS: os.environ[THREADS]}
    setup = {"env_vars": environment, "worker_process_setup_hook": "restrain_openrlhf.machine.cpu.install"}
    ray.init("local", runtime_env=setup, num_gpus=gpus, num_cpus=gpus + 4, include_dashboard=False)
    sys.argv = [ENTRY_POINT, *words]
    runpy.run_module(ENTRY_POINT, run_name="__main__", alter_sys=True)


def watch(words: Sequence[str], package: Path, log: Path, output: Path) -> Watched:
    """Run a command with this package first, and look at its processes until it ends. `log` has the host's lines."""
    found, environment = Watched(), {**os.environ, "PYTHONPATH": str(package)}
    with output.open("w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=package)
        while process.poll() is None:
            look(psutil.Process(process.pid), len(steps_in(log)), found.processes)
            time.sleep(2)
    if process.returncode:
        raise SystemExit(f"The run failed:\n{output.read_text(errors='replace')[-3000:]}")
    found.steps = steps_in(log)
    return found


def look(parent: psutil.Process, steps: int, processes: dict[str, dict[int, Bytes]]) -> None:
    """Note the bytes of each of Ray's processes in this step."""
    for each in parent.children(recursive=True):
        with suppress(psutil.Error):
            title, memory = " ".join(each.cmdline()), each.memory_full_info()
            now = Bytes(memory.rss, memory.pss, memory.pss, each.io_counters().write_chars)
            for name in PROCESSES:
                if name in title:
                    seen = processes[name].get(steps)
                    processes[name][steps] = now if seen is None else seen.then(now)


def steps_in(log: Path) -> list[Mapping[str, float]]:
    """What the host has logged of each finished step."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return [ast.literal_eval(SENT.sub("None", match[2])) for match in STEP.finditer(text)]


def seconds_of(runs: Mapping[str, Watched]) -> Table:
    """The parts of a step, and what its weight sync sends beside the model's size."""
    size = (smollm2_folder() / "model.safetensors").stat().st_size
    table = Table("run", *(f"{phase}, s" for phase in PHASES), "tokens a response", "a sync's bytes / the model's")
    for name, run in runs.items():
        parts = [f"{run.median(f'timing/{phase}'):.2f}" for phase in PHASES]
        table.add_row(name, *parts, f"{run.median(TOKENS):.1f}", f"{run.of_a_sync / size:.3f}")
    for other in runs.keys() - {OURS}:
        if OURS in runs:
            names = (*(f"timing/{phase}" for phase in PHASES), TOKENS)
            ratios = [runs[OURS].median(name) / runs[other].median(name) for name in names]
            table.add_row(f"{OURS} / {other}", *(f"{ratio:.3f}" for ratio in ratios))
    return table


def memory_of(runs: Mapping[str, Watched]) -> Table:
    """Each process's memory, and whether what it keeps grew."""
    table = Table("run", "process", "RSS, GiB: third, most, last", "PSS, GiB", "least PSS, GiB: third, last", "grew by")
    for run, process in product(runs, PROCESSES):
        if not (steps := runs[run].settled(process)):
            continue
        kept = steps[0].least, steps[-1].least
        growth = kept[1] / kept[0] - 1
        sizes = [
            " ".join(f"{size / GIBIBYTE:.3f}" for size in (each[0], max(each), each[-1]))
            for each in ([step.rss for step in steps], [step.pss for step in steps])
        ]
        least = " ".join(f"{size / GIBIBYTE:.3f}" for size in kept)
        table.add_row(run, process, *sizes, least, f"{growth:+.1%}, {'grew' if growth > FLAT else 'flat'}")
    return table


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="at least four, so that two are after the first two")
    parser.add_argument("--package", type=Path, help="another checkout, which runs first")
    parser.add_argument("--stock", action="store_true", help="OpenRLHF without the hook as well")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE, for this checkout's RESTRAIN alone")
    options = parser.parse_args()
    make_smollm2()
    # Without it, each of the two runs would have its own number of threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    with tempfile.TemporaryDirectory() as made:
        runs: dict[str, Watched] = {}
        for name, command, package in (
            ("other checkout", restrain, options.package),
            (OURS, restrain, ROOT),
            ("stock OpenRLHF", stock, ROOT if options.stock else None),
        ):
            if package is None:
                continue
            folder = Path(made) / name.replace(" ", "-")
            folder.mkdir()
            write_gold(folder / "prompts.jsonl", CAPITALS.training_set(options.steps * 8))
            output = folder / "output"
            log = output if command is stock else folder / "run" / "train.log"
            words = [word for item in options.set for word in ("--set", item)] if name == OURS else []
            runs[name] = watch(command(folder, options.steps) + words, package.resolve(), log, output)
            # Now, because a later run may fail.
            Console(width=200).print(seconds_of(runs), memory_of(runs))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--host"]:
        run_host(sys.argv[2:])
    else:
        main()
