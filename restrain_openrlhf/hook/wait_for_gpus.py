"""`python -m restrain_openrlhf.hook.wait_for_gpus N`: waits until the cluster that RAY_ADDRESS names has N GPUs."""

import sys
import time
from collections.abc import Callable

from restrain_openrlhf.errors import RestrainError, RunError
from restrain_openrlhf.hook.sizes import cluster_gpus

PATIENCE_SECONDS = 600
POLL_SECONDS = 5


def wait_for_gpus(
    needed: int,
    count: Callable[[], float] = cluster_gpus,
    patience: float = PATIENCE_SECONDS,
    poll: float = POLL_SECONDS,
) -> None:
    """Return once they are there; the nodes of a cluster start at different times.

    Raises RunError where they are not after `patience` seconds, or where the cluster does not answer until then.
    """
    end = time.monotonic() + patience
    while True:
        found, why = _asked(count)
        if found >= needed:
            return
        if time.monotonic() > end:
            raise RunError(f"{needed} GPUs are needed, and after {patience:g} seconds the Ray cluster has {why}.")
        time.sleep(poll)


def _asked(count: Callable[[], float]) -> tuple[float, str]:
    """How many, and in words. A head that is still starting refuses connections."""
    try:
        found = count()
    except (ConnectionError, RuntimeError, ValueError) as error:
        return 0, f"not answered ({error})"
    return found, f"{found:g}"


if __name__ == "__main__":
    try:
        wait_for_gpus(int(sys.argv[1]))
    except RestrainError as error:
        sys.exit(f"error: {error}")
