"""What the diagnosis reads: each prompt's frozen vote, the rollouts of a training step, and the gold answer."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold
from restrain_openrlhf.data.jsonl import dump, each_row
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.estimators import majority_right
from restrain_openrlhf.evaluation.grade import GradeRow, RolloutsRow, each_rollouts, grade_vote
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.prompts import Prompt

# How many responses without an answer are kept, to try other kinds of answers on.
MAX_UNREAD = 500


@dataclass(frozen=True)
class FrozenGroup:
    """One prompt: the frozen model's vote, its first rollouts (as many as a training step has), and gold if known.

    `verdicts` caches the grades of all groups of a pass by their `place` in it, because to grade a program takes
    seconds. `same` has the key that stands for each key that is equal to others across prompts.
    """

    row: ReferenceRow
    group: GroupAnswers
    gold: str | None = None
    kind: AnswerKind = MATHEMATICS
    verdicts: dict[int, bytes] = field(default_factory=dict)
    place: int = 0
    same: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def keys(self) -> tuple[str | None, ...]:
        """The key of each of the frozen model's answers, comparable across prompts; None for a missing answer."""
        keys = [self.same.get(key, key) for key in self.row.keys]
        return tuple(None if label is None else keys[label] for label in self.row.classes)

    @property
    def majority_key(self) -> str | None:
        key = self.row.majority_key
        return None if key is None else self.same.get(key, key)

    @cached_property
    def gold_key(self) -> str | None:
        """The key of the gold answer; None without gold, and if gold is not an answer but tests of one."""
        answer = None if self.gold is None else self.kind.answer_of_gold(self.gold, self.row.row)
        return None if answer is None else self.kind.key(answer, self.row.row)

    def is_right(self, key: str) -> bool:
        """Whether the answer with this key is right, by the grades of its rollouts or else by the gold answer's key."""
        verdicts = self.grades.correct if self.grades is not None else ()
        right = [verdict for found, verdict in zip(self.keys, verdicts, strict=False) if found == key]
        if right or self.gold_key is None:
            return any(right)
        one, other = self.kind.alike([self.gold_key, key])
        return one == other

    @cached_property
    def grades(self) -> GradeRow | None:
        """All rollouts graded against gold, as `restrain eval` grades them; None without gold."""
        if self.gold is None:
            return None
        if (known := self.verdicts.get(self.place)) is None:
            graded = grade_vote(self.row, self.gold, self.kind)
            self.verdicts[self.place] = bytes(graded.correct)
            return graded
        row, right = self.row, tuple(map(bool, known))
        return GradeRow(id=str(row.id), gold=self.gold, answers=row.answers, classes=row.classes, correct=right)

    @property
    def majority_is_right(self) -> bool:
        return self.grades is not None and majority_right(self.grades.group, self.grades.correct)


@dataclass(frozen=True)
class FrozenPass:
    """The frozen model's rollouts on `count` prompts, n each. A training group has the first `group_size` of them.

    `gold` has gold answers by the prompts' hashes. `unread` are some responses without an answer, or their ends, each
    with the row of its prompt. `verdicts` is the cache of FrozenGroup: each method goes through all groups, which are
    graded only once. `classes` has the classes of training groups that are smaller than n, and `same` is FrozenGroup's.
    """

    source: Path
    n: int
    group_size: int
    count: int
    rows: Callable[[], Iterator[ReferenceRow]]
    gold: Mapping[str, str]
    kind: AnswerKind = MATHEMATICS
    unread: Mapping[str, Row] = field(default_factory=dict)
    verdicts: dict[int, bytes] = field(default_factory=dict)
    classes: Sequence[tuple[int | None, ...]] = ()
    same: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> Iterator[FrozenGroup]:
        """The groups, read anew from the file each time, with one at a time in memory."""
        for place, row in enumerate(self.rows()):
            own = GroupAnswers(row.answers[: self.group_size], self.classes[place]) if self.classes else row.group
            gold = self.gold.get(row.problem_hash)
            yield FrozenGroup(row, own, gold, self.kind, self.verdicts, place, self.same)


