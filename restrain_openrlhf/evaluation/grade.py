"""Files of responses and of rollouts, and the grades of all responses to a problem."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.data.jsonl import Identified, each_identified_row
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.sampling_pass import SampledRow


class GradeRow(BaseModel, frozen=True):
    """The grades of one problem's n responses, in their order."""

    id: str
    gold: str
    answers: tuple[str | None, ...]
    correct: tuple[bool, ...]


def grade_answers(problem_id: str, answers: Sequence[str | None], gold: str) -> GradeRow:
    """All answers to one problem (None: missing, which is wrong); each is compared with gold once."""
    verdicts = {answer: is_right(answer, gold) for answer in set(answers)}
    correct = tuple(verdicts[answer] for answer in answers)
    return GradeRow(id=problem_id, gold=gold, answers=tuple(answers), correct=correct)


class ResponseRow(SampledRow):
    """One problem's n responses; `tokens` their lengths, `truncated` whether each ran into the length limit.

    Rows of `restrain score` and `restrain premise` may hold the same keys. Gold is not among them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    problem: str
    prompt: str
    responses: tuple[str, ...]
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]

    @classmethod
    def of(cls, prompt: Prompt, rollouts: Sequence[Rollout]) -> Self:
        """All that was drawn for one prompt."""
        return cls(
            id=str(prompt.id),
            problem=prompt.problem,
            prompt=prompt.text,
            responses=tuple(rollout.text for rollout in rollouts),
            tokens=tuple(rollout.tokens for rollout in rollouts),
            truncated=tuple(rollout.truncated for rollout in rollouts),
        )

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        """The problem's id."""
        return str(prompt.id)

    @property
    def key(self) -> str:
        """`id`."""
        return self.id


class RolloutsRow(Identified):
    """A row of a file of rollouts: a prompt and its responses; other keys are ignored.

    `entropies`: the mean token entropy of each response that is trained on, for methods that reshape advantages by it.
    """

    problem: str
    responses: tuple[str, ...]
    answer: str | int | float | None = None
    entropies: tuple[float, ...] | None = None


def read_rollouts(path: Path) -> list[RolloutsRow]:
    """All rows. Raises DataError for a damaged row, one without responses, repeated ids, NULs, and an empty file."""
    rows = list(each_identified_row(path, RolloutsRow))
    for number, row in rows:
        if not row.responses:
            raise DataError(f"{path}, line {number}: responses is empty. Remove the row.")
    if not rows:
        raise DataError(f"{path}: has no rows. Give a file of rollouts.")
    return [row for _, row in rows]
