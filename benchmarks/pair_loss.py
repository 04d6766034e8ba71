"""The pair loss (two calls of OpenRLHF's PolicyLoss) against the naive loss over m labels (m calls), side by side.

Prints, for growing m, the time of one forward and backward pass relative to a single call: the median over the repeats
of one run, and the middle half of them. The pair's cost does not depend on m; the naive loop's grows with it.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.hook.devices import detect

ROLLOUTS, TOKENS, REPEATS = 64, 1024, 21
LABELS = (1, 2, 4, 8, 16, 32)


def main() -> None:
    """Measure and print; without the training stack, say so and stop."""
    if find_spec("torch") is None or find_spec("openrlhf") is None:
        raise SystemExit("This benchmark times OpenRLHF's own PolicyLoss: install the training stack (make install).")
    detect().install()
    import torch
    from openrlhf.models import PolicyLoss

    from restrain_openrlhf.hook.paired_loss import PairedLoss

    host = PolicyLoss()
    paired = PairedLoss(host)
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    log_probs = (torch.randn(ROLLOUTS, TOKENS) * 0.1).requires_grad_()
    old, mask = log_probs.detach() + torch.randn(ROLLOUTS, TOKENS) * 0.3, torch.ones(ROLLOUTS, TOKENS)
    pair = torch.stack([torch.rand(ROLLOUTS, 1), -torch.rand(ROLLOUTS, 1)])
    table = Table("labels m", "one call", "pair", "naive over labels", title="time relative to one call of PolicyLoss")
    for labels in LABELS:
        advantages = torch.randn(labels, ROLLOUTS, 1)
        cases = {
            "one": lambda: host(log_probs, old, pair[0], action_mask=mask)[0],
            "pair": lambda: paired(log_probs, old, pair, action_mask=mask)[0],
            "naive": lambda advantages=advantages: sum(
                host(log_probs, old, one, action_mask=mask)[0] for one in advantages
            ),
        }
        ratios = measure(cases, log_probs)
        table.add_row(str(labels), *(spread(ratios[name]) for name in cases))
    Console().print(table)


def measure(cases: dict[str, Callable[[], Any]], leaf: Any) -> dict[str, list[float]]:
    """Time of forward and backward of each case relative to the first, repeat by repeat, the cases taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, case in cases.items():
            leaf.grad = None
            start = clock()
            case().backward()
            times[name].append(clock() - start)
    first = next(iter(times.values()))
    return {name: [a / b for a, b in zip(values, first, strict=True)] for name, values in times.items()}


def clock() -> float:
    """Seconds, when the device has done what it was asked for."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def spread(ratios: list[float]) -> str:
    """Median, and the middle half in brackets."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
