"""The frozen model's votes, one prompt at a time, each with the rollouts of a training step and the gold answer."""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold, stated_gold
from restrain_openrlhf.data.jsonl import each_row, write_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import GradeRow, grade_vote, majority_right, placed_rollouts
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.artifact import refuse_other_run
from restrain_openrlhf.reference.prompts import Prompt


@dataclass(frozen=True)
class FrozenGroup:
    """One prompt: the frozen model's vote, its first `size` rollouts as a training group, and gold if known.

    `same` has the key that stands for each key that is equal to others across prompts. `weight` is the number of
    prompts for which this one's gold stands: 1 / the chance with which `restrain label` drew it.
    """

    row: ReferenceRow
    size: int
    gold: str | None
    kind: AnswerKind
    same: Mapping[str, str]
    weight: float = 1.0

    @property
    def group(self) -> GroupAnswers:
        """The training group; a smaller one is classified anew, because what made two answers equal may be gone."""
        return self._first.group

    @cached_property
    def _first(self) -> ReferenceRow:
        return self.row if self.size == self.row.n else self.row.first(self.size, self.kind)

    @cached_property
    def step(self) -> "FrozenGroup":
        """The prompt with the training group's own answers where these are others, because a group is read together."""
        return replace(self, row=self._first) if self.kind.reads_together(self.row.row) else self

    @cached_property
    def keys(self) -> tuple[str | None, ...]:
        """The key of each of the frozen model's answers, comparable across prompts; None for a missing answer."""
        keys = [self.same.get(key, key) for key in self.row.keys]
        return tuple(None if label is None else keys[label] for label in self.row.classes)

    @property
    def majority_key(self) -> str | None:
        key = self.row.majority_key
        return None if key is None else self.same.get(key, key)

    def is_right(self, key: str) -> bool:
        """Whether the answer with this key is right, by the grades of its rollouts or else by the gold answer's key."""
        if self.gold is None or self.grades is None:
            return False
        right = [verdict for found, verdict in zip(self.keys, self.grades.correct, strict=True) if found == key]
        answer = self.kind.answer_of_gold(self.gold, self.row.row)
        if right or answer is None:
            return any(right)
        one, other = self.kind.alike([self.kind.key(answer, self.row.row), key])
        return one == other

    @cached_property
    def grades(self) -> GradeRow | None:
        """All rollouts graded against gold, as `restrain eval` grades them; None without gold."""
        return None if self.gold is None else grade_vote(self.row, self.gold, self.kind)

    @property
    def majority_is_right(self) -> bool:
        return self.grades is not None and majority_right(self.grades.group, self.grades.correct)


