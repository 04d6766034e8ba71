"""How a prompt's rollouts are drawn: independently, or as trees that fork at high entropy. Pure asyncio."""

from restrain_openrlhf.method.rollout_plans.plans import (
    Chain,
    Continue,
    EntropyTrees,
    Independent,
    RolloutPlan,
    token_entropy,
)

__all__ = ["Chain", "Continue", "EntropyTrees", "Independent", "RolloutPlan", "token_entropy"]
