"""Scores one prompt's group of rollouts: texts become answers, answers become classes, and the method scores these."""

from restrain_openrlhf.scoring.scorer import GroupScorer, score_group, score_whole_group

__all__ = ["GroupScorer", "score_group", "score_whole_group"]
