"""What each kind of answer costs: 1,024 groups of 16 answers.

Where a kind is slow, part of the groups is measured and the rest is reckoned from it. CPU time is given beside the
clock's, which depends on what else the machine does.
"""

import os
import resource
import time

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.answers.kinds.code import Code
from restrain_openrlhf.answers.kinds.code.inputs import inputs_for
from restrain_openrlhf.answers.kinds.code.task import read_task
from restrain_openrlhf.machine.sandbox.pool import Sandbox

GROUPS, N = 1024, 16
MEASURED = 30
# Ten of sixteen programs of a group differ as texts: the share of real ones (docs/concepts/kinds.md).
DISTINCT = 10
PROMPT = (
    "from typing import List\n\n\ndef close(numbers: List[float], threshold: float) -> bool:\n"
    '    """Whether any two numbers are closer to each other than the threshold.\n'
    "    >>> close([1.0, 2.0, 3.0], 0.5)\n    False\n    >>> close([1.0, 2.8, 3.0, 4.0, 5.0, 2.0], 0.3)\n    True\n"
    '    """\n'
)
BODY = """
    for place, one in enumerate(numbers):
        for other in numbers[place + 1:]:
            if abs(one - other) < threshold:
                return {truth}
    return False
"""


def main() -> None:
    """Measure and print."""
    table = Table("kind", "what", "value", title=f"{os.cpu_count()} CPU cores")
    for name, value in code().items():
        table.add_row("code", name, value)
    Console().print(table)


def code() -> dict[str, str]:
    """Programs of HumanEval's size on 30 inputs."""
    kind, row = Code(sandbox="container"), {"problem": PROMPT}
    bodies = [BODY.format(truth=f"True  # {number % DISTINCT}") for number in range(N)]
    begun = time.perf_counter()
    groups = [[kind.extract(f"{body}# {number}", row) for body in bodies] for number in range(MEASURED)]
    extracted = time.perf_counter() - begun
    begun = time.perf_counter()
    for group in groups:
        kind.classes(group, row)
    waited = time.perf_counter() - begun
    cpu = cpu_of_one(kind, [answer for group in groups for answer in group[:DISTINCT] if answer])
    return {
        "extraction of 16,384": f"{extracted * GROUPS / MEASURED:.0f} s on one core",
        "one program, CPU time": f"{cpu * 1000:.1f} ms",
        "programs a second and core": f"{1 / cpu:.0f}",
        f"{GROUPS} x {N}, {DISTINCT} of {N} distinct, CPU time": f"{cpu * GROUPS * DISTINCT:.0f} s over all cores",
        "the same by the clock, as the machine is now": f"{waited * GROUPS / MEASURED:.0f} s",
    }


def cpu_of_one(kind: Code, programs: list[str]) -> float:
    """CPU seconds that the sandbox spends on one program, its start left out."""
    task = read_task({"problem": PROMPT})
    inputs = inputs_for(task, kind.inputs)
    spent = []
    for count in (1, len(programs)):
        before, box = children_seconds(), Sandbox("container")
        for program in programs[:count]:
            box.run(kind.job(program, "calls", task.entry, inputs, kind.program_seconds))
        box.control.close()
        box.process.wait()
        spent.append(children_seconds() - before)
    return (spent[1] - spent[0]) / (len(programs) - 1)


def children_seconds() -> float:
    """CPU seconds of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