def from_reference(path: Path, gold: Path | None = None, group_size: int | None = None) -> FrozenPass:
    """An offline pass, with gold joined by problem or id. Gold may be there for some prompts alone.

    Raises DataError if the file is none, no prompt has gold, or a group is larger than the frozen model's vote;
    ReferencePassError where it is incomplete.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: {'is a folder' if path.is_dir() else 'no such file'}. Give the reference file that "
            "`restrain reference` wrote, such as ref.jsonl."
        )
    reference = load_reference(path)
    return _frozen_pass(path, reference.each_row, gold, group_size, {}, reference.provenance.kind, {})


def from_rollouts(
    path: Path, gold: Path | None = None, group_size: int | None = None, kind: AnswerKind = MATHEMATICS
) -> FrozenPass:
    """Read a file of rollouts {id, problem, responses, answer?, truncated?}.

    Gold comes from its rows or from another file.

    Raises DataError for a damaged file, and if rows differ in their number of rollouts.
    """
    kind.check(each.row(kind) for each in each_rollouts(path))
    own: dict[str, str] = {}
    unread: dict[str, Row] = {}
    # The votes are counted once and kept in a file, which is then read like that of an offline pass.
    votes = NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8")  # noqa: SIM115 - goes with the last of its rows
    for each in each_rollouts(path):
        row, texts = _vote(each, kind)
        votes.write(dump(row.model_dump(mode="json")))
        read = {**(each.model_extra or {}), PROBLEM: each.problem}
        unread.update(dict.fromkeys(texts if len(unread) < MAX_UNREAD else (), read))
        if each.answer not in (None, ""):
            own[row.problem_hash] = sys.intern(str(each.answer))
    votes.flush()

    def rows() -> Iterator[ReferenceRow]:
        return each_row(Path(votes.name), ReferenceRow)

    return _frozen_pass(path, rows, gold, group_size, own, kind, unread)


def _vote(row: RolloutsRow, kind: AnswerKind) -> tuple[ReferenceRow, list[str]]:
    """The row's vote, and its responses that are complete but have no answer."""
    prompt = Prompt(row.id, row.problem, row.problem, str(row.id), kind.own_columns(row.model_extra or {}, graded=True))
    vote = ReferenceRow.of(kind, prompt, row.rollouts())
    pairs = zip(row.rollouts(), vote.answers, strict=True)
    return vote, [each.text for each, answer in pairs if answer is None and not each.truncated]


def _frozen_pass(
    path: Path,
    rows: Callable[[], Iterator[ReferenceRow]],
    gold: Path | None,
    group_size: int | None,
    own: Mapping[str, str],
    kind: AnswerKind,
    unread: Mapping[str, Row],
) -> FrozenPass:
    numbers, keys = Counter[int](), Counter[str]()
    for row in rows():
        numbers[row.n] += 1
        keys.update(row.keys[label] for label in row.classes if label is not None)
    n, *others = sorted(numbers)
    if others:
        raise DataError(
            f"{path}: prompts have {[n, *others]} rollouts. Sizes of majorities can be compared only if every prompt "
            "has the same number."
        )
    asked = (ProblemIdentity(None if row.id is None else str(row.id), row.problem_hash, row.row) for row in rows())
    answers = load_gold(gold, kind).answers(str(path), asked) if gold else own
    size = group_size or n
    if size > n:
        raise DataError(
            f"{path}: has {n} rollouts per prompt, but the configuration's groups have {size}. Sample that many with "
            "`restrain reference --n`, or leave --config out."
        )
    classes = [GroupAnswers.of(kind, row.answers[:size], row.row).classes for row in rows()] if size < n else []
    return FrozenPass(path, n, size, numbers.total(), rows, answers, kind, unread, {}, classes, _same(kind, keys))


def _same(kind: AnswerKind, counts: Counter[str]) -> dict[str, str]:
    """For each key of an answer that equals one with a more frequent key, of whatever prompts, that key."""
    keys = sorted(counts, key=lambda key: (-counts[key], key))
    first: dict[int | None, str] = {}
    found = {key: first.setdefault(label, key) for key, label in zip(keys, kind.alike(keys), strict=True)}
    return {key: other for key, other in found.items() if key != other}
