"""How well votes on programs find the right one: real rollouts with verdicts, no test and no gold read.

The file is JSON Lines `{prompt, entry_point, responses: [{code, passed}]}`. Of each problem's rollouts, 16 are drawn
four times. Pairs are of all rollouts of a problem.
"""

import argparse
import json
import random
import time
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.answers.kinds.code import Code
from restrain_openrlhf.answers.kinds.code.inputs import inputs_for
from restrain_openrlhf.answers.kinds.code.task import read_task

N, DRAWS = 16, 4


@dataclass(frozen=True)
class Problem:
    """One problem's rollouts: whether each is right by the tests, and its class."""

    name: str
    right: tuple[bool, ...]
    classes: tuple[int | None, ...]


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser()
    options.add_argument("rollouts", type=Path, nargs="?", help="without it, nothing is measured")
    options.add_argument("--verdicts", action="store_true", help="also run the problems' own tests and compare")
    options.add_argument("--splits", action="store_true", help="name the problems whose right programs are split most")
    options.add_argument(
        "--set", dest="settings", action="append", default=[], help="settings of the kind, such as inputs=60"
    )
    chosen = options.parse_args()
    if chosen.rollouts is None:
        print("Name a file of rollouts with verdicts.")
        return
    rows = [json.loads(line) for line in chosen.rollouts.read_text(encoding="utf-8").splitlines()]
    kind = Code.model_validate(dict(each.split("=") for each in chosen.settings))
    begun = time.perf_counter()
    problems = [classified(kind, row) for row in rows]
    seconds = time.perf_counter() - begun
    table = Table("what", "value", title=f"{len(rows)} problems, {kind.identity}")
    for name, value in {**measures(rows, kind, problems), "seconds": f"{seconds:.1f}"}.items():
        table.add_row(name, value)
    if chosen.verdicts:
        table.add_row("verdicts that differ", verdicts(kind, rows))
    Console().print(table)
    if chosen.splits:
        for problem in sorted(problems, key=lambda each: -split(each))[:20]:
            print(
                problem.name, split(problem), Counter(zip(problem.right, problem.classes, strict=True)).most_common(6)
            )


def row_of(row: dict[str, Any]) -> dict[str, Any]:
    """The columns that the kind reads; without the tests."""
    return {"problem": row["prompt"], "entry_point": row["entry_point"]}


def classified(kind: Code, row: dict[str, Any]) -> Problem:
    """The rollouts of one problem as one group."""
    answers = [kind.extract(f"```python\n{each['code']}\n```", row_of(row)) for each in row["responses"]]
    right = tuple(bool(each["passed"]) for each in row["responses"])
    return Problem(row.get("id", ""), right, tuple(kind.classes(answers, row_of(row))))


def measures(rows: list[dict[str, Any]], kind: Code, problems: list[Problem]) -> dict[str, str]:
    """The table's rows."""
    same = [pair for each in problems for pair in pairs(each) if pair[2]]
    right = [pair for each in problems for pair in pairs(each) if pair[0] and pair[1]]
    without = sum(not inputs_for(read_task(row_of(row)), kind.inputs) for row in rows)
    answered = [number is not None for each in problems for number in each.classes]
    return {
        "problems without inputs": str(without),
        "rollouts with a class": f"{sum(answered) / len(answered):.3f}",
        "pass@1": f"{mean([sum(each.right) / len(each.right) for each in problems]):.3f}",
        f"maj@{N}": f"{mean([majority(each, draw) for each in problems for draw in range(DRAWS)]):.3f}",
        f"pass@{N}": f"{mean([passed(each) for each in problems]):.3f}",
        "pairs in one class with different verdicts": f"{mean([a != b for a, b, _ in same]):.4f}",
        "pairs of right programs in two classes": f"{mean([not one for _, _, one in right]):.4f}",
        "the same, of problems equally": f"{mean([split(each) for each in problems if sum(each.right) > 1]):.4f}",
    }


def mean(values: list[Any]) -> float:
    """Their mean."""
    return sum(values) / len(values)


def pairs(problem: Problem) -> list[tuple[bool, bool, bool]]:
    """Two verdicts, and whether the two are in one class; a missing answer is in none."""
    both = combinations(zip(problem.right, problem.classes, strict=True), 2)
    return [(a, b, one == other and one is not None) for (a, one), (b, other) in both]


def split(problem: Problem) -> float:
    """The share of pairs of right programs in two classes."""
    right = [one for a, b, one in pairs(problem) if a and b]
    return 1 - mean(right) if right else 0.0


def majority(problem: Problem, draw: int) -> float:
    """The share of right ones in the largest class of 16 drawn rollouts; classes of equal size share."""
    drawn = random.Random(f"{problem.name} {draw}").sample(range(len(problem.right)), N)
    sizes = Counter(problem.classes[place] for place in drawn if problem.classes[place] is not None)
    if not sizes:
        return 0.0
    largest = {number for number, size in sizes.items() if size == max(sizes.values())}
    return mean([problem.right[place] for place in drawn if problem.classes[place] in largest])


def passed(problem: Problem) -> float:
    """The share of draws of 16 with a right one."""
    total, right = len(problem.right), sum(problem.right)
    return 1 - comb(total - right, N) / comb(total, N)


def verdicts(kind: Code, rows: list[dict[str, Any]]) -> str:
    """How many of our verdicts under the tests differ from those in the file."""
    asked = {(row["id"], each["code"]): (each["passed"], row) for row in rows for each in row["responses"]}
    differ = [
        key
        for key, (right, row) in asked.items()
        if kind.is_right(kind.extract(f"```python\n{key[1]}\n```", row_of(row)), row["test"], row_of(row)) != right
    ]
    return f"{len(differ)} of {len(asked)} {[name for name, _ in differ][:10]}"


if __name__ == "__main__":
    main()
