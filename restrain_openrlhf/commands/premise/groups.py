"""What the diagnosis reads: each prompt's frozen vote, the rollouts that a training step would have, and its gold."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from restrain_openrlhf.answers import canonical_key
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import majority_right
from restrain_openrlhf.evaluation.grade import GradeRow, grade_answers
from restrain_openrlhf.reference import ReferenceRow, load_reference


@dataclass(frozen=True)
class FrozenGroup:
    """One prompt: the frozen model's vote, the first rollouts of it (as many as a training step has), gold if known."""

    row: ReferenceRow
    answers: tuple[str | None, ...]
    gold: str | None = None

    @cached_property
    def keys(self) -> tuple[str | None, ...]:
        """The canonical key of each of the frozen model's answers, equal across prompts; None: missing."""
        return tuple(None if answer is None else canonical_key(answer) for answer in self.row.answers)

    @cached_property
    def grades(self) -> GradeRow | None:
        """All rollouts against gold, by evaluation's rule; None without gold."""
        return None if self.gold is None else grade_answers(str(self.row.id), self.row.answers, self.gold)

    @property
    def majority_is_right(self) -> bool:
        """Whether gold is known and the frozen majority is right by it."""
        return self.grades is not None and majority_right(self.grades.answers, self.grades.correct)


@dataclass(frozen=True)
class FrozenPass:
    """The frozen model's rollouts on all prompts, n each; groups have the first `group_size` of them."""

    source: Path
    n: int
    group_size: int
    groups: tuple[FrozenGroup, ...]

    @property
    def with_gold(self) -> tuple[FrozenGroup, ...]:
        """The groups whose gold is known."""
        return tuple(group for group in self.groups if group.gold is not None)


def from_reference(path: Path, gold: Path | None = None, group_size: int | None = None) -> FrozenPass:
    """An offline pass, with gold joined by problem or id. Gold may be there for some prompts alone.

    Raises DataError where the file is none, no prompt has gold, or a group is larger than the frozen model's vote;
    ReferencePassError where it is incomplete.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: {'is a folder' if path.is_dir() else 'no such file'}. Give the reference file that "
            "`restrain reference` wrote, such as ref.jsonl."
        )
    reference = load_reference(path)
    asked = [ProblemIdentity(None if row.id is None else str(row.id), row.problem_hash) for row in reference.rows]
    answers = load_gold(gold).answers(str(path), asked) if gold else {}
    n = reference.provenance.n
    size = group_size or n
    if size > n:
        raise DataError(
            f"{path}: has {n} rollouts per prompt, and a group of the configuration has {size}. Sample as many with "
            "`restrain reference --n`, or leave --config out."
        )
    groups = (FrozenGroup(row, row.answers[:size], answers.get(row.problem_hash)) for row in reference.rows)
    return FrozenPass(path, n, size, tuple(groups))