@dataclass(frozen=True)
class FrozenPass:
    """The frozen model's rollouts, n for each prompt. A training group has the first `group_size` of them.

    `shares` has the majority's share of each prompt, and `totals` the rollouts of each answer by its key, over all
    prompts. `gold` has gold answers by the prompts' hashes, `inclusion` with what chance each was drawn for
    labelling, if that is known, by the same hashes or by ids, and `same` is FrozenGroup's.
    """

    kind: AnswerKind
    rows: Callable[[], Iterator[ReferenceRow]]
    n: int
    group_size: int
    shares: "array[float]"
    totals: Counter[str]
    gold: Mapping[str, str]
    same: Mapping[str, str]
    inclusion: Mapping[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> Iterator[FrozenGroup]:
        """The groups, read anew from the file each time, with one at a time in memory."""
        for row in self.rows():
            gold, chances = self.gold.get(row.problem_hash), self.inclusion
            chance = chances.get(row.problem_hash) or chances.get(str(row.id)) or 1.0
            yield FrozenGroup(row, self.group_size, gold, self.kind, self.same, 1 / chance)


def from_reference(
    path: Path, gold: Path | None = None, group_size: int | None = None, run: RunConfig | None = None
) -> FrozenPass:
    """An offline pass, with gold joined by problem or id. Gold may be there for some prompts alone.

    Raises DataError if the file is none, no prompt has gold, or a group is larger than the frozen model's vote;
    ReferencePassError where it is incomplete, and for a pass that does not fit the `run` whose votes it has.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: {'is a folder' if path.is_dir() else 'no such file'}. Give the reference file that "
            "`restrain reference` wrote, such as ref.jsonl."
        )
    reference = load_reference(path)
    if run is not None:
        refuse_other_run(reference, run)
    return _frozen_pass(path, reference.kind, lambda: iter(reference.rows), gold, {}, group_size)


def from_rollouts(
    path: Path, gold: Path | None = None, group_size: int | None = None, kind: AnswerKind = MATHEMATICS
) -> FrozenPass:
    """A file of rollouts {id, problem, responses, answer?, truncated?}, with gold from its rows or another file.

    Raises DataError for a damaged file, if rows differ in their number of rollouts, and for two answers to a problem.
    """
    kind.check(each.row(kind) for _, each in placed_rollouts(path))
    own: dict[str, str] = {}
    # The votes are counted once and kept in a file, which is then read like that of an offline pass.
    folder = TemporaryDirectory()

    def votes() -> Iterator[ReferenceRow]:
        for place, each in placed_rollouts(path):
            columns = kind.own_columns(each.model_extra or {}, graded=True)
            prompt = Prompt(each.id, each.problem, each.problem, "", columns)
            row = ReferenceRow.of(kind, prompt, each.rollouts(), is_shown=True)
            if (gold := stated_gold(kind, each.answer, f"{path}, {place}")) is not None:
                answer = sys.intern(gold)
                if own.setdefault(row.problem_hash, answer) != answer:
                    raise DataError(f"{path}: the problem of {each.id!r} has two answers in it. Keep the right one.")
            yield row

    def rows() -> Iterator[ReferenceRow]:
        return each_row(Path(folder.name) / "votes.jsonl", ReferenceRow)

    write_rows(Path(folder.name) / "votes.jsonl", votes())
    return _frozen_pass(path, kind, rows, gold, own, group_size)


def _frozen_pass(
    path: Path,
    kind: AnswerKind,
    rows: Callable[[], Iterator[ReferenceRow]],
    gold: Path | None,
    own: Mapping[str, str],
    group_size: int | None,
) -> FrozenPass:
    numbers, keys, shares = Counter[int](), Counter[str](), array("d")
    for row in rows():
        numbers[row.n] += 1
        shares.append(row.majority_share)
        keys.update(row.keys[label] for label in row.classes if label is not None)
    n, *others = sorted(numbers)
    if others:
        raise DataError(
            f"{path}: prompts have {[n, *others]} rollouts. Sizes of majorities can be compared only if every prompt "
            "has the same number."
        )
    if (size := group_size or n) > n:
        raise DataError(
            f"{path}: has {n} rollouts per prompt, but the configuration's groups have {size}. Sample that many with "
            "`restrain reference --n`, or leave --config out."
        )
    asked = (ProblemIdentity(None if row.id is None else str(row.id), row.problem_hash, row.row) for row in rows())
    file = load_gold(gold, kind, skip_empty=True) if gold else None
    answers = file.answers(str(path), asked) if file else own
    same = _same(kind, keys)
    totals = Counter[str]()
    for key, count in keys.items():
        totals[same.get(key, key)] += count
    return FrozenPass(kind, rows, n, size, shares, totals, answers, same, file.inclusion if file else {})


def _same(kind: AnswerKind, counts: Counter[str]) -> dict[str, str]:
    """For each key of an answer that equals one with a more frequent key, of whatever prompts, that key."""
    keys = sorted(counts, key=lambda key: (-counts[key], key))
    first: dict[int | None, str] = {}
    found = {key: first.setdefault(label, key) for key, label in zip(keys, kind.alike(keys), strict=True)}
    return {key: other for key, other in found.items() if key != other}
