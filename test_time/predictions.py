"""The answers for a test set: each problem's vote after the adaptation, beside the base model's."""

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import classes
from restrain_openrlhf.reference import Reference, ReferenceRow


class Prediction(BaseModel):
    """One problem: the majority answer and its share, the runner-up, and what the base model voted."""

    model_config = ConfigDict(frozen=True)

    id: str | int | None
    answer: str | None
    vote_share: float
    runner_up: str | None
    runner_up_share: float
    before: str | None
    before_share: float
    changed: bool


def predictions(before: Reference, after: Reference, ids: Sequence[str]) -> list[Prediction]:
    """One prediction per problem, in the order of `ids`; votes of several engines come in another."""
    base, adapted = ({str(row.id): row for row in votes.rows} for votes in (before, after))
    return [_prediction(base[one], adapted[one]) for one in ids]


def _prediction(before: ReferenceRow, after: ReferenceRow) -> Prediction:
    (answer, share), (second, second_share) = _top_two(after)
    return Prediction(
        id=after.id,
        answer=answer,
        vote_share=share,
        runner_up=second,
        runner_up_share=second_share,
        before=before.majority,
        before_share=before.majority_share,
        changed=_differ(before.majority, answer),
    )


def _top_two(row: ReferenceRow) -> list[tuple[str | None, float]]:
    """The two most common answers with their shares of all rollouts; None with share 0 where there are fewer."""
    labels = classes(row.answers)
    counts = Counter(label for label in labels if label is not None).most_common(2)
    found = [(row.answers[labels.index(label)], count / row.n) for label, count in counts]
    return [*found, (None, 0.0), (None, 0.0)][:2]


def _differ(one: str | None, other: str | None) -> bool:
    pair: Sequence[str | None] = (one, other)
    return len(set(classes(pair))) > 1
