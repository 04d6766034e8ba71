"""What a failed run says: the reason, not whatever was printed last."""

from contextlib import suppress

import pytest

from restrain_openrlhf.machine.processes import error_tail, stopped
from tests.e2e.conftest import small_disk

LOST_NODE = """(PolicyModelActor pid=1, ip=10.0.0.2) step 3
Traceback (most recent call last):
  File "train_ppo_ray.py", line 188, in train
    ray.get(ppo_trainer.fit.remote())
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\x1b[33m(raylet)\x1b[0m Raylet is terminated.
    [state-dump] much
    [state-dump] more
(ReferenceModelActor pid=2, ip=10.0.0.2) \rforward: 100%
"""
IN_A_WORKER = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'the first one'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train_ppo_ray.py", line 188, in train
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::PPOTrainer.fit()\x1b[39m (pid=3)
  File "ppo_trainer.py", line 7, in fit
ValueError: the batch is empty
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOST_NODE, "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
        (
            IN_A_WORKER,
            "ray.exceptions.RayTaskError(ValueError): \x1b[36mray::PPOTrainer.fit()\x1b[39m (pid=3)\n"
            "ValueError: the batch is empty",
        ),
        (LOST_NODE + "error: not enough GPUs\n" + LOST_NODE, "error: not enough GPUs"),
        ("\n".join(f"line {number}" for number in range(20)), "\n".join(f"line {number}" for number in range(8, 20))),
        ("", ""),
    ],
    ids=["a lost node", "an error in a worker", "an error of ours", "no traceback", "nothing"],
)
def test_the_reason_is_found(tmp_path, text, expected):
    log = tmp_path / "train.log"
    log.write_text(text)
    assert error_tail(log) == expected


def test_an_earlier_start_is_not_the_reason(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("error: of the first start\n")
    since = log.stat().st_size
    with log.open("a") as file:
        file.write(LOST_NODE)
    assert "ActorDiedError" in error_tail(log, since)


def test_a_full_disk_comes_first_because_the_log_may_lack_the_reason(tmp_path):
    with small_disk(tmp_path / "disk", 1) as disk:
        log = disk / "train.log"
        log.write_text("Episode 1\nTraceback (most re")
        assert error_tail(log) == "Episode 1\nTraceback (most re"
        with suppress(OSError):
            (disk / "taken").write_bytes(bytes(2 << 20))
        for told in (error_tail(log), str(stopped("It stopped", log))):
            assert f"{disk}: no space left. Free some, and start the same command again.\nEpisode 1" in told
        assert [path.name for path in sorted(disk.iterdir())] == ["taken", "train.log"]
