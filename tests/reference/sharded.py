"""A command for tests that takes `OUT --shard I/K` and samples that part of 13 toy prompts, two at a time.

It notes its CUDA_VISIBLE_DEVICES and its process id in the file SHARDED_NOTES. The one whose devices are SHARDED_DIES
is killed after its first chunk; SHARDED_SLOW is how many seconds each later chunk takes.
"""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.sampling_pass import SamplingPass, Shard
from tests.reference.toy import prompts, provenance

PROMPTS = 13
DEVICES = os.environ.get("CUDA_VISIBLE_DEVICES")


class Engine:
    """One answer of each prompt."""

    def __init__(self):
        self._chunks = 0
        with Path(os.environ["SHARDED_NOTES"]).open("a") as notes:
            notes.write(f"{DEVICES} {os.getpid()}\n")

    def rollouts(self, chunk):
        if self._chunks and os.environ.get("SHARDED_DIES") == DEVICES:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(os.environ.get("SHARDED_SLOW", "0")) if self._chunks else 0)
        self._chunks += 1
        return [[Rollout(rf"\boxed{{{each.id}}}", 5, truncated=False)] for each in chunk]


if __name__ == "__main__":
    out, _, number = sys.argv[1:]
    shard, everything = Shard.named(number), prompts(PROMPTS)
    part, make = shard.of(everything), partial(ReferenceRow.of, MATHEMATICS)
    made = SamplingPass(part, provenance(everything, n=1), shard.path(Path(out)), ReferenceRow, make, chunk=2)
    made.run(Engine)
