"""Which prompts a method trains on, read off the frozen model's votes."""

from collections.abc import Sequence

from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.method.selection import Selection
from restrain_openrlhf.reference.artifact import Reference


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
