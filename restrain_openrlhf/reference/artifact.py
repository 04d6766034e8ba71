"""The reference artifact: votes on each prompt, how they were drawn, and whether they fit the run that reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers, Row
from restrain_openrlhf.answers.kind import differing
from restrain_openrlhf.answers.shown import Responses
from restrain_openrlhf.answers.votes import MANY_MISSING, MissingSoFar, end_of
from restrain_openrlhf.config.checks.model_files import template_of
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.identity import Provenance, model_fingerprint, text_hash
from restrain_openrlhf.data.jsonl import each_row
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method.types import Selection
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import CHAT, Prompt, problems_of, prompt_source, template_identity
from restrain_openrlhf.reference.sampling_pass import RowsByKey, SampledRow

# How rollouts are drawn, in what decides on their answers.
SAMPLING = ("temperature", "top_p", "max_new_tokens")
_REMEDY = "Make it again with `restrain reference`"
_OTHER_N = (
    "without reference_n it is that of training. Sample another file, keep the first rollouts of a larger one with "
    "`restrain data subset-reference`, or set reference_n: {} to use this number."
)
_OTHER_SAMPLING = (
    f"the votes are about other rollouts. {_REMEDY} and the run's sampling, or set reference_sampling: any to accept "
    "the file."
)


class ReferenceRow(SampledRow, frozen=True, extra="forbid"):
    """The frozen model's vote on one prompt, from n rollouts. Labels are numbered by first appearance.

    `classes` has the label of each answer, `counts` the votes of each label, and `keys` the key of each label's
    representative (`AnswerKind.key`), of which `AnswerKind.alike` says whether they are equal. `unread` has the end of
    one response that is not truncated and yet has no answer, if there is one. `truncated` counts the rollouts that were
    cut off at the limit of tokens; None after rollouts were left out. `responses` are there where a group is read
    together and for some prompts to show, None for each that was cut off. `row` is the prompt's own data; mathematics
    needs none.
    """

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
    responses: tuple[str | None, ...] = ()
    row: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, kind: AnswerKind, prompt: Prompt, rollouts: Sequence[Rollout], is_shown: bool = False) -> Self:
        """The vote of a prompt's rollouts, with their texts if it `is_shown`. A truncated rollout has no answer."""
        texts, truncated = [each.text for each in rollouts], [each.truncated for each in rollouts]
        group = Responses.of(texts, truncated, dict(prompt.row))
        answers = group.answers(kind)
        pairs = zip(group.texts, answers, strict=True)
        unread = (end_of(text) for text, answer in pairs if answer is None and text is not None)
        keeps = is_shown or kind.reads_together(prompt.row)
        kept = {"responses": group.texts, "row": group.row} if keeps else {}
        counted = {"unread": tuple(islice(unread, 1)), "truncated": group.texts.count(None)}
        return cls.of_answers(prompt, answers, kind).model_copy(update={**counted, **kept})

    @classmethod
    def of_answers(cls, prompt: Prompt, answers: Sequence[str | None], kind: AnswerKind = MATHEMATICS) -> Self:
        """The vote of n answers (None: missing)."""
        return cls(
            id=prompt.id,
            prompt_hash=text_hash(prompt.text),
            problem_hash=text_hash(prompt.problem),
            row={} if kind == MATHEMATICS else dict(prompt.row),
            **_vote(kind, GroupAnswers.of(kind, answers, prompt.row), prompt.row),
        )

    @property
    def group(self) -> GroupAnswers:
        return GroupAnswers(self.answers, self.classes)

    @property
    def majority_key(self) -> str | None:
        return self.keys[self.group.votes.majority] if self.keys else None

    @property
    def shown(self) -> Responses:
        """The responses, as far as they are kept."""
        return Responses(self.responses, self.row)

    def first(self, n: int, kind: AnswerKind) -> Self:
        """The vote of the first n rollouts, classified anew, because what made two answers equal may be gone.

        Where a group is read together, they are also read anew.
        """
        answers, responses = self.answers[:n], self.responses[:n]
        if kind.reads_together(self.row) and n < self.n:
            answers = tuple(Responses(responses, self.row).answers(kind))
        group, changed = GroupAnswers.of(kind, answers, self.row), {"truncated": None, "responses": responses}
        return self.model_copy(update={**changed, **_vote(kind, group, self.row)})

    def difference(self, prompt: Prompt) -> str | None:
        return differing(self.row, prompt.row) if self.row else None

    @classmethod
    def key_of(cls, prompt: Prompt) -> str:
        return text_hash(prompt.text)

    @property
    def key(self) -> str:
        return self.prompt_hash


