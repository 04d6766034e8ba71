"""Runs of the real stack: Ray, vLLM and DeepSpeed, small enough for two cores; some are made once and read by many."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, heldout_problems, training_problems
from tests.conftest import ROOT

SMALL = {
    "rollout.batch_size": 8,
    "rollout.n_samples_per_prompt": 8,
    "rollout.micro_batch_size": 32,
    "train.batch_size": 64,
    "train.micro_batch_size": 32,
    "ckpt.save_steps": 2,
}
OF_THE_MACHINE = re.compile(r"timing/.*|restrain/(.*_per_second|peak_gpu_memory_bytes)")


def layout(**changed: object) -> dict[str, object]:
    """One GPU, or logical one, for each model; all on the same one where this machine has one or two."""
    from restrain_openrlhf.config.host_flags import parse, to_arguments
    from restrain_openrlhf.config.this_machine import flags_to_share
    from restrain_openrlhf.machine.devices import visible_gpus

    flags = {
        "actor.num_gpus_per_node": 1,
        "ref.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "vllm.gpu_memory_utilization": 0.2,
        "ds.zero_stage": 0,
        **changed,
    }
    return {**flags, **flags_to_share(vars(parse(to_arguments(flags))), len(visible_gpus()))}


def skip_without(gpus: int) -> None:
    """Skips where there are GPUs, and fewer than these; a stack without any has logical ones."""
    from restrain_openrlhf.machine.devices import visible_gpus

    if 0 < len(visible_gpus()) < gpus:
        pytest.skip(f"needs {gpus} GPUs, or the CPU stack")


@dataclass(frozen=True)
class Job:
    """A training job over a folder of its own."""

    folder: Path
    prompts: Path

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def sets(self, *extra: str) -> list[str]:
        items = [
            f"run_dir={self.run_dir}",
            "method.prompt_weight=online",
            "method.kappa=2",
            f"openrlhf.actor.model_name_or_path={ADDITION.model}",
            f"openrlhf.data.prompt_dataset={self.prompts}",
            *(f"openrlhf.{name}={value}" for name, value in SMALL.items()),
            *extra,
        ]
        return [word for item in items for word in ("--set", item)]

    def command(self, *extra: str) -> list[str]:
        return restrain("train", ROOT / "configs" / "cpu" / "demo_addition.yaml", *self.sets("reference=", *extra))

    def train(self, *extra: str) -> subprocess.CompletedProcess[str]:
        return run(self.command(*extra))

    def rows(self) -> list[dict]:
        path = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def measured(self) -> list[dict]:
        """The rows without times and use of the machine, which no run has twice."""
        return [
            {name: value for name, value in row.items() if not OF_THE_MACHINE.fullmatch(name)} for row in self.rows()
        ]

    def log(self) -> str:
        return (self.run_dir / "train.log").read_text(errors="replace")


def restrain(*words: object) -> list[str]:
    """The command line in an interpreter of its own."""
    return [sys.executable, "-m", "restrain_openrlhf.commands.main", *map(str, words)]


def with_this_checkout() -> dict[str, str]:
    """The environment of a process that imports this checkout: last, as another OpenRLHF release may come before it."""
    before = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*before, str(ROOT)])}


def run(words: list[str], **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, **kwargs)


def kill_when(words: Sequence[str], happened: Callable[[], bool], log: Callable[[], str]) -> None:
    """Start a command, and SIGKILL it with everything it started as soon as `happened` says so."""
    parent = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes: set[psutil.Process] = {psutil.Process(parent.pid)}
    while not happened():
        assert parent.poll() is None, "it ended before it could be killed: " + log()[-3000:]
        processes |= set(psutil.Process(parent.pid).children(recursive=True))
        time.sleep(0.05)
    # Those that are known first, the parent last: its children are found by it.
    kill(processes - {psutil.Process(parent.pid)})
    kill({*psutil.Process(parent.pid).children(recursive=True), psutil.Process(parent.pid)})
    parent.wait()
    psutil.wait_procs(list(processes), timeout=30)


def kill(processes: set[psutil.Process]) -> None:
    """SIGKILL to those that are still there: of a run's processes some end as others are killed."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def kill_after_step(job: Job, step: int, *extra: str) -> None:
    """Start the job and kill it as soon as `step` is in its metrics."""
    kill_when(job.command(*extra), lambda: any(row["step"] >= step for row in job.rows()), job.log)


def optimizer_steps(job: Job) -> int:
    """Steps the optimizer took, by the run's last checkpoint."""
    import torch

    folder = job.run_dir / "checkpoints" / "_actor"
    tag = (folder / "latest").read_text().strip()
    return torch.load(folder / tag / "mp_rank_00_model_states.pt", weights_only=False)["global_steps"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Six steps of eight prompts; the file has a column with answers, which label-free methods must not use."""
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    prompts = tmp_path / "prompts.jsonl"
    write_gold(prompts, training_problems(48))
    return Job(tmp_path, prompts)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """48 prompts without answers, and `ref.jsonl`: the frozen model's vote of eight on each."""
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    folder = tmp_path_factory.mktemp("reference")
    made = Job(folder, folder / "prompts.jsonl")
    write_prompts(made.prompts, training_problems(48))
    lengths = ("--n", "8", "--max-new-tokens", "14", "--max-len", "32")
    done = run(
        restrain(
            "reference", "--model", ADDITION.model, "--prompts", made.prompts, "--out", folder / "ref.jsonl", *lengths
        )
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return made


# RESTRAIN as the paper has it, three steps of eight prompts: two episodes of two steps, a checkpoint at the end of the
# first, ended in the middle of the second; evaluated on held-out problems with gold, the base model first.
SEEDED = (
    "method.prompt_weight=offline",
    "seeded_rollouts=true",
    "steps=3",
    "rollouts.keep=3",
    "evaluate_first=true",
    "openrlhf.data.max_samples=16",
    "openrlhf.data.label_key=answer",
    "openrlhf.train.num_episodes=2",
    "openrlhf.ckpt.save_steps=2",
    "openrlhf.ckpt.best_metric_key=none",
    "openrlhf.train.batch_size=32",
    "openrlhf.actor.lr_scheduler=linear",
    "openrlhf.eval.steps=2",
    "openrlhf.eval.n_samples_per_prompt=4",
)


@dataclass(frozen=True)
class Trained(Job):
    """A run to its end; `given` is what it was started with."""

    given: tuple[str, ...] = ()


@pytest.fixture(scope="session")
def trained(reference: Job, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """RESTRAIN with its reference through the whole stack; many tests read its folder, none changes it."""
    folder = tmp_path_factory.mktemp("trained")
    write_gold(folder / "heldout.jsonl", heldout_problems(16))
    sets = (
        *SEEDED,
        f"reference={reference.folder / 'ref.jsonl'}",
        f"openrlhf.eval.dataset={folder / 'heldout.jsonl'}",
    )
    job = Trained(folder / "whole", reference.prompts, sets)
    done = job.train(*sets)
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    return job


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of its own of this size; skips where mounting is not allowed."""
    folder.mkdir()
    mounted = os.geteuid() == 0 and run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)])
    if not mounted or mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system: run as root, outside an unprivileged container")
    try:
        yield folder
    finally:
        run(["umount", str(folder)])
