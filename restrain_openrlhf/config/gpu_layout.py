"""A run in numbers, from OpenRLHF's flags: the GPUs of each model, which are shared, rollouts and optimizer steps."""

import argparse
from dataclasses import dataclass
from typing import Self

from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.errors import ConfigError


@dataclass(frozen=True)
class GpuLayout:
    """How many GPUs policy, reference policy (0 without KL) and each of vLLM's engines have, and which are shared.

    `gpus_per_rank` is the number of GPUs of a data-parallel rank. `engines_share` says that vLLM is on the policy's
    GPUs, where it does not draw while the policy trains.
    """

    nodes: int
    policy: int
    reference: int
    engines: int
    gpus_per_engine: int
    gpus_per_rank: int
    reference_shares: bool
    engines_share: bool

    @classmethod
    def of(cls, flags: Flags) -> Self:
        """The layout that OpenRLHF's flags (dotted names) describe."""

        def number(name: str) -> int:
            return int(flags[name] or 0)

        has_reference = bool(flags["algo.kl.init_coef"])
        return cls(
            nodes=number("actor.num_nodes"),
            policy=number("actor.num_nodes") * number("actor.num_gpus_per_node"),
            reference=number("ref.num_nodes") * number("ref.num_gpus_per_node") if has_reference else 0,
            engines=number("vllm.num_engines"),
            gpus_per_engine=number("vllm.tensor_parallel_size"),
            gpus_per_rank=number("ds.ring_attn_size") * number("ds.tensor_parallel_size"),
            reference_shares=bool(flags["train.colocate_all"] or flags["train.colocate_actor_ref"]),
            engines_share=bool(flags["train.colocate_all"] and not flags["train.async_enable"]),
        )

    @property
    def vllm(self) -> int:
        """The GPUs of all engines."""
        return self.engines * self.gpus_per_engine

    @property
    def ranks(self) -> int:
        """The number of data-parallel ranks of the policy."""
        return self.policy // self.gpus_per_rank

    @property
    def reference_ranks(self) -> int:
        """The number of data-parallel ranks of the reference policy."""
        return self.reference // self.gpus_per_rank

    @property
    def needed(self) -> int:
        """The GPUs of all placement groups for which OpenRLHF will ask Ray."""
        own = 0 if self.reference_shares else self.reference
        return self.policy + own + (0 if self.engines_share else self.vllm)

    def refuse_shortage(self, found: float) -> None:
        """Raises ConfigError when a Ray cluster with `found` GPUs has fewer than the layout needs."""
        if found < self.needed:
            raise ConfigError(
                f"The layout needs {self.needed} GPUs, but the Ray cluster has {found:g}; OpenRLHF would wait forever. "
                "Lower actor.num_gpus_per_node, ref.num_gpus_per_node or vllm.num_engines, set train.colocate_all, or "
                "add nodes."
            )


def prompts_drawn(flags: Flags) -> int:
    """The number of prompts whose rollouts are drawn at once."""
    return int(flags["rollout.vllm_generate_batch_size"] or flags["rollout.batch_size"])


def rollouts_of_step(flags: Flags) -> int:
    """The number of rollouts of one step."""
    return int(flags["rollout.batch_size"] * flags["rollout.n_samples_per_prompt"])


def rollout_batches(prompts: int, flags: Flags) -> int:
    """The training steps of a whole run, with `prompts` in an episode, whose last batch may be smaller.

    The host takes that batch as a step, too (trainer/ppo_utils/samples_generator.py, generate_samples).
    """
    batches = -(-prompts // int(flags["rollout.batch_size"]))
    return int(flags["train.num_episodes"]) * batches


def optimizer_steps(steps: int, arguments: argparse.Namespace) -> int:
    """The optimizer steps of `steps` training steps, as the host counts them (ppo_trainer.py, prepare_datasets)."""
    rollouts = steps * arguments.rollout.batch_size * arguments.rollout.n_samples_per_prompt
    count: int = rollouts // arguments.train.batch_size * arguments.train.max_epochs
    return count
