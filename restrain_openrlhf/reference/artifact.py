"""The reference artifact: JSON Lines with a row per prompt, and their provenance; joining shards, and subsets."""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row, parse_kind
from restrain_openrlhf.answers.votes import EXAMPLES, MANY_MISSING, end_of, missing_warning
from restrain_openrlhf.config.checks.keys import has_chat_template
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.data.identity import Provenance, provenance_path, text_hash
from restrain_openrlhf.data.jsonl import Line, each_line, each_row, parse, write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import CHAT, Prompt
from restrain_openrlhf.reference.row_table import OpenFile, RowTable, TableColumns, shared_table
from restrain_openrlhf.reference.sampling_pass import SampledRow, each_of_parts, lines_file, shared_provenance


class ReferenceRow(SampledRow):
    """The frozen model's vote on one prompt, from n rollouts. Labels are numbered by first appearance.

    `classes` has the label of each answer, `counts` the votes of each label, and `keys` the key of each label
    (`AnswerKind.key`), which is equal for equal answers of any prompt. `unread` has the end of one response that is not
    truncated and yet has no answer, if there is one. `truncated` counts the rollouts that were cut off; None in older
    rows, and after rollouts were left out. `row` is the prompt's own data; mathematics needs none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str | int | None = None
    prompt_hash: str
    problem_hash: str
    n: int
    answers: tuple[str | None, ...]
    classes: tuple[int | None, ...]
    keys: tuple[str, ...]
    counts: tuple[int, ...]
    majority: str | None
    majority_count: int
    majority_share: float
    missing_share: float
    unread: tuple[str, ...] = ()
    truncated: int | None = None
    row: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, kind: AnswerKind, prompt: Prompt, rollouts: Sequence[Rollout]) -> Self:
        """The vote of a prompt's rollouts. A truncated rollout has no answer."""
        answers = [kind.voted_answer(each.text, each.truncated, prompt.row) for each in rollouts]
        pairs = zip(rollouts, answers, strict=True)
        texts = (each.text for each, answer in pairs if answer is None and not each.truncated)
        found = cls.of_answers(prompt, answers, texts, kind)
        return found.model_copy(update={"truncated": sum(each.truncated for each in rollouts)})

    @classmethod
    def of_answers(
        cls,
        prompt: Prompt,
        answers: Sequence[str | None],
        texts: Iterable[str] = (),
        kind: AnswerKind = MATHEMATICS,
    ) -> Self:
        """The vote of n answers (None: missing); `texts` are responses in which no answer was found."""
        group = GroupAnswers.of(kind, answers, prompt.row)
        return cls(
            id=prompt.id,
            prompt_hash=text_hash(prompt.text),
            problem_hash=text_hash(prompt.problem),
            unread=tuple(map(end_of, islice(texts, 1))),
            row={} if kind == MATHEMATICS else dict(prompt.row),
            **_labels(kind, group, prompt.row),
            **_vote(group),
        )

    @property
    def group(self) -> GroupAnswers:
        return GroupAnswers(self.answers, self.classes)

    @property
    def majority_key(self) -> str | None:
        """The key of the majority's answer; None if no rollout has an answer."""
        return self.keys[self.group.votes.majority] if self.keys else None

    def first(self, n: int) -> Self:
        """The vote of the first n answers."""
        group = self.group.first(n)
        keys = tuple(dict.fromkeys(self.keys[label] for label in self.classes[:n] if label is not None))
        return self.model_copy(update={"classes": group.classes, "keys": keys, "truncated": None, **_vote(group)})

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        return text_hash(prompt.text)

    @property
    def key(self) -> str:
        return self.prompt_hash


def _labels(kind: AnswerKind, group: GroupAnswers, row: Row) -> dict[str, Any]:
    return {"classes": group.classes, "keys": tuple(kind.key(answer, row) for answer in group.firsts())}


def _vote(group: GroupAnswers) -> dict[str, Any]:
    votes = group.votes
    return {
        "n": votes.n,
        "answers": group.answers,
        "counts": votes.counts,
        "majority": group.majority,
        "majority_count": votes.majority_count,
        "majority_share": votes.majority_count / votes.n,
        "missing_share": votes.classes.count(None) / votes.n,
    }


