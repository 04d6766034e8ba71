"""A sampling pass on many GPUs: a process per engine, joined, resumed and ended together. The GPUs are pretended."""

import json
import signal
import subprocess
import sys
import time

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, training_problems
from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine import processes
from restrain_openrlhf.reference import load_reference, sampling_pass
from restrain_openrlhf.reference.offline_pass import merge
from restrain_openrlhf.reference.sampling_pass import (
    WHOLE,
    Shard,
    ShardedPass,
    new_rows,
    prompts_per_chunk,
)
from tests.command_line import restrain
from tests.conftest import ROOT
from tests.processes import HEEDS_CTRL_C, is_alive
from tests.reference.sharded import PROMPTS


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of so many GPUs, whose processes are tests/reference/sharded.py."""
    monkeypatch.setattr(processes, "MODULE", "tests.reference.sharded")
    monkeypatch.setenv("SHARDED_NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return lambda gpus: monkeypatch.setattr(sampling_pass, "visible_gpus", lambda: tuple(map(str, range(gpus))))


def sample(folder, size=1):
    """Sample and join the shards; returns how many rows each call of `on_progress` told of."""
    out, told = folder / "ref.jsonl", []
    job = ShardedPass([out], size, [str(out)])
    shards = job.shards()
    job.run(shards, told.append)
    merge([shard.path(out) for shard in shards], out)
    return told


def engines(folder):
    """The GPUs of every engine that was started, in any order."""
    return sorted(line.split()[0] for line in (folder / "notes").read_text().splitlines())


def rows(folder):
    return {row.id for row in load_reference(folder / "ref.jsonl").rows}


def test_every_engine_has_gpus_and_prompts_of_its_own(machine, tmp_path):
    machine(5)
    told = sample(tmp_path, size=2)
    assert engines(tmp_path) == ["0,1", "2,3"]
    assert rows(tmp_path) == set(range(PROMPTS))
    assert sum(told) == PROMPTS, "one progress for all"


def test_a_shard_that_dies_is_told_and_the_same_command_goes_on_from_all_parts(machine, tmp_path, monkeypatch):
    machine(3)
    monkeypatch.setenv("SHARDED_DIES", "1")
    with pytest.raises(RunError, match=r"stopped with status -9[\s\S]*ref\.shard-1-of-3\.log"):
        sample(tmp_path)
    part = tmp_path / "ref.shard-1-of-3.jsonl"
    kept = part.read_text()
    assert kept.count("\n") == 2, "its first chunk"
    monkeypatch.delenv("SHARDED_DIES")
    # Two GPUs are left: three shards all the same, the third when a GPU is free.
    machine(2)
    assert sum(sample(tmp_path)) == PROMPTS
    assert part.read_text().startswith(kept)
    assert rows(tmp_path) == set(range(PROMPTS))


def test_a_shard_of_ones_own_and_a_pass_begun_in_one_piece_stay_in_one_process(machine, tmp_path):
    machine(4)
    out = tmp_path / "ref.jsonl"
    assert [len(ShardedPass([out]).shards()), ShardedPass([out], size=4).shards()] == [4, [WHOLE]]
    out.touch()
    assert len(ShardedPass([out]).shards()) == 4, "nothing was written yet"
    out.write_text("{}\n")
    assert ShardedPass([out]).shards() == [WHOLE]
    for gpus in (0, 1):
        machine(gpus)
        assert ShardedPass([tmp_path / "other.jsonl"]).shards() == [WHOLE]


def test_parts_of_two_divisions_are_refused(machine, tmp_path):
    machine(2)
    for name in ("ref.shard-0-of-4.jsonl", "ref.shard-1-of-8.jsonl", "other.shard-0-of-3.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(RunError, match="parts of two passes, of 4 and of 8 shards"):
        ShardedPass([tmp_path / "ref.jsonl"]).shards()
    assert ShardedPass([tmp_path / "other.jsonl"]).shards() == [Shard(index, 3) for index in range(3)]


INTERRUPTED = """
import sys
from pathlib import Path
from restrain_openrlhf.reference import sampling_pass
from restrain_openrlhf.machine import processes
processes.MODULE = "tests.reference.sharded"
sampling_pass.visible_gpus = lambda: ("0", "1", "2")
job = sampling_pass.ShardedPass([Path(sys.argv[1])], words=[sys.argv[1]])
try:
    job.run(job.shards())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_what_ends_the_command_ends_its_engines_and_the_next_start_goes_on(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDED_SLOW", "600")
    words = [sys.executable, "-c", HEEDS_CTRL_C + INTERRUPTED, str(tmp_path / "ref.jsonl")]
    process = subprocess.Popen(words, cwd=ROOT)
    written, seen = [FollowedFile(Shard(index, 3).path(tmp_path / "ref.jsonl")) for index in range(3)], 0
    while seen < 2:
        assert process.poll() is None
        time.sleep(0.02)
        seen += new_rows(written)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    for line in (tmp_path / "notes").read_text().splitlines():
        assert not is_alive(int(line.split()[1]))
    machine(3)
    monkeypatch.delenv("SHARDED_SLOW")
    assert sum(sample(tmp_path)) == PROMPTS
    assert rows(tmp_path) == set(range(PROMPTS))


@pytest.fixture
def commands(machine, tmp_path, monkeypatch):
    """Two GPUs, and our own commands with a stand-in for the engine alone."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    monkeypatch.setattr(processes, "MODULE", "tests.reference.votes_by_rule")
    write_prompts(tmp_path / "prompts.jsonl", training_problems(PROMPTS))
    write_gold(tmp_path / "gold.jsonl", training_problems(PROMPTS))
    machine(2)


def test_an_evaluation_of_two_benchmarks_is_drawn_by_all_engines_and_graded_once(commands, tmp_path):
    files = f"a={tmp_path / 'gold.jsonl'},b={tmp_path / 'gold.jsonl'}"
    words = ("--benchmarks", files, "--out", tmp_path / "eval", "--n", "2", "--max-new-tokens", "14")
    done = restrain("eval", "--model", ADDITION.model, "--answers", "math", "--template", "plain", *words)
    assert done.returncode == 0, done.stderr
    assert engines(tmp_path) == ["0", "1"], "one engine for both benchmarks"
    assert (done.stdout + done.stderr).count(f"{PROMPTS} problems, 2 responses each") == 2
    for name in "ab":
        result = json.loads((tmp_path / "eval" / name / "result.json").read_text())
        assert result["provenance"]["problems"] == PROMPTS


def test_a_configurations_pass_takes_all_gpus_and_once_whole_starts_no_engine(commands, tmp_path):
    sets = {
        "run_dir": tmp_path / "run",
        "reference": tmp_path / "ref.jsonl",
        "openrlhf.data.prompt_dataset": tmp_path / "prompts.jsonl",
        "openrlhf.data.max_samples": 5,
    }
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    for _ in range(2):
        done = restrain("reference", "cpu/demo", "--n", 2, *words)
        assert done.returncode == 0, done.stderr
        assert engines(tmp_path) == ["0", "1"]
    assert len(rows(tmp_path)) == 5, "the shards have the configuration's prompts"


def test_progress_counts_the_rows_of_all_parts_once(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    files = [FollowedFile(first), FollowedFile(second)]
    assert new_rows(files) == 0
    first.write_text('{"row": 1}\n{"ro')
    assert new_rows(files) == 1
    first.write_text('{"row": 1}\n{"row": 2}\n')
    second.write_text("{}\n")
    assert [new_rows(files), new_rows(files)] == [2, 0]


@pytest.mark.parametrize(("n", "prompts", "on_a_cpu"), [(1, 4096, 64), (16, 256, 64), (64, 64, 16), (10_000, 1, 1)])
def test_a_chunk_fills_a_gpus_engine_many_times_and_loses_no_more_than_so_many_rollouts(n, prompts, on_a_cpu):
    """A CPU's takes minutes at most, so that a pass of 64 rollouts to 56 prompts shows progress."""
    assert prompts_per_chunk(n, has_gpus=True) == prompts
    assert prompts_per_chunk(n, has_gpus=False) == on_a_cpu
