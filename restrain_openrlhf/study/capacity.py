"""How many runs of a study fit beside each other."""

import os
from collections.abc import Sequence

from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.sizes import cluster_gpus, gpus_needed, refuse_shortage
from restrain_openrlhf.study.plan import StudyRun


def runs_at_a_time(runs: Sequence[StudyRun]) -> int:
    """As many of the largest run as the cluster that RAY_ADDRESS names has GPUs for; 1 where each run starts its own.

    Raises ConfigError where the cluster holds not even one.
    """
    if not os.environ.get("RAY_ADDRESS"):
        return 1
    needed = max(gpus_needed(vars(parse(to_arguments(host_flags(run.config))))) for run in runs)
    found = cluster_gpus()
    refuse_shortage(needed, found)
    return int(found // needed)
