"""How many GPUs a configuration needs: the host waits forever when the cluster has fewer (cli/train_ppo_ray.py)."""

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
