"""One prompt's rollouts of the frozen model as a row of the artifact."""

from collections.abc import Sequence
from typing import Any

from restrain_openrlhf.answers import classes
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.reference.artifact import ReferenceRow, text_hash


def reference_row(prompt: Prompt, answers: Sequence[str | None]) -> ReferenceRow:
    """The vote of n answers (None: missing or truncated); the first label to appear wins a tie."""
    return ReferenceRow(
        id=prompt.id, prompt_hash=text_hash(prompt.text), problem_hash=text_hash(prompt.problem), **_vote(answers)
    )


def first_of(row: ReferenceRow, n: int) -> ReferenceRow:
    """The vote of the row's first n answers."""
    return ReferenceRow(id=row.id, prompt_hash=row.prompt_hash, problem_hash=row.problem_hash, **_vote(row.answers[:n]))


def _vote(answers: Sequence[str | None]) -> dict[str, Any]:
    labels = classes(answers)
    present = [label for label in labels if label is not None]
    counts = [present.count(label) for label in range(max(present, default=-1) + 1)]
    majority_count = max(counts, default=0)
    return {
        "n": len(answers),
        "answers": tuple(answers),
        "counts": tuple(counts),
        "majority": answers[labels.index(counts.index(majority_count))] if counts else None,
        "majority_count": majority_count,
        "majority_share": majority_count / len(answers),
        "missing_share": labels.count(None) / len(answers),
    }
