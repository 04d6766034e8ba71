"""Keys and classes of 1,024 groups of 16 answers, side by side with OpenRLHF's grader.

Groups are made from the answers of a benchmark file (rows `{answer}`, such as MATH-500's): each rollout writes the gold
in one of several forms or slips by a little. OpenRLHF's grader is measured where OpenRLHF is installed: it compares
each new string of a group with the representatives found so far, on a part of the groups, and is extrapolated.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.answers import classes, extract
from restrain_openrlhf.answers.keys import canonical_key

GROUPS, N = 1024, 16
HOSTILE = (r"9^{9^{9^9}}", "99999999!", r"\sum_{k=1}^{10^9} k", "(((9!)!)!)", "{" * 2000, "open('x','w')", "9" * 20_000)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser()
    options.add_argument("answers", type=Path, nargs="?", help="JSON Lines with `answer`; a few of our own if left out")
    chosen = options.parse_args()
    gold = read_gold(chosen.answers)
    groups = make_groups(gold)
    table = Table("what", "seconds", "relative", title=f"{GROUPS} x {N} answers, {len(gold)} golds")
    ours = timed(lambda: [classes(group) for group in groups])
    rows = {"keys and classes, one core": ours}
    hostile = with_hostile(groups)
    rows["the same with 1 % hostile answers"] = timed(lambda: [classes(group) for group in hostile])
    rows["with extraction, two processes"] = timed(lambda: extracted_in_two(groups))
    rows |= peers(groups)
    for name, seconds in rows.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / ours:.2f}")
    Console().print(table)


def read_gold(path: Path | None) -> list[str]:
    """The answers of a file; without one, whole numbers with some other forms between them."""
    if path is not None:
        return [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]
    others = [
        r"\frac{3}{7}",
        r"2\sqrt{3}",
        "(1,2)",
        r"x^2+2x+1",
        r"\frac{\pi}{4}",
        "[0,5)",
        r"\{1,2,3\}",
        r"\text{east}",
    ]
    return [*map(str, range(100, 180)), *others * 2]


def make_groups(gold: list[str], seed: int = 0) -> list[list[str]]:
    """Seeded groups: about half right in various forms, the rest near misses."""
    rng = random.Random(seed)
    forms: tuple[Callable[[str], str], ...] = (
        lambda answer: answer,
        lambda answer: f" {answer} ",
        lambda answer: answer.replace("\\frac", "\\dfrac"),
        lambda answer: f"\\left({answer}\\right)" if answer.isdigit() else answer.replace(" ", ""),
        lambda answer: f"{answer}.",
    )

    def slip(answer: str) -> str:
        places = [place for place, letter in enumerate(answer) if letter.isdigit()]
        if not places:
            return answer + "1"
        place = rng.choice(places)
        return answer[:place] + str(rng.randrange(10)) + answer[place + 1 :]

    return [
        [rng.choice(forms)(answer) if rng.random() < 0.5 else slip(answer) for _ in range(N)]
        for answer in (rng.choice(gold) for _ in range(GROUPS))
    ]


def with_hostile(groups: list[list[str]], seed: int = 1) -> list[list[str]]:
    """One answer in a hundred replaced by a hostile one, none of them twice."""
    rng = random.Random(seed)
    return [
        [f"{rng.choice(HOSTILE)}+{rng.randrange(10**6)}" if rng.random() < 0.01 else answer for answer in group]
        for group in groups
    ]


def timed(work: Callable[[], object]) -> float:
    """Seconds of one run from an empty cache: the median of three."""
    times = []
    for _ in range(3):
        canonical_key.cache_clear()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)[1]


def extracted_in_two(groups: list[list[str]]) -> None:
    """Extraction, keys and classes of responses of about 1,200 characters, half the groups in each process."""
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(_extract_and_classify, (groups[::2], groups[1::2])))


def _extract_and_classify(groups: list[list[str]]) -> int:
    text = "Some reasoning about the problem with $x^2$ in it. " * 24
    return sum(len(set(classes([extract(f"{text}\\boxed{{{answer}}}") for answer in group]))) for group in groups)


def peers(groups: list[list[str]]) -> dict[str, float]:
    """Seconds of OpenRLHF's grader, extrapolated from a part of the groups."""
    try:
        from openrlhf.utils.math_utils import grade_answer
    except ImportError:
        Console(stderr=True).print("OpenRLHF is not installed here: its grader is left out.")
        return {}
    part = groups[:64]
    start = time.perf_counter()
    for group in part:
        cluster(group, grade_answer)
    return {"OpenRLHF grade_answer (extrapolated)": (time.perf_counter() - start) * GROUPS / len(part)}


def cluster(group: list[str], equal: Callable[[str, str], bool]) -> list[str]:
    """Representatives of a group's classes by pairwise comparison."""
    representatives: list[str] = []
    for answer in dict.fromkeys(group):
        if not any(equal(answer, other) for other in representatives):
            representatives.append(answer)
    return representatives


if __name__ == "__main__":
    main()
