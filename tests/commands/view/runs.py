"""Run folders with kept rollouts, scored by the project's own method."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from restrain_openrlhf.hook.run_log import kept_group
from restrain_openrlhf.method import Method, build, parse_settings
from restrain_openrlhf.records.kept import KeptGroup, as_parquet, write_step
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest

# u_x is 1: there is no reference.
METHOD = build(parse_settings({"name": "restrain", "prompt_weight": 1.0}))


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
