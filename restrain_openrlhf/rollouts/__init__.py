"""How a prompt's rollouts are drawn: independently, or as trees that fork where the policy is unsure. Pure asyncio."""

from restrain_openrlhf.rollouts.chain import Alternative, Chain, Continue, RolloutPlan
from restrain_openrlhf.rollouts.independent import Independent
from restrain_openrlhf.rollouts.trees import EntropyTrees

__all__ = ["Alternative", "Chain", "Continue", "EntropyTrees", "Independent", "RolloutPlan"]
