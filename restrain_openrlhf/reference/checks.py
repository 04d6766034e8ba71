"""Checks that a reference artifact was made for the run that reads it, and selects the prompts that a method keeps."""

from collections.abc import Iterable, Sequence
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method.composition import Selection
from restrain_openrlhf.reference.artifact import Reference
from restrain_openrlhf.reference.prompts import Prompt

SAMPLING = ("temperature", "top_p", "max_new_tokens")
_REMEDY = "Make it again with `restrain reference`"


class NeededReference(BaseModel):
    """How a run's reference must have been made. None: unknown to whoever asks, or of no importance.

    `n` is the number of rollouts per prompt, and `max_new_tokens` their limit. `agent` is the identity of the agent
    that draws trajectories, and here None means a single turn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

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
    _refuse_other_source(reference, needed)
    _refuse_other_n(reference, needed.n)
    _refuse_other_sampling(reference, needed)


def _refuse_other_source(reference: Reference, needed: NeededReference) -> None:
    """Raises ReferencePassError if another model, template or agent drew the rollouts."""
    made = reference.provenance
    for name, found, wanted, why in (
        ("model", made.model_fingerprint, needed.model_fingerprint, f"it was made with {made.model!r}"),
        ("template", made.template, needed.template, "prompts would read differently"),
    ):
        if wanted not in (None, found):
            raise ReferencePassError(
                f"{reference.path} was made for another {name}: it has {found!r}, this run has {wanted!r}; {why}. "
                f"{_REMEDY}."
            )
    if made.agent != needed.agent:
        raise ReferencePassError(
            f"{reference.path} was drawn by {made.agent or 'a single turn'}, but this run draws by "
            f"{needed.agent or 'a single turn'}, so that the votes are about other answers. {_REMEDY} and the run's "
            "`agent:` (--agent)."
        )


def _refuse_other_n(reference: Reference, n: int | None) -> None:
    made = reference.provenance.n
    if n not in (None, made):
        raise ReferencePassError(
            f"{reference.path} has {made} rollouts per prompt, but the run needs {n} (reference_n; if that is not "
            "set, as many as in training). Sample another file, keep the first rollouts of a larger one with "
            f"`restrain data subset-reference`, or set reference_n: {made} to use this number."
        )


def _refuse_other_sampling(reference: Reference, needed: NeededReference) -> None:
    for name in SAMPLING:
        drawn, draws = getattr(reference.provenance, name), getattr(needed, name)
        if draws not in (None, drawn):
            raise ReferencePassError(
                f"{reference.path} was sampled with {name} {drawn}, but this run draws with {draws}, so that the "
                f"votes are about other rollouts. {_REMEDY} and the run's sampling, or set reference_sampling: any to "
                "accept the file."
            )


def refuse_other_kind(reference: Reference, kind: AnswerKind) -> None:
    """Raises ReferencePassError if the pass read another kind of answer, or the same kind with other settings."""
    made = reference.provenance.kind
    if made.identity != kind.identity:
        raise ReferencePassError(
            f"{reference.path} holds answers of the kind {made.identity!r}, but this run reads {kind.identity!r}, so "
            f"that the votes are about other answers. {_REMEDY} and the same `answers:` block."
        )


def refuse_missing(reference: Reference, prompts: Sequence[Prompt]) -> None:
    """Raises ReferencePassError for a prompt without a row, or with a row that differs in what votes read of it.

    Rows of prompts that are not trained on are allowed.
    """
    places: Iterable[int] = np.flatnonzero(np.isnan(reference.shares(prompt.text for prompt in prompts)))
    if reference.kind.row_columns():
        places = range(len(prompts))
    for place in places:
        reference.row(prompts[place].text, prompts[place].where, prompts[place].row)


def selected(selection: Selection, reference: Reference, prompts: Sequence[str]) -> list[int]:
    """The positions, ascending, of the prompts (as the policy sees them) that the selection keeps.

    Raises ReferencePassError for a prompt without a row, and where none is kept.
    """
    found = reference.shares(prompts)
    for place in np.flatnonzero(np.isnan(found)):
        reference.row(prompts[place])
    shares: list[float] = found.tolist()
    kept = selection(shares)
    if not kept:
        raise ReferencePassError(
            f"{selection} keeps none of the {len(prompts)} prompts: the highest majority share is {max(shares):.3f}. "
            "Lower easy_cutoff."
        )
    return kept
