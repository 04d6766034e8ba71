"""Outcomes for tests of what is made from them."""

from test_time.accuracy import Score
from test_time.outcome import BeforeAndAfter, Outcome


def score(policy="base model", benchmark="test", pass_at_1=0.5, majority=0.75, n=64) -> Score:
    return Score(
        policy=policy,
        benchmark=benchmark,
        problems=4,
        greedy=0.25,
        pass_at_1=pass_at_1,
        low=0.1,
        high=0.9,
        n=n,
        majority=majority,
        truncated_share=0.125,
    )


def comparison(right=3, right_before=2, greedy_before=0.25) -> BeforeAndAfter:
    return BeforeAndAfter(
        problems=4,
        right=right,
        right_before=right_before,
        greedy_before=greedy_before,
        solved=("c",),
        kept=2,
        lost=(),
    )


def outcome(**changes) -> Outcome:
    made = Outcome(
        name="mine",
        model="base",
        method="restrain",
        configuration="c.yaml",
        problems=4,
        steps=10,
        alarm=None,
        ended_early=False,
        unwatched=(),
        chosen_step=10,
        chosen_model="train/model",
        votes=16,
        vote_temperature=0.6,
        vote_top_p=0.95,
        changed=1,
        comparison=None,
        scores=(),
        heldout=(),
    )
    return made.model_copy(update=changes)