def _vote(kind: AnswerKind, group: GroupAnswers, row: Row) -> dict[str, Any]:
    votes = group.votes
    return {
        "n": votes.n,
        "answers": group.answers,
        "classes": group.classes,
        "keys": tuple(kind.key(answer, row) for answer in group.representatives()),
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

    prompt_set_hash: str
    prompt_count: int
    max_len: int
    extractor_version: str
    restrain_version: str
    # The identity of the agent that drew the trajectories; None for a single turn.
    agent: str | None = None


def missing_in(path: Path, made: ReferenceProvenance, many: float = MANY_MISSING) -> str | None:
    """A warning, with examples and causes, if more than `many` of the file's rollouts have no answer; else None."""
    found, cut = MissingSoFar(), 0
    for row in each_row(path, ReferenceRow):
        found.add(row.shown, row.classes, row.unread)
        cut += row.truncated or 0
    warning, cut_share = found.warning("the pass's rollouts", made.kind, many), cut / max(found.rollouts, 1)
    if warning and round(cut_share, 2):
        warning += f" {cut_share:.0%} were cut off at {made.max_new_tokens} tokens: raise rollout.max_new_tokens."
    if warning and not made.template.startswith(CHAT) and template_of(made.model):
        warning += f" The prompts lack the tokenizer's chat template: set openrlhf.{CHAT_TEMPLATE} for a chat model."
    return warning


@dataclass(frozen=True, eq=False)
class Reference:
    """A complete artifact, in which rows are found by the policy's prompt, or by the problem as the data set states it.

    `rows` are read from the file when they are asked for.
    """

    path: Path
    provenance: ReferenceProvenance
    rows: RowsByKey[ReferenceRow]

    def refuse_missing(self, limit: float | None) -> None:
        """Raises ReferencePassError if more than `limit` of all rollouts have no answer; None: no limit."""
        if limit is not None and (warning := missing_in(self.path, self.provenance, limit)):
            raise ReferencePassError(
                f"{self.path}: {warning} So few votes make no pseudo-labels, and no training begins. To train all the "
                f"same, raise `missing_limit` (now {limit:g}), or set it to null."
            )

    @cached_property
    def kind(self) -> AnswerKind:
        return self.provenance.kind

    def row(self, prompt: str, where: str = "the prompt", own: Row | None = None) -> ReferenceRow:
        """The row of a prompt with its template applied. Raises ReferencePassError, which names `where`, without one.

        The same if `own` is given, what the kind of answer reads of the prompt now, and the row has something else in a
        column that votes read.
        """
        found = self.rows.get(text_hash(prompt))
        if found is None:
            raise ReferencePassError(
                f"{self.path} was made for another prompt set: it has no row for {where} {prompt[:80]!r}. Make it "
                "again with `restrain reference` from the training file, with its template."
            )
        return self._same(found, own, f"{where} {prompt[:80]!r}")

    def by_problem(self, problem: str, own: Row | None = None) -> ReferenceRow | None:
        """The row of a problem's text without template. Raises what `row` raises for a row that differs from `own`."""
        found = self.rows.get(self._prompts.get(text_hash(problem), ""))
        return found and self._same(found, own, f"the problem {problem[:80]!r}")

    @cached_property
    def _prompts(self) -> Mapping[str, str]:
        """The hash of the last prompt of each problem, by the problem's hash."""
        return {row.problem_hash: row.prompt_hash for row in self.rows}

    def _same(self, found: ReferenceRow, own: Row | None, where: str) -> ReferenceRow:
        if own is not None and (changed := differing(*map(self.kind.own_columns, (found.row, own)))):
            raise ReferencePassError(
                f"{self.path} was made for another row of {where}: its column {changed}, so that the votes are about "
                "other answers. Restore the column, or make the file again with `restrain reference`. Where a trainer "
                "or a service gives no columns, give it those of the prompts' file."
            )
        return found


def load_reference(path: Path) -> Reference:
    """Open an artifact, whose answers must have been read by the installed extractor.

    Raises ReferencePassError if it is incomplete, was read by another extractor, or has rows of another pass; DataError
    if a row is damaged or there twice.
    """
    provenance = ReferenceProvenance.of(path)
    kind = provenance.kind
    if provenance.extractor_version != kind.whole_version:
        raise ReferencePassError(
            f"{path} holds answers read by version {provenance.extractor_version!r} of the kind {kind.name!r}; this is "
            f"version {kind.whole_version!r}, which reads differently. Make it again with `restrain reference`."
        )
    rows = RowsByKey([path], ReferenceRow, partial(_refuse_other_pass, provenance.n))
    if len(rows) != provenance.prompt_count:
        raise ReferencePassError(
            f"{path}: holds {len(rows)} of {provenance.prompt_count} prompts. Run the same `restrain reference` "
            "command again to finish it, or merge all shards with `restrain data merge-reference`."
        )
    return Reference(path, provenance, rows)


def _refuse_other_pass(n: int, where: str, row: ReferenceRow) -> None:
    if not row.n == len(row.answers) == n:
        raise ReferencePassError(
            f"{where}: has {len(row.answers)} answers and n {row.n}, but the provenance says {n} rollouts per prompt. "
            "Make it again with `restrain reference`, or merge its own shards with `restrain data merge-reference`."
        )


class NeededReference(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """How a run's reference must have been made. None: unknown to whoever asks, or of no importance.

    `n` is the number of rollouts per prompt, and `max_new_tokens` their limit. `agent` is the identity of the agent
    that draws trajectories, and here None means a single turn.
    """

    model_fingerprint: str | None = None
    template: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    agent: str | None = None

    def by(self, reference_n: int | None, reference_sampling: Literal["same", "any"]) -> Self:
        """What is needed with a configuration's keys applied: its number of rollouts, and which sampling may differ."""
        differ = dict.fromkeys(SAMPLING) if reference_sampling == "any" else {}
        return self.model_copy(update={**differ, "n": reference_n or self.n})


def refuse_mismatch(reference: Reference, needed: NeededReference) -> None:
    """Raises ReferencePassError naming the first difference: model, template, agent, rollouts per prompt, sampling."""
    made, one = reference.provenance, "a single turn"
    agents = made.agent or one, needed.agent or one
    for name, found, wanted, why in (
        ("model", made.model_fingerprint, needed.model_fingerprint, f"it was made with {made.model!r}. {_REMEDY}."),
        ("template", made.template, needed.template, f"prompts would read differently. {_REMEDY}."),
        ("agent", *agents, f"the votes are about other answers. {_REMEDY} and the run's `agent:` (--agent)."),
        ("number of rollouts per prompt", made.n, needed.n, _OTHER_N.format(made.n)),
        *((name, getattr(made, name), getattr(needed, name), _OTHER_SAMPLING) for name in SAMPLING),
    ):
        if wanted not in (None, found):
            raise ReferencePassError(
                f"{reference.path} was made for another {name}: it has {found!r}, this run has {wanted!r}; {why}"
            )


def refuse_other_run(reference: Reference, config: RunConfig) -> None:
    """Raises ReferencePassError for a pass of another kind of answer, agent, model, template or set of prompts.

    Neither the hub nor a tokenizer is asked: a model's chat template, and prompts that are no local file, go unchecked.
    """
    refuse_other_kind(reference, config.answers)
    flags, made = flags_of(config), reference.provenance
    model, dataset = str(flags["actor.model_name_or_path"]), Path(flags["data.prompt_dataset"] or "no prompts")
    # The files of a model with the same name are not read again, because hashing them takes long.
    is_comparable = model != made.model and (Path(model).is_dir() or made.model_fingerprint.startswith("commit:"))
    fingerprint = (model_fingerprint(model) if Path(model).is_dir() else model) if is_comparable else None
    source = prompt_source(flags) if dataset.exists() else None
    template = template_identity(source) if source and not source.apply_chat_template else None
    needed = NeededReference(model_fingerprint=fingerprint, template=template, agent=config.agent_identity)
    refuse_mismatch(reference, needed)
    if source is not None:
        rows = islice(problems_of(source), source.max_samples)
        known = [reference.by_problem(problem, config.answers.row(problem, row)) for problem, row in rows]
        if None in known or len(known) != made.prompt_count:
            raise ReferencePassError(
                f"{reference.path} was made for other prompts than those of {dataset}: {made.prompt_count} prompts, of "
                f"which {sum(each is not None for each in known)} are among its {len(known)}. {_REMEDY}, or read "
                "all of its prompts with `restrain premise --reference`."
            )


def refuse_other_kind(reference: Reference, kind: AnswerKind) -> None:
    """Raises ReferencePassError if the pass read another kind of answer, or the same kind with other settings."""
    made = reference.provenance.kind
    if made.identity != kind.identity:
        raise ReferencePassError(
            f"{reference.path} holds answers of the kind {made.identity!r}, but this run reads {kind.identity!r}, so "
            f"that the votes are about other answers. {_REMEDY} and the same `answers:` block."
        )


def selected(selection: Selection, reference: Reference, prompts: Sequence[str]) -> list[int]:
    """The positions, ascending, of the prompts (as the policy sees them) that the selection keeps.

    Raises ReferencePassError for a prompt without a row, and where none is kept.
    """
    shares = [reference.row(prompt).majority_share for prompt in prompts]
    kept = selection(shares)
    if not kept:
        raise ReferencePassError(
            f"The method keeps none of the {len(prompts)} prompts: the highest majority share is {max(shares):.3f}. "
            "Lower easy_cutoff."
        )
    return kept
