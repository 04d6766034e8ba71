"""How a prompt's rollouts are drawn: independently, or as trees that fork at high entropy. Pure asyncio."""

from restrain_openrlhf.rollouts.chain import Alternative, Chain, token_entropy
from restrain_openrlhf.rollouts.plans import Continue, EntropyTrees, ForkToken, Independent, RolloutPlan

__all__ = [
    "Alternative",
    "Chain",
    "Continue",
    "EntropyTrees",
    "ForkToken",
    "Independent",
    "RolloutPlan",
    "token_entropy",
]
