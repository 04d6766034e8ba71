"""Whether the method draws as many rollouts of a prompt as the host will train on."""

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.rollouts import RolloutPlan


def refuse_other_size(plan: RolloutPlan, n: int) -> None:
    """Raises ConfigError unless the method trains on as many rollouts of a prompt as the host expects."""
    if plan.trained != n:
        raise ConfigError(
            f"The method draws {plan.voters} rollouts of a prompt to train on {plan.trained}, and "
            f"rollout.n_samples_per_prompt is {n}. Set it to {plan.trained} (and train.batch_size to match), or change "
            "the method's votes, train_on, trees, forks or branches."
        )
