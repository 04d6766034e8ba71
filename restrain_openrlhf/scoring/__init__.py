"""Scores one prompt's group of rollouts: texts to answers to classes, what is known of the prompt, then the method."""

from restrain_openrlhf.scoring.scorer import GroupScorer, score_group, score_whole_group

__all__ = ["GroupScorer", "score_group", "score_whole_group"]
