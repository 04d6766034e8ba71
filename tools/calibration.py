"""What a base model does before any RL, measured by sampling it, and the bounds inside which a task's is accepted."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import GradeRow, grade_answers, majority_right
from tools.examples import SHORTCUT_ANSWER
from tools.language_examples import NO_PROGRAM, UNKNOWN
from tools.tokenizer import EOS, PAD

ROLLOUTS = 16
SHORTCUTS = (SHORTCUT_ANSWER, UNKNOWN, NO_PROGRAM)
# Problems sampled at once.
BATCH = 32
# The longest response of a task of digits, its end included.
MOST_TOKENS = 14
# Majorities of so many of 16 rollouts count as small, and as large.
SMALL, LARGE = 6, 11
LOW_CONSENSUS = 3


@dataclass(frozen=True)
class Calibration:
    """Shares in [0, 1], of 16 rollouts at T = 1 on each of `problems` problems.

    `shortcut_share`: rollouts that give up. `low_consensus_share`: groups with a majority below 3. `small_right` and
    `large_right`: how often majorities of at most 6, and of at least 11, are right.
    """

    problems: int
    pass_at_1: float
    maj_at_16: float
    shortcut_share: float
    low_consensus_share: float
    small_right: float
    large_right: float


@dataclass(frozen=True)
class Bound:
    """The range in which one number of a calibration must be."""

    name: str
    low: float
    high: float


# Chosen before any RL of the shipped model (docs/start/demo.md).
PREMISE_BOUNDS = (
    Bound("pass_at_1", 0.30, 0.40),
    Bound("maj_at_16", 0.57, 0.67),
    Bound("shortcut_share", 0.145, 0.175),
    Bound("low_consensus_share", 0.0, 0.10),
    Bound("small_right", 0.40, 0.65),
    Bound("large_right", 0.95, 1.0),
)
BOUNDS: Mapping[str, tuple[Bound, ...]] = {
    "premise": PREMISE_BOUNDS, "addition": (), "careless": (), "words": (), "programs": (), "calculator": ()
}  # fmt: skip


def refuse_outside(found: Calibration, bounds: Sequence[Bound]) -> None:
    """Raises DataError for a model that is outside its task's bounds."""
    outside = [bound for bound in bounds if not bound.low <= getattr(found, bound.name) <= bound.high]
    if outside:
        named = ", ".join(f"{b.name} {getattr(found, b.name):.3f}, not {b.low:g} to {b.high:g}" for b in outside)
        raise DataError(
            f"The model's calibration is outside its bounds: {named}. Nothing was written. Change the recipe "
            "(tools/teaching.py); the bounds are chosen before any RL."
        )


def calibrate(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    seed: int = 1,
    kind: AnswerKind = MATHEMATICS,
    most_tokens: int = MOST_TOKENS,
) -> Calibration:
    """Sample the model on the problems and grade it, as evaluation does."""
    torch.manual_seed(seed)
    grades = [
        grade_answers(row.id, answers, row.answer, kind, kind.row(row.text, row.row))
        for row, answers in _sampled(model, tokenizer, problems, kind, most_tokens)
    ]
    sizes = np.array([row.group.votes.majority_count for row in grades])
    right = np.array([float(majority_right(row.group, row.correct)) for row in grades])
    return Calibration(
        problems=len(grades),
        pass_at_1=_mean([np.mean(row.correct) for row in grades]),
        maj_at_16=_mean(right),
        shortcut_share=_mean([_shortcuts(row) for row in grades]),
        low_consensus_share=_mean(sizes < LOW_CONSENSUS),
        small_right=_mean(right[sizes <= SMALL]),
        large_right=_mean(right[sizes >= LARGE]),
    )


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _shortcuts(row: GradeRow) -> float:
    return sum(answer in SHORTCUTS for answer in row.answers) / len(row.answers)


def _sampled(
    model: Any, tokenizer: Any, problems: Sequence[Problem], kind: AnswerKind, most_tokens: int
) -> Iterator[tuple[Problem, list[str | None]]]:
    """Each problem with the answers of its rollouts."""
    by_length: dict[int, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_length[len(problem.problem)].append(problem)
    for same in by_length.values():
        for start in range(0, len(same), BATCH):
            batch = same[start : start + BATCH]
            yield from zip(batch, rollouts_of(model, tokenizer, batch, kind, most_tokens)[2], strict=True)


def rollouts_of(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    kind: AnswerKind = MATHEMATICS,
    most_tokens: int = MOST_TOKENS,
) -> tuple[torch.Tensor, torch.Tensor, list[list[str | None]]]:
    """16 rollouts of each of b problems whose texts are equally long.

    Returns tokens with the prompts (16 b, T), the responses' alone (16 b, R), and each problem's answers. A response
    that did not end has none.
    """
    texts = [problem.problem for problem in problems]
    prompts = tokenizer(texts, add_special_tokens=False, return_tensors="pt")["input_ids"].repeat_interleave(
        ROLLOUTS, 0
    )
    with torch.no_grad():
        tokens = model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            top_k=0,
            max_new_tokens=most_tokens,
            pad_token_id=PAD,
        )
    responses = tokens[:, prompts.shape[1] :]
    decoded = [str(tokenizer.decode(each, skip_special_tokens=True)) for each in responses.tolist()]
    truncated = [EOS not in tokens for tokens in responses.tolist()]
    groups = [slice(start, start + ROLLOUTS) for start in range(0, len(decoded), ROLLOUTS)]
    rows = [kind.row(each.text, each.row) for each in problems]
    answers = [kind.voted_answers(decoded[of], truncated[of], row) for of, row in zip(groups, rows, strict=True)]
    return tokens, responses, answers
