"""Threads that score: what needs latex2sympy2 waits in threads of its own, so that no other group waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from restrain_openrlhf.answers.residual import RESIDUAL, NotQuickError

T = TypeVar("T")
# They share latex2sympy2's one process, which takes their answers in turn.
SLOW_THREADS = 4
_SLOW = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="latex2sympy2")


async def scored_in_a_thread(work: Callable[[], T], quick: Executor | None = None) -> T:
    """What `work` gives, from a thread of `quick` (None: the event loop's own) unless it needs latex2sympy2.

    In that case it begins anew in a slow thread; answers that were read are remembered. `work` must be repeatable.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(quick, _without_waiting, work)
    except NotQuickError:
        return await loop.run_in_executor(_SLOW, work)


def _without_waiting(work: Callable[[], T]) -> T:
    with RESIDUAL.quick_alone():
        return work()
