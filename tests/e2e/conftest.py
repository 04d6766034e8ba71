"""Runs of the real stack: Ray, vLLM and DeepSpeed, small enough for two cores."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.demo.task import training_problems, write_gold
from tests.conftest import ROOT

# A whole run of the tests stays within an hour and a half on two cores.
ALL_TESTS = os.environ.get("RESTRAIN_ALL_TESTS") == "1"
on_request = pytest.mark.skipif(not ALL_TESTS, reason="long, and its parts have tests: RESTRAIN_ALL_TESTS=1 runs it")

SMALL = {
    "rollout.batch_size": 8,
    "rollout.n_samples_per_prompt": 8,
    "rollout.micro_batch_size": 32,
    "train.batch_size": 64,
    "train.micro_batch_size": 32,
    "ckpt.save_steps": 2,
}


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
            f"openrlhf.actor.model_name_or_path={MODEL}",
            f"openrlhf.data.prompt_dataset={self.prompts}",
            *(f"openrlhf.{name}={value}" for name, value in SMALL.items()),
            *extra,
        ]
        return [word for item in items for word in ("--set", item)]

    def command(self, *extra: str) -> list[str]:
        config = str(ROOT / "configs" / "cpu" / "demo.yaml")
        return [sys.executable, "-m", "restrain_openrlhf.cli.main", "train", config, *self.sets("reference=", *extra)]

    def train(self, *extra: str) -> subprocess.CompletedProcess[str]:
        return run(self.command(*extra))

    def rows(self) -> list[dict]:
        path = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def log(self) -> str:
        return (self.run_dir / "train.log").read_text(errors="replace")


def optimizer_steps(job: Job) -> int:
    """Steps the optimizer took, by the run's last checkpoint."""
    import torch

    folder = job.run_dir / "checkpoints" / "_actor"
    tag = (folder / "latest").read_text().strip()
    return torch.load(folder / tag / "mp_rank_00_model_states.pt", weights_only=False)["global_steps"]


def run(words: list[str], **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, **kwargs)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Six steps of eight prompts; the file has a column with answers, which label-free methods must not use."""
    pytest.importorskip("openrlhf", reason="needs the training stack")
    prompts = tmp_path / "prompts.jsonl"
    write_gold(prompts, training_problems(48))
    return Job(tmp_path, prompts)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of its own of this size; skips where mounting is not allowed."""
    folder.mkdir()
    mounted = os.geteuid() == 0 and run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)])
    if not mounted or mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        yield folder
    finally:
        run(["umount", str(folder)])
