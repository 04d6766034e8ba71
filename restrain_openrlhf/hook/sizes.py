"""What a run asks of the host in numbers: GPUs, rollout batches and optimizer steps, from OpenRLHF's flags."""

import argparse
from typing import Any

from restrain_openrlhf.errors import ConfigError


def gpus_needed(flags: dict[str, object]) -> int:
    """GPUs of the placement groups the host will ask Ray for, from its flags under their dotted names."""

    def number(name: str) -> int:
        return int(str(flags[name] or 0))

    actor = number("actor.num_nodes") * number("actor.num_gpus_per_node")
    reference = number("ref.num_nodes") * number("ref.num_gpus_per_node") if flags["algo.kl.init_coef"] else 0
    rollout = number("vllm.num_engines") * number("vllm.tensor_parallel_size")
    if flags["train.colocate_all"]:
        return actor + (rollout if flags["train.async_enable"] else 0)
    if flags["train.colocate_actor_ref"]:
        return actor + rollout
    return actor + reference + rollout


def refuse_shortage(needed: int, found: float) -> None:
    """Raises ConfigError when the cluster has fewer GPUs than the layout needs."""
    if found < needed:
        raise ConfigError(
            f"The layout needs {needed} GPUs and the Ray cluster has {found:g}; OpenRLHF would wait forever. Lower "
            "actor.num_gpus_per_node, ref.num_gpus_per_node or vllm.num_engines, set train.colocate_all, or add nodes."
        )


def cluster_gpus() -> float:
    """GPUs of all its nodes. Joins the cluster and leaves it again."""
    import ray  # noqa: PLC0415 - a study that starts Ray itself can be checked without it

    ray.init(log_to_driver=False)
    try:
        return float(ray.cluster_resources().get("GPU", 0))
    finally:
        ray.shutdown()


def rollout_batches(prompts: int, flags: dict[str, Any]) -> int:
    """Training steps of a whole run over so many prompts: the host takes a last, smaller batch in each episode.

    (trainer/ppo_utils/samples_generator.py, generate_samples.)
    """
    batches = -(-prompts // int(flags["rollout.batch_size"]))
    return int(flags["train.num_episodes"]) * batches


def optimizer_steps(steps: int, arguments: argparse.Namespace) -> int:
    """Optimizer steps in so many rollout batches, as the host counts them (ppo_trainer.py, prepare_datasets)."""
    rollouts = steps * arguments.rollout.batch_size * arguments.rollout.n_samples_per_prompt
    count: int = rollouts // arguments.train.batch_size * arguments.train.max_epochs
    return count
