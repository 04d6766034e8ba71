"""The reference artifact: JSON Lines with a row per prompt, and their provenance; joining shards, and subsets."""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row, parse_kind
from restrain_openrlhf.answers.kind import differing
from restrain_openrlhf.answers.votes import EXAMPLES, MANY_MISSING, end_of, missing_warning
from restrain_openrlhf.config.checks.keys import has_chat_template
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.data.identity import Provenance, provenance_path, text_hash
from restrain_openrlhf.data.jsonl import each_line, each_row, parse, write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import CHAT, Prompt
from restrain_openrlhf.reference.sampling_pass import OpenFile, SampledRow, each_of_parts, lines_file, shared_provenance


class ReferenceRow(SampledRow):
    """The frozen model's vote on one prompt, from n rollouts. Labels are numbered by first appearance.

    `classes` has the label of each answer, `counts` the votes of each label, and `keys` the key of each label's
    representative (`AnswerKind.key`), of which `AnswerKind.alike` says whether they are equal. `unread` has the end of
    one response that is not truncated and yet has no answer, if there is one. `truncated` counts the rollouts that were
    cut off at the limit of tokens; None in rows of earlier versions, and after rollouts were left out. `row` is the
    prompt's own data; mathematics needs none.
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

    def first(self, n: int, kind: AnswerKind) -> Self:
        """The vote of the first n answers, classified anew, because what made two of them equal may be gone."""
        group = GroupAnswers.of(kind, self.answers[:n], self.row)
        return self.model_copy(update={"truncated": None, **_labels(kind, group, self.row), **_vote(group)})

    def difference(self, prompt: Prompt) -> str | None:
        return differing(self.row, prompt.row) if self.row else None

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        return text_hash(prompt.text)

    @property
    def key(self) -> str:
        return self.prompt_hash


def _labels(kind: AnswerKind, group: GroupAnswers, row: Row) -> dict[str, Any]:
    return {"classes": group.classes, "keys": tuple(kind.key(answer, row) for answer in group.representatives())}


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
    places: Mapping[str, tuple[int, float]]
    file: OpenFile

    def refuse_missing(self, limit: float | None) -> None:
        """Raises ReferencePassError if more than `limit` of all rollouts have no answer; None: no limit."""
        if limit is not None and fmean(row.missing_share for row in self.each_row()) > limit:
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

    @cached_property
    def kind(self) -> AnswerKind:
        return self.provenance.kind

    def by_prompt_hash(self, digest: str) -> ReferenceRow | None:
        """The row of a prompt with its template applied."""
        return self._read(self.places[digest][0], digest) if digest in self.places else None

    def row(self, prompt: str, where: str = "the prompt", own: Row | None = None) -> ReferenceRow:
        """The row of a prompt with its template applied. Raises ReferencePassError, which names `where`, without one.

        The same if `own` is given, what the kind of answer reads of the prompt now, and the row has something else in a
        column that votes read.
        """
        found = self.by_prompt_hash(text_hash(prompt))
        if found is None:
            raise ReferencePassError(
                f"{self.path} was made for another prompt set: it has no row for {where} {prompt[:80]!r}. Make it "
                "again with `restrain reference` from the training file, with its template."
            )
        return self._same(found, own, f"{where} {prompt[:80]!r}")

    def by_problem(self, problem: str, own: Row | None = None) -> ReferenceRow | None:
        """The row of a problem's text without template. Raises what `row` raises for a row that differs from `own`."""
        digest = text_hash(problem)
        found = self._read(self._problems[digest], digest) if digest in self._problems else None
        return found and self._same(found, own, f"the problem {problem[:80]!r}")

    @cached_property
    def _problems(self) -> Mapping[str, int]:
        """The byte at which the last row of each problem begins, by the problem's hash."""
        return {parse(self.path, line, ReferenceRow).problem_hash: line.offset for line in each_line(self.path)}

    def _same(self, found: ReferenceRow, own: Row | None, where: str) -> ReferenceRow:
        if own is not None and (changed := differing(*map(self.kind.own_columns, (found.row, own)))):
            raise ReferencePassError(
                f"{self.path} was made for another row of {where}: its column {changed}, so that the votes are about "
                "other answers. Restore the column, or make the file again with `restrain reference`. Where a trainer "
                "or a service gives no columns, give it those of the prompts' file."
            )
        return found

    def shares(self, prompts: Iterable[str]) -> NDArray[np.float64]:
        """The `majority_share` of each prompt with its template applied; NaN for a prompt without a row."""
        nowhere = 0, np.nan
        return np.fromiter((self.places.get(text_hash(prompt), nowhere)[1] for prompt in prompts), np.float64)

    def _read(self, offset: int, digest: str) -> ReferenceRow:
        with suppress(ValueError):
            row = ReferenceRow.model_validate(json.loads(self.file.line(offset)))
            if digest in (row.prompt_hash, row.problem_hash):
                return row
        raise ReferencePassError(
            f"{self.path}: the row at byte {offset} has disappeared: the file was changed while it was in use. "
            "Restore the file, and start again."
        )


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
    file = OpenFile(path)
    return Reference(path, provenance, _checked(path, provenance), file)


def _checked(path: Path, provenance: ReferenceProvenance) -> dict[str, tuple[int, float]]:
    """Read and check every row, and return their places. Raises what `load_reference` raises."""
    found: dict[str, tuple[int, float]] = {}
    for line in each_line(path):
        row = parse(path, line, ReferenceRow)
        if not row.n == len(row.answers) == provenance.n:
            raise ReferencePassError(
                f"{path}, line {line.number}: has {len(row.answers)} answers and n {row.n}, but the provenance says "
                f"{provenance.n} rollouts per prompt. The row belongs to another pass: make the file again with "
                "`restrain reference`, or merge its own shards with `restrain data merge-reference`."
            )
        if row.prompt_hash in found:
            offset, _ = found[row.prompt_hash]
            first = next(each.number for each in each_line(path) if each.offset == offset)
            raise ReferencePassError(
                f"{path}, line {line.number}: repeats the prompt of line {first}. If the lines are equal, remove one; "
                "otherwise make the file again with `restrain reference`."
            )
        found[row.prompt_hash] = line.offset, row.majority_share
    if len(found) != provenance.prompt_count:
        raise ReferencePassError(
            f"{path}: holds {len(found)} of {provenance.prompt_count} prompts. Run the same `restrain reference` "
            "command again to finish it, or merge all shards with `restrain data merge-reference`."
        )
    return found


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
    _write(out, (row.first(n, reference.kind) for row in reference.each_row()), made.model_copy(update={"n": n}))
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
