"""The reference artifact: a row per prompt in JSON Lines, provenance beside it; joined from shards, or a subset."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row, parse_kind
from restrain_openrlhf.answers.votes import end_of, missing_warning
from restrain_openrlhf.data.identity import Provenance, text_hash
from restrain_openrlhf.data.jsonl import read_numbered_rows, write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.sampling_pass import SampledRow, join_parts


class ReferenceRow(SampledRow):
    """The frozen model's vote on one prompt: n rollouts, `counts` in order of first appearance of the labels.

    `classes` has each answer's label, `keys` each label's key (`AnswerKind.key`), equal across prompts. `unread` has
    the end of a response that ended by itself and has no answer, where there is one. `row` is the prompt's own data
    where the kind of answer reads more of it than the problem.
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
    row: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_before_there_were_kinds(cls, row: Any) -> Any:
        """Rows that earlier versions wrote are of mathematics, and without classes."""
        if not isinstance(row, dict) or "classes" in row or "answers" not in row:
            return row
        answers = row["answers"]
        return {**row, **_labels(MATHEMATICS, GroupAnswers.of(MATHEMATICS, answers, {}), {})}

    @classmethod
    def of(cls, kind: AnswerKind, prompt: Prompt, rollouts: Sequence[Rollout]) -> Self:
        """The vote of a prompt's rollouts; one that was truncated has no answer."""
        answers = [kind.voted_answer(each.text, each.truncated, prompt.row) for each in rollouts]
        pairs = zip(rollouts, answers, strict=True)
        texts = (each.text for each, answer in pairs if answer is None and not each.truncated)
        return cls.of_answers(prompt, answers, texts, kind)

    @classmethod
    def of_answers(
        cls,
        prompt: Prompt,
        answers: Sequence[str | None],
        texts: Iterable[str] = (),
        kind: AnswerKind = MATHEMATICS,
    ) -> Self:
        """The vote of n answers (None: missing); `texts` are responses that no answer was found in."""
        group = GroupAnswers.of(kind, answers, prompt.row)
        return cls(
            id=prompt.id,
            prompt_hash=text_hash(prompt.text),
            problem_hash=text_hash(prompt.problem),
            unread=tuple(map(end_of, islice(texts, 1))),
            row=dict(prompt.row) if kind.row_columns() else {},
            **_labels(kind, group, prompt.row),
            **_vote(group),
        )

    @property
    def group(self) -> GroupAnswers:
        """The answers with their classes."""
        return GroupAnswers(self.answers, self.classes)

    @property
    def majority_key(self) -> str | None:
        """The key of the majority's answer; None where there is none."""
        return self.keys[self.group.votes.majority] if self.keys else None

    def first(self, n: int) -> Self:
        """The vote of the first n answers."""
        group = self.group.first(n)
        keys = tuple(dict.fromkeys(self.keys[label] for label in self.classes[:n] if label is not None))
        return self.model_copy(update={"classes": group.classes, "keys": keys, **_vote(group)})

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        """The hash of the prompt as the policy sees it."""
        return text_hash(prompt.text)

    @property
    def key(self) -> str:
        """`prompt_hash`."""
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


def missing_in(rows: Sequence[ReferenceRow], kind: AnswerKind) -> str | None:
    """A warning where too many of the pass's rollouts have no answer, with examples; else None."""
    share = sum(row.missing_share for row in rows) / len(rows) if rows else 0.0
    return missing_warning(share, (text for row in rows for text in row.unread), "the pass's rollouts", kind)


class ReferenceProvenance(Provenance):
    """What an offline pass was made with."""

    about = "Reference artifacts"
    remedy = "Make it again with `restrain reference`."
    error = ReferencePassError
    # How rollouts are drawn, as `Sampling` has it.
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
    # The kind of answer with its settings; earlier versions, which knew mathematics alone, wrote none.
    answers: dict[str, Any] = Field(default_factory=lambda: MATHEMATICS.model_dump(mode="json"))
    extractor_version: str
    restrain_version: str

    @cached_property
    def kind(self) -> AnswerKind:
        """The kind of answer. Raises ConfigError where no such kind is installed."""
        return parse_kind(self.answers)