class ReferenceProvenance(Provenance):
    """How an offline pass was made."""

    about = "Reference artifacts"
    remedy = "Make it again with `restrain reference`."
    error = ReferencePassError
    # The fields that it shares with `Sampling`: how rollouts are drawn.
    DRAWN: ClassVar = frozenset({"n", "temperature", "top_p", "max_new_tokens", "max_len", "seed"})

    model: str
    model_fingerprint: str
    template: str
    prompt_set_hash: str
    prompt_count: int
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int
    max_len: int
    seed: int
    # The kind of answer with its settings. Earlier versions, which only knew mathematics, did not write it.
    answers: dict[str, Any] = Field(default_factory=lambda: MATHEMATICS.model_dump(mode="json"))
    extractor_version: str
    restrain_version: str
    # The identity of the agent that drew the trajectories; None for a single turn.
    agent: str | None = None

    @property
    def kind(self) -> AnswerKind:
        """The kind of answer. Raises ConfigError if no such kind is installed."""
        return parse_kind(self.answers)


def missing_in(path: Path, made: ReferenceProvenance, many: float = MANY_MISSING) -> str | None:
    """A warning, with examples and causes, if more than `many` of the file's rollouts have no answer; else None."""
    missing, cut, unread = array("d"), 0, dict[str, None]()
    for row in each_row(path, ReferenceRow):
        missing.append(row.missing_share)
        cut += row.truncated or 0
        unread.update(dict.fromkeys(row.unread if len(unread) < EXAMPLES else ()))
    share = sum(missing) / max(len(missing), 1)
    warning = missing_warning(share, unread, "the pass's rollouts", made.kind, many)
    return warning and " ".join([warning, *_causes(made, cut / max(len(missing) * made.n, 1))])


def _causes(made: ReferenceProvenance, cut_share: float) -> Iterator[str]:
    """What else a pass with many missing answers shows, and what to change."""
    if round(cut_share, 2):
        yield f"{cut_share:.0%} were cut off at {made.max_new_tokens} tokens: raise rollout.max_new_tokens."
    if not made.template.startswith(CHAT) and has_chat_template(made.model):
        yield f"The prompts are without the tokenizer's chat template: set openrlhf.{CHAT_TEMPLATE} for a chat model."


@dataclass(frozen=True, eq=False)
class Reference:
    """A complete artifact, in which rows are found by the policy's prompt, or by the problem as the data set states it.

    A row is read from the file when it is asked for. `file` stays open, so that another file of the same name is not
    read.
    """

    path: Path
    provenance: ReferenceProvenance
    table: RowTable
    file: OpenFile

    def refuse_missing(self, limit: float | None) -> None:
        """Raises ReferencePassError if more than `limit` of all rollouts have no answer; None: no limit."""
        if limit is not None and self.table.missing_share > limit:
            raise ReferencePassError(
                f"{self.path}: {missing_in(self.path, self.provenance, limit)} So few votes make no pseudo-labels, and "
                f"no training begins. To train all the same, raise `missing_limit` (now {limit:g}), or set it to null."
            )

    @property
    def rows(self) -> tuple[ReferenceRow, ...]:
        """All rows in the file's order, read at every call."""
        return tuple(self.each_row())

    def each_row(self) -> Iterator[ReferenceRow]:
        return each_row(self.path, ReferenceRow)

    def by_prompt(self, prompt: str) -> ReferenceRow | None:
        """The row of a prompt with its template applied."""
        return self.by_prompt_hash(text_hash(prompt))

    def by_prompt_hash(self, digest: str) -> ReferenceRow | None:
        rows = map(self._read, self.table.of_prompt(digest))
        return next((row for row in rows if row.prompt_hash == digest), None)

    def row(self, prompt: str, where: str = "the prompt") -> ReferenceRow:
        """As `by_prompt`, but raises ReferencePassError, which names `where`, for a prompt without a row."""
        found = self.by_prompt(prompt)
        if found is None:
            raise ReferencePassError(
                f"{self.path} was made for another prompt set: it has no row for {where} {prompt[:80]!r}. Make it "
                "again with `restrain reference` from the training file, with its template."
            )
        return found

    def by_problem(self, problem: str) -> ReferenceRow | None:
        """The row of a problem's text without template."""
        digest = text_hash(problem)
        rows = map(self._read, self.table.of_problem(digest))
        return next((row for row in rows if row.problem_hash == digest), None)

    def shares(self, prompts: Iterable[str]) -> NDArray[np.float64]:
        """The `majority_share` of each prompt with its template applied; NaN for a prompt without a row."""
        return self.table.shares(map(text_hash, prompts))

    def _read(self, offset: int) -> ReferenceRow:
        try:
            return ReferenceRow.model_validate(json.loads(self.file.line(offset)))
        except ValueError:
            raise ReferencePassError(
                f"{self.path}: the row at byte {offset} has disappeared: the file was changed while it was in use. "
                "Restore the file, and start again."
            ) from None


