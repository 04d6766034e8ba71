"""What a run asks of its reference artifact: that it was made for this run, and which prompts the method keeps."""

from collections.abc import Sequence

from restrain_openrlhf.answers import EXTRACTOR_VERSION
from restrain_openrlhf.data.identity import earlier_fingerprint
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.method.selection import Selection
from restrain_openrlhf.reference.artifact import Reference


def refuse_other_n(reference: Reference, n: int | None) -> None:
    """Raises ReferencePassError where the run says how many rollouts a prompt has there, and it has others."""
    if n is not None and reference.provenance.n != n:
        raise ReferencePassError(
            f"{reference.path} has {reference.provenance.n} rollouts per prompt, and reference_n asks for {n}. Sample "
            "another file, or keep the first ones of a larger one with `restrain subset-reference`."
        )


def refuse_mismatch(reference: Reference, fingerprint: str, template: str, prompts: Sequence[Prompt]) -> None:
    """Raises ReferencePassError naming the first difference: model, template, extractor, or a prompt without a row.

    The artifact may hold more prompts than are trained on, never fewer.
    """
    made = reference.provenance
    wanted = {
        "model": (made.model_fingerprint, fingerprint, f"it was made with {made.model!r}"),
        "template": (made.template, template, "prompts would read differently"),
        "answer extractor": (made.extractor_version, EXTRACTOR_VERSION, "answers would be read differently"),
    }
    for name, (found, needed, why) in wanted.items():
        if found != needed:
            raise ReferencePassError(
                f"{reference.path} was made for another {name}: {found!r}, this run has {needed!r}; {why}. "
                f"Make it again with `restrain reference`.{earlier_fingerprint(found)}"
            )
    for prompt in prompts:
        if reference.by_prompt(prompt.text) is None:
            raise ReferencePassError(
                f"{reference.path} was made for another prompt set: it has no row for {prompt.where} "
                f"({prompt.problem[:60]!r}). Make it again with `restrain reference` from this file."
            )


def selected(selection: Selection, reference: Reference, prompts: Sequence[str]) -> list[int]:
    """Positions, in order, of the prompts (as the policy sees them) that the selection keeps.

    Raises ReferencePassError for a prompt without a row, and where none is kept.
    """
    rows = [reference.by_prompt(prompt) for prompt in prompts]
    shares = [row.majority_share for row in rows if row is not None]
    if len(shares) < len(prompts):
        unknown = prompts[rows.index(None)]
        raise ReferencePassError(
            f"{reference.path} has no row for the prompt {unknown[:80]!r}. Make it again with `restrain reference` "
            "from the training file."
        )
    kept = selection(shares)
    if not kept:
        raise ReferencePassError(
            f"{selection} keeps none of the {len(prompts)} prompts; their highest majority share is {max(shares):.3f}. "
            "Lower easy_cutoff."
        )
    return kept