@dataclass(frozen=True)
class Reference:
    """A complete artifact, looked up by prompt (as the policy sees it) or by problem (as the data set states it)."""

    path: Path
    provenance: ReferenceProvenance
    rows: tuple[ReferenceRow, ...]

    @cached_property
    def _by_prompt(self) -> Mapping[str, ReferenceRow]:
        return {row.prompt_hash: row for row in self.rows}

    @cached_property
    def _by_problem(self) -> Mapping[str, ReferenceRow]:
        return {row.problem_hash: row for row in self.rows}

    def by_prompt(self, prompt: str) -> ReferenceRow | None:
        """The row of a prompt with its template applied."""
        return self._by_prompt.get(text_hash(prompt))

    def row(self, prompt: str, where: str = "the prompt") -> ReferenceRow:
        """As `by_prompt`. Raises ReferencePassError, which names `where`, for a prompt without a row."""
        found = self.by_prompt(prompt)
        if found is None:
            raise ReferencePassError(
                f"{self.path} was made for another prompt set: it has no row for {where} {prompt[:80]!r}. Make it "
                "again with `restrain reference` from the training file, with its template."
            )
        return found

    def by_problem(self, problem: str) -> ReferenceRow | None:
        """The row of a problem's bare text."""
        return self._by_problem.get(text_hash(problem))


def load_reference(path: Path) -> Reference:
    """The whole artifact, its answers as the installed extractor reads them.

    Raises ReferencePassError if it is incomplete, of another extractor, or has rows that belong to another pass;
    DataError if a row is damaged.
    """
    provenance = ReferenceProvenance.of(path)
    kind = provenance.kind
    if provenance.extractor_version != kind.version:
        raise ReferencePassError(
            f"{path} holds answers of extractor version {provenance.extractor_version!r} (of the kind {kind.name!r}); "
            f"this is version {kind.version!r}, and reads answers differently. Make it again with `restrain reference`."
        )
    numbered = read_numbered_rows(path, ReferenceRow)
    _refuse_other_rows(path, numbered, provenance.n)
    rows = tuple(row for _, row in numbered)
    if len(rows) != provenance.prompt_count:
        raise ReferencePassError(
            f"{path}: {len(rows)} of {provenance.prompt_count} prompts. Run the same `restrain reference` command "
            "again to finish it, or merge all shards with `restrain merge-reference`."
        )
    return Reference(path, provenance, rows)


def _refuse_other_rows(path: Path, numbered: Sequence[tuple[int, ReferenceRow]], n: int) -> None:
    first: dict[str, int] = {}
    for number, row in numbered:
        if row.n != n or len(row.answers) != n:
            raise ReferencePassError(
                f"{path}, line {number}: {len(row.answers)} answers and n {row.n}, and the provenance says {n} "
                "rollouts per prompt. The row is of another pass: make the file again with `restrain reference`, or "
                "merge its own shards with `restrain merge-reference`."
            )
        if row.key in first:
            raise ReferencePassError(
                f"{path}, line {number}: the prompt of line {first[row.key]} again. Remove one of the two if they are "
                "the same; else make the file again with `restrain reference`."
            )
        first[row.key] = number


def merge(shards: Sequence[Path], out: Path) -> int:
    """Join shards into one artifact; returns the number of rows. A single shard may be `out` itself.

    Raises ReferencePassError where shards differ in provenance, DataError where prompts are missing or overlap.
    """
    provenance, rows = join_parts(shards, ReferenceProvenance, ReferenceRow)
    if len(rows) != provenance.prompt_count:
        raise DataError(
            f"The {len(shards)} shards hold {len(rows)} of {provenance.prompt_count} prompts. Finish or add the "
            "missing shards."
        )
    write_rows(out, rows.values())
    provenance.write(out)
    return len(rows)


def subset(reference: Reference, out: Path, n: int) -> int:
    """Write the vote of the first `n` rollouts of each prompt; returns the number of rows.

    Raises ReferencePassError for more rollouts than were sampled, or an `out` that is the artifact itself.
    """
    made = reference.provenance
    if n > made.n:
        raise ReferencePassError(
            f"{reference.path} has {made.n} rollouts per prompt, and {n} are asked for. Sample more with "
            "`restrain reference --n`, into another file."
        )
    if out.resolve() == reference.path.resolve():
        raise ReferencePassError(f"--out {out}: is the artifact that is read. Name another file.")
    write_rows(out, (row.first(n) for row in reference.rows))
    made.model_copy(update={"n": n}).write(out)
    return len(reference.rows)
