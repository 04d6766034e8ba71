"""What the diagnosis reads: each prompt's frozen vote, the rollouts that a training step would have, and its gold."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from restrain_openrlhf.answers import canonical_key, classes, extract
from restrain_openrlhf.data.gold import Asked, load_gold
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import majority_right
from restrain_openrlhf.evaluation.grade import GradeRow, RolloutsRow, grade_answers, read_rollouts
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.method import GroupScore, Method, PromptFacts, ReferenceVote
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.scoring import class_of, score_group


@dataclass(frozen=True)
class Group:
    """One prompt: the frozen model's vote, the first rollouts of it (as many as a training step has), gold if known."""

    row: ReferenceRow
    answers: tuple[str | None, ...]
    gold: str | None = None

    def score(self, method: Method) -> GroupScore:
        """What the method makes of the rollouts as the first step's group. Raises GroupError as `Method.score`."""
        if method.reads_gold:
            return score_group(method, self.answers, self.row, self.gold, str(self.row.id))
        return method.score(self._classes, self._facts)

    @cached_property
    def keys(self) -> tuple[str | None, ...]:
        """The canonical key of each of the frozen model's answers, equal across prompts; None: missing."""
        return tuple(None if answer is None else canonical_key(answer) for answer in self.row.answers)

    def gives(self, key: str) -> list[bool]:
        """Whether each of the frozen model's answers has this key."""
        return [found == key for found in self.keys]

    @cached_property
    def grades(self) -> GradeRow | None:
        """All rollouts against gold, by evaluation's rule; None without gold."""
        return None if self.gold is None else grade_answers(str(self.row.id), self.row.answers, self.gold)

    @cached_property
    def majority_is_right(self) -> bool | None:
        """Whether the frozen majority is right; None without gold."""
        return None if self.grades is None else majority_right(self.grades.answers, self.grades.correct)

    @cached_property
    def _classes(self) -> list[int | None]:
        return classes(self.answers)

    @cached_property
    def _facts(self) -> PromptFacts:
        vote = ReferenceVote(self.row.majority_count, self.row.n)
        return PromptFacts(reference=vote, stored_class=class_of(self.row.majority, self.answers))


@dataclass(frozen=True)
class FrozenPass:
    """The frozen model's rollouts on all prompts, n each; groups have the first `group_size` of them."""

    source: Path
    n: int
    group_size: int
    groups: tuple[Group, ...]

    @property
    def with_gold(self) -> tuple[Group, ...]:
        """The groups whose gold is known."""
        return tuple(group for group in self.groups if group.gold is not None)


def from_reference(path: Path, gold: Path | None = None, group_size: int | None = None) -> FrozenPass:
    """An offline pass, with gold joined by problem. Gold may be there for some prompts alone.

    Raises DataError where the file is none, no prompt has gold, or a group is larger than the frozen model's vote;
    ReferencePassError where it is incomplete.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: {'is a folder' if path.is_dir() else 'no such file'}. Give the reference file that "
            "`restrain reference` wrote, such as ref.jsonl."
        )
    return _frozen_pass(path, load_reference(path).rows, gold, group_size, {})


def from_rollouts(path: Path, gold: Path | None = None, group_size: int | None = None) -> FrozenPass:
    """A file of rollouts {id, problem, responses, answer?}; gold from its rows, or from another file.

    Raises DataError for a damaged file, and where rows differ in their number of rollouts.
    """
    rollouts = read_rollouts(path)
    rows = [_vote(row) for row in rollouts]
    given = zip(rows, (each.answer for each in rollouts), strict=True)
    own = {row.problem_hash: str(answer) for row, answer in given if answer not in (None, "")}
    return _frozen_pass(path, rows, gold, group_size, own)


def _vote(row: RolloutsRow) -> ReferenceRow:
    answers = [extract(text) for text in row.responses]
    unread = (text for text, answer in zip(row.responses, answers, strict=True) if answer is None)
    return ReferenceRow.of_answers(_prompt(row), answers, unread)


def _prompt(row: RolloutsRow) -> Prompt:
    return Prompt(id=row.id, problem=row.problem, text=row.problem, where=str(row.id))


def _frozen_pass(
    path: Path, rows: Sequence[ReferenceRow], gold: Path | None, group_size: int | None, own: dict[str, str]
) -> FrozenPass:
    n = _equal_n(path, rows)
    asked = [Asked(None if row.id is None else str(row.id), row.problem_hash) for row in rows]
    answers = load_gold(gold).answers(str(path), asked) if gold else own
    size = group_size or n
    if size > n:
        raise DataError(
            f"{path}: has {n} rollouts per prompt, and a group of the configuration has {size}. Sample as many with "
            "`restrain reference --n`, or leave --config out."
        )
    groups = (Group(row, row.answers[:size], answers.get(row.problem_hash)) for row in rows)
    return FrozenPass(path, n, size, tuple(groups))


def _equal_n(path: Path, rows: Sequence[ReferenceRow]) -> int:
    sizes = {row.n for row in rows}
    if len(sizes) != 1:
        raise DataError(f"{path}: prompts have {sorted(sizes)} rollouts; majority sizes compare only at one number.")
    return sizes.pop()
