"""Scores one whole group: the same function answers POST /v1/score and serves the executor that scores in process."""

from collections.abc import Sequence

from restrain_openrlhf.answers import canonical_key, final_answer
from restrain_openrlhf.answers.residual import RESIDUAL
from restrain_openrlhf.reward.wire import GroupReply, GroupRequest
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.vote_statistics import majority_answer


def score_whole_group(scorer: GroupScorer, group: GroupRequest) -> GroupReply:
    """The group's score. Pure but for latex2sympy2's process; call it from a thread, it may take seconds.

    Raises a RestrainError where the group cannot be scored: another size than the method draws, a prompt that the
    reference lacks, no gold for a method that reads it, or latex2sympy2 does not work.
    """
    answers = [final_answer(response.text, truncated=not response.finished) for response in group.responses]
    return score_answers(scorer, group.prompt, answers, group.gold, group.entropies)


def score_answers(
    scorer: GroupScorer,
    prompt: str,
    answers: Sequence[str | None],
    gold: str | None,
    entropies: tuple[float, ...] | None = None,
) -> GroupReply:
    """As `score_whole_group`, of the group's final answers (None: missing)."""
    timeouts, deaths = RESIDUAL.timed_out_in_this_thread, RESIDUAL.died_in_this_thread
    score = scorer.score(prompt, answers, gold, entropies)
    majority = majority_answer(answers)
    return GroupReply(
        answers=tuple(answers),
        classes=score.votes.classes,
        majority_count=score.votes.majority_count,
        majority_key=None if majority is None else canonical_key(majority),
        effective_labels=score.votes.effective_labels,
        label_weights=tuple(score.label_weights.tolist()),
        penalized=score.penalized,
        rewards=tuple(score.rewards.tolist()),
        advantage_pos=tuple(score.pair.positive.tolist()),
        advantage_neg=tuple(score.pair.negative.tolist()),
        prompt_weight=score.prompt_weight,
        kl_weight=score.kl_weight,
        residual_timeouts=RESIDUAL.timed_out_in_this_thread - timeouts,
        residual_deaths=RESIDUAL.died_in_this_thread - deaths,
    )
