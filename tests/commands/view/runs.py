"""Run folders with kept rollouts, scored by the project's own method: small ones, real ones, and large ones."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.evaluation.grade import RolloutsRow
from restrain_openrlhf.hook.run_log import kept_group
from restrain_openrlhf.method import Method, build, parse_settings
from restrain_openrlhf.records.kept import KeptGroup, as_parquet, write_step
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest

# u_x is 1: there is no reference.
METHOD = build(parse_settings({"name": "restrain", "prompt_weight": 1.0}))
DRAWN = 6
VISITS = 8


def scored_group(
    step: int, place: int, prompt: str, responses: Sequence[str], method: Method = METHOD, gap: float | None = None
) -> KeptGroup:
    """A group as a run would keep it."""
    request = GroupRequest(prompt=prompt, responses=[{"text": text, "finished": True} for text in responses])
    return kept_group(step, place, request, score_whole_group(GroupScorer(method), request), [gap] * len(responses))


def boxed(*answers: str | None) -> list[str]:
    """Responses with these answers (None: missing)."""
    return [f"so \\(x = \\boxed{{{each}}}\\)" if each is not None else "I do not know." for each in answers]


def write_run(folder: Path, groups: Iterable[KeptGroup]) -> Path:
    """A run's folder that keeps these groups."""
    steps: dict[int, list[KeptGroup]] = {}
    for group in groups:
        steps.setdefault(group.step, []).append(group)
    for step, kept in steps.items():
        write_step(folder, step, as_parquet(kept))
    return folder


def small_run(folder: Path) -> Path:
    """Three prompts at three steps: one that flips, one that is penalised and lacks answers, one that all agree on."""
    flips = [("4", "4", "4", "5"), ("4", "5", "5", "5"), ("5", "5", "5", "5")]
    unsure = [("1", "2", "3", None), ("1", "2", "2", None), ("2", "2", "2", None)]
    groups = [
        group
        for step, (one, other) in enumerate(zip(flips, unsure, strict=True), start=1)
        for group in (
            scored_group(step, 0, "What is \\(2 + 3\\)?", boxed(*one), gap=0.002),
            scored_group(step, 1, "How many sheep are there?", boxed(*other), gap=0.003),
            scored_group(step, 2, "What is $\\frac{1}{2} + \\frac{1}{4}$?", boxed(*["\\frac{3}{4}"] * 4), gap=0.001),
        )
    ]
    return write_run(folder, groups)


def real_run(folder: Path, rollouts: Path) -> Path:
    """Steps made of real rollouts: each visit of a problem is six of its responses, drawn by a fixed seed."""
    rows, draw = read_rows(rollouts, RolloutsRow), random.Random(0)
    groups = (
        scored_group(step, place, row.problem, draw.sample(row.responses, DRAWN))
        for step in range(1, VISITS + 1)
        for place, row in enumerate(rows)
    )
    return write_run(folder, groups)


def large_run(folder: Path, groups: int, in_step: int = 100, prompts: int = 500, rollouts: int = 8) -> Path:
    """Groups of made-up responses of about a thousand characters, with formulas; each prompt comes back."""
    draw = random.Random(0)
    made = (
        scored_group(at // in_step + 1, at % in_step, f"Problem {at % prompts}: find \\(x\\).", _texts(draw, rollouts))
        for at in range(groups)
    )
    return write_run(folder, made)


def _texts(draw: random.Random, rollouts: int) -> list[str]:
    answers = draw.choices(["7", "12", "\\frac{1}{2}", None], weights=[6, 3, 2, 1], k=rollouts)
    return [f"{_words(draw)}{end}" for end in boxed(*answers)]


def _words(draw: random.Random) -> str:
    words = (
        "so",
        "let",
        "the",
        "sum",
        "of",
        "\\(x^2 + 1\\)",
        "\\[\\frac{a}{b}\\]",
        "then",
        "we",
        "have",
        "equal",
        "terms",
    )
    return " ".join(f"{draw.choice(words)} {draw.randrange(1000)}" for _ in range(120)) + ". "
