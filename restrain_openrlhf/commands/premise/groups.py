"""What the diagnosis reads: each prompt's frozen vote, the rollouts that a training step would have, and its gold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import majority_right
from restrain_openrlhf.evaluation.grade import GradeRow, RolloutsRow, grade_vote, read_rollouts
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.prompts import Prompt


@dataclass(frozen=True)
class FrozenGroup:
    """One prompt: the frozen model's vote, the first rollouts of it (as many as a training step has), gold if known."""

    row: ReferenceRow
    group: GroupAnswers
    gold: str | None = None
    kind: AnswerKind = MATHEMATICS

    @cached_property
    def keys(self) -> tuple[str | None, ...]:
        """The key of each of the frozen model's answers, equal across prompts; None: missing."""
        return tuple(None if label is None else self.row.keys[label] for label in self.row.classes)

    @cached_property
    def gold_key(self) -> str | None:
        """The key of the gold answer; None without gold, and where gold is no answer but tests of one."""
        return self.kind.key(self.gold, self.row.row) if self.gold is not None and self.kind.gold_is_an_answer else None

    def is_right(self, key: str) -> bool:
        """Whether gold is known, and the answer with this key is right by it: as its rollouts were graded, if any."""
        verdicts = self.grades.correct if self.grades is not None else ()
        right = [verdict for found, verdict in zip(self.keys, verdicts, strict=False) if found == key]
        return any(right) if right else self.gold_key == key

    @cached_property
    def grades(self) -> GradeRow | None:
        """All rollouts against gold, by evaluation's rule; None without gold."""
        return None if self.gold is None else grade_vote(self.row, self.gold, self.kind)

    @property
    def majority_is_right(self) -> bool:
        """Whether gold is known and the frozen majority is right by it."""
        return self.grades is not None and majority_right(self.grades.group, self.grades.correct)


@dataclass(frozen=True)
class FrozenPass:
    """The frozen model's rollouts on all prompts, n each; groups have the first `group_size` of them.

    Answers are of one `kind`. `unread` are some responses without an answer, or their ends, each with what is known of
    its prompt.
    """

    source: Path
    n: int
    group_size: int
    groups: tuple[FrozenGroup, ...]
    kind: AnswerKind = MATHEMATICS
    unread: Mapping[str, Row] = field(default_factory=dict)

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
    rows = reference.rows
    unread = {text: row.row for row in rows for text in row.unread}
    return _frozen_pass(path, rows, gold, group_size, {}, reference.provenance.kind, unread)


def from_rollouts(
    path: Path, gold: Path | None = None, group_size: int | None = None, kind: AnswerKind = MATHEMATICS
) -> FrozenPass:
    """A file of rollouts {id, problem, responses, answer?}; gold from its rows, or from another file.

    Raises DataError for a damaged file, and where rows differ in their number of rollouts.
    """
    rollouts = read_rollouts(path)
    kind.check(row.row(kind) for row in rollouts)
    read = [_vote(row, kind) for row in rollouts]
    rows = [row for row, _ in read]
    pairs = zip(rollouts, read, strict=True)
    unread = {text: {**(one.model_extra or {}), PROBLEM: one.problem} for one, (_, texts) in pairs for text in texts}
    given = zip(rows, (each.answer for each in rollouts), strict=True)
    own = {row.problem_hash: str(answer) for row, answer in given if answer not in (None, "")}
    return _frozen_pass(path, rows, gold, group_size, own, kind, unread)


def _vote(row: RolloutsRow, kind: AnswerKind) -> tuple[ReferenceRow, list[str]]:
    """The row's vote, and its responses without an answer."""
    prompt = Prompt(row.id, row.problem, row.problem, str(row.id), kind.own_columns(row.model_extra or {}))
    answers = [kind.extract(text, prompt.row) for text in row.responses]
    unread = [text for text, answer in zip(row.responses, answers, strict=True) if answer is None]
    return ReferenceRow.of_answers(prompt, answers, unread, kind), unread


def _frozen_pass(
    path: Path,
    rows: Sequence[ReferenceRow],
    gold: Path | None,
    group_size: int | None,
    own: dict[str, str],
    kind: AnswerKind,
    unread: Mapping[str, Row],
) -> FrozenPass:
    n, *others = sorted({row.n for row in rows})
    if others:
        raise DataError(f"{path}: prompts have {[n, *others]} rollouts; majority sizes compare only at one number.")
    asked = [ProblemIdentity(None if row.id is None else str(row.id), row.problem_hash) for row in rows]
    answers = load_gold(gold).answers(str(path), asked) if gold else own
    size = group_size or n
    if size > n:
        raise DataError(
            f"{path}: has {n} rollouts per prompt, and a group of the configuration has {size}. Sample as many with "
            "`restrain reference --n`, or leave --config out."
        )
    groups = (FrozenGroup(row, row.group.first(size), answers.get(row.problem_hash), kind) for row in rows)
    return FrozenPass(path, n, size, tuple(groups), kind, unread)
