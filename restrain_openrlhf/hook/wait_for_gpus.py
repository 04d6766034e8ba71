"""Counts the GPUs of a Ray cluster, and refuses too few of them or waits for more.

`python -m restrain_openrlhf.hook.wait_for_gpus N` waits until the cluster that RAY_ADDRESS names has N.
"""

import sys
import time
from collections.abc import Callable

from restrain_openrlhf.errors import ConfigError, RestrainError, RunError

PATIENCE_SECONDS = 600
POLL_SECONDS = 5


def cluster_gpus() -> float:
    """The number of GPUs of all nodes. Joins the cluster and leaves it again."""
    import ray  # noqa: PLC0415 - a study that starts Ray itself can be checked without it

    ray.init(log_to_driver=False)
    try:
        return float(ray.cluster_resources().get("GPU", 0))
    finally:
        ray.shutdown()


def refuse_shortage(needed: int, found: float) -> None:
    """Raises ConfigError when the cluster has fewer GPUs than the layout needs."""
    if found < needed:
        raise ConfigError(
            f"The layout needs {needed} GPUs, but the Ray cluster has {found:g}; OpenRLHF would wait forever. Lower "
            "actor.num_gpus_per_node, ref.num_gpus_per_node or vllm.num_engines, set train.colocate_all, or add nodes."
        )


def wait_for_gpus(
    needed: int,
    count: Callable[[], float] = cluster_gpus,
    patience: float = PATIENCE_SECONDS,
    poll: float = POLL_SECONDS,
) -> None:
    """Return once the cluster has `needed` GPUs; its nodes may start at different times.

    Raises RunError if it does not have them, or does not answer, within `patience` seconds.
    """
    end = time.monotonic() + patience
    while True:
        try:
            found = count()
            why = f"{found:g}"
        except (ConnectionError, RuntimeError, ValueError) as error:
            # A head that is still starting refuses connections.
            found, why = 0, f"not answered ({error})"
        if found >= needed:
            return
        if time.monotonic() > end:
            raise RunError(f"{needed} GPUs are needed, and after {patience:g} seconds the Ray cluster has {why}.")
        time.sleep(poll)


if __name__ == "__main__":
    try:
        wait_for_gpus(int(sys.argv[1]))
    except RestrainError as error:
        sys.exit(f"error: {error}")