def load_reference(path: Path) -> Reference:
    """Open an artifact, whose answers must have been read by the installed extractor.

    Raises ReferencePassError if it is incomplete, was read by another extractor, or has rows of another pass; DataError
    if a row is damaged.
    """
    provenance = ReferenceProvenance.of(path)
    kind = provenance.kind
    if provenance.extractor_version != kind.whole_version:
        raise ReferencePassError(
            f"{path} holds answers read by version {provenance.extractor_version!r} of the extractor (kind "
            f"{kind.name!r}); this is version {kind.whole_version!r}, which reads answers differently. Make it again "
            "with `restrain reference`."
        )
    # Reading a line first raises the usual error for a file that cannot be read.
    next(each_line(path), None)
    file, checked = OpenFile(path), f"{version('restrain-openrlhf')}, {provenance.n} of {provenance.prompt_count}"
    return Reference(path, provenance, shared_table(path, checked, lambda: _checked(path, file, provenance)), file)


def _checked(path: Path, file: OpenFile, provenance: ReferenceProvenance) -> RowTable:
    """Read and check every row, and make the table. Raises what `load_reference` raises."""
    found, other = TableColumns(), None
    for line in each_line(path):
        row = parse(path, line, ReferenceRow)
        other = other or _of_another_pass(path, line, row, provenance.n)
        if other is None:
            found.add(row.prompt_hash, row.problem_hash, line, row.majority_share, row.missing_share)
    _refuse_twice(path, file, found)
    if other is not None:
        raise other
    if len(found) != provenance.prompt_count:
        raise ReferencePassError(
            f"{path}: holds {len(found)} of {provenance.prompt_count} prompts. Run the same `restrain reference` "
            "command again to finish it, or merge all shards with `restrain data merge-reference`."
        )
    return found.table()


def _of_another_pass(path: Path, line: Line, row: ReferenceRow, n: int) -> ReferencePassError | None:
    if row.n == len(row.answers) == n:
        return None
    return ReferencePassError(
        f"{path}, line {line.number}: has {len(row.answers)} answers and n {row.n}, but the provenance says {n} "
        "rollouts per prompt. The row belongs to another pass: make the file again with `restrain reference`, or "
        "merge its own shards with `restrain data merge-reference`."
    )


def _refuse_twice(path: Path, file: OpenFile, found: TableColumns) -> None:
    """Raises ReferencePassError naming the first line that repeats the prompt of an earlier line."""
    for first, again in found.alike():
        rows = (json.loads(file.line(found.offsets[place])) for place in (first, again))
        if len({row["prompt_hash"] for row in rows}) == 1:
            raise ReferencePassError(
                f"{path}, line {found.numbers[again]}: repeats the prompt of line {found.numbers[first]}. If the "
                "lines are equal, remove one; otherwise make the file again with `restrain reference`."
            )


def merge(shards: Sequence[Path], out: Path) -> int:
    """Join shards into one artifact, and return its number of rows. A single shard may be `out` itself.

    Raises ReferencePassError if shards differ in provenance, DataError where prompts are missing or overlap.
    """
    provenance = shared_provenance(shards, ReferenceProvenance)
    count = 0

    def rows() -> Iterator[ReferenceRow]:
        nonlocal count
        for count, row in enumerate(each_of_parts(shards, ReferenceRow), start=1):  # noqa: B007 - told at the end
            yield row
        if count != provenance.prompt_count:
            raise DataError(
                f"The {len(shards)} shards hold {count} of {provenance.prompt_count} prompts. Finish or add the "
                "missing shards."
            )

    _write(out, rows(), provenance)
    return count


def subset(reference: Reference, out: Path, n: int) -> int:
    """Write the votes of the first `n` rollouts of each prompt, and return the number of rows.

    Raises ReferencePassError if `n` is more than were sampled, and where `out` is the artifact itself.
    """
    made = reference.provenance
    if n > made.n:
        raise ReferencePassError(
            f"{reference.path} has {made.n} rollouts per prompt, but {n} are asked for. Sample more with `restrain "
            "reference --n`, into another file."
        )
    if out.resolve() == reference.path.resolve():
        raise ReferencePassError(f"--out {out}: is the file that is read. Name another file.")
    _write(out, (row.first(n) for row in reference.each_row()), made.model_copy(update={"n": n}))
    return made.prompt_count


def _write(out: Path, rows: Iterable[ReferenceRow], provenance: ReferenceProvenance) -> None:
    """Write rows and provenance so that no file ever has the provenance of another.

    A kill leaves the old file with its provenance, or a file without provenance, which readers refuse.
    """

    def rows_and_no_old_provenance() -> Iterator[ReferenceRow]:
        yield from rows
        old = provenance_path(out)
        if old.exists() and old.read_text(encoding="utf-8") != provenance.text:
            old.unlink()

    write_rows(lines_file(out), rows_and_no_old_provenance())
    provenance.write(out)
