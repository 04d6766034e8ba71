"""`restrain` with a stand-in engine that answers by rule, and notes its GPUs in the file SHARDED_NOTES."""

import os
import sys
from pathlib import Path

from restrain_openrlhf.commands.main import main
from restrain_openrlhf.evaluation import job
from restrain_openrlhf.reference import offline_pass
from restrain_openrlhf.reference.offline_engine import Rollout


class Engine:
    """Every answer is its prompt's length."""

    def __init__(self, _model, sampling, *_):
        self._n = sampling.n
        with Path(os.environ["SHARDED_NOTES"]).open("a") as notes:
            notes.write(f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {os.getpid()}\n")

    def rollouts(self, prompts):
        return [[Rollout(rf"\boxed{{{len(each.text)}}}", 5, truncated=False)] * self._n for each in prompts]


if __name__ == "__main__":
    for module in (job, offline_pass):
        module.RolloutEngine = Engine
    sys.exit(main())
