"""Rows of metrics for tests, as a run would have logged them."""

from restrain_openrlhf.records.metrics import ENTROPY, KL, StepRow


def step(number: int, kl=0.01, entropy=1.0, top=0.1, majority=0.5, prompts=8, missing=0.0) -> StepRow:
    votes = {
        "top_answer_share": top,
        "majority_share_mean": majority,
        "missing_share_of_voters": missing,
        "prompts": prompts,
        "majority_histogram": [0, 0, prompts],
    }
    numbers = {KL: kl, ENTROPY: entropy}
    return StepRow(step=number, numbers={name: each for name, each in numbers.items() if each is not None}, votes=votes)


def steps(count: int, **series) -> list[StepRow]:
    """`count` rows; each value is one number for all, or a list with one for each."""
    return [
        step(place + 1, **{name: value[place] if isinstance(value, list) else value for name, value in series.items()})
        for place in range(count)
    ]
