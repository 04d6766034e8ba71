"""A run in numbers, from OpenRLHF's flags: the GPUs of each model, the nodes of a cluster, rollouts and steps."""

import argparse
import hashlib
import re
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, PositiveInt

from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.errors import ConfigError

# OpenRLHF's controllers (trainer, samples generator, vLLM's own workers) need a CPU each, besides one CPU per GPU.
CONTROLLER_CPUS = 4
# KubeRay refuses RayJobs with longer names, because it appends suffixes for the cluster and its services.
LONGEST_NAME = 47
LONGEST_PREFIX = "test-time-"


@dataclass(frozen=True)
class GpuLayout:
    """How many GPUs policy, reference policy (0 without KL) and each of vLLM's engines have, and which are shared.

    `gpus_per_rank` is the number of GPUs of a data-parallel rank, and `prompts` that of prompts whose rollouts are
    drawn at once. `engines_share` says that vLLM is on the policy's GPUs, where it does not draw while the policy
    trains.
    """

    nodes: int
    policy: int
    reference: int
    engines: int
    gpus_per_engine: int
    gpus_per_rank: int
    prompts: int
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
            prompts=prompts_drawn(flags),
            reference_shares=bool(flags["train.colocate_all"] or flags["train.colocate_actor_ref"]),
            engines_share=bool(flags["train.colocate_all"] and not flags["train.async_enable"]),
        )

    @property
    def vllm(self) -> int:
        """The GPUs of all engines."""
        return self.engines * self.gpus_per_engine

    @property
    def idle_engines(self) -> int:
        """The engines that would never draw, because one engine draws all rollouts of a prompt."""
        return max(self.engines - self.prompts, 0)

    @property
    def handles(self) -> int:
        """The CUDA handles that the policy's first rank sends for each weight, if the engines share its GPUs."""
        return self.engines * self.policy

    @property
    def ranks(self) -> int:
        return self.policy // self.gpus_per_rank

    @property
    def reference_ranks(self) -> int:
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


def is_one_optimizer_step(flags: Flags) -> bool:
    """Whether the old policy of every step is the one that is trained, so that the step's own log-probabilities serve.

    A KL in the reward needs them before; with an adapter the host's pass stays.
    """
    other = not flags["algo.kl.use_loss"] or flags["train.async_enable"] or flags["ds.lora.rank"]
    return not other and (flags["train.batch_size"], flags["train.max_epochs"]) == (rollouts_of_step(flags), 1)


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


class NodeShape(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """The GPU nodes that one run may use; on Kubernetes an overlay's `overlay.yaml`."""

    gpus_per_node: PositiveInt
    """GPUs of a node."""
    max_nodes: PositiveInt
    """Nodes that a run may have."""
    cpus_per_node: PositiveInt
    """CPUs of a node that a run may use."""
    gpu_memory: PositiveInt | None = None
    """GiB of each GPU; null: a run's memory is not checked."""


@dataclass(frozen=True)
class Layout:
    """`nodes` worker pods with `gpus` GPUs each, together exactly what Ray's placement groups need."""

    nodes: int
    gpus: int


def plan(flags: Flags, shape: NodeShape) -> Layout:
    """The worker pods for these flags (dotted names, parsed).

    Raises ConfigError if a part of the layout does not fit on a node, GPUs would be idle, or there are too few
    nodes.
    """
    _refuse_larger_than_a_node(flags, shape.gpus_per_node)
    needed = GpuLayout.of(flags).needed
    layout = Layout(-(-needed // shape.gpus_per_node), min(needed, shape.gpus_per_node))
    if layout.nodes > 1 and needed % shape.gpus_per_node:
        raise ConfigError(
            f"The layout needs {needed} GPUs, which is not a multiple of the {shape.gpus_per_node} GPUs of a node: "
            "GPUs of the last node would be idle. Change actor.num_gpus_per_node, ref.num_gpus_per_node or "
            "vllm.num_engines, or set train.colocate_all."
        )
    if layout.nodes > shape.max_nodes:
        raise ConfigError(
            f"The layout needs {needed} GPUs, which is {layout.nodes} nodes of {shape.gpus_per_node}; this overlay "
            f"allows {shape.max_nodes}. Lower actor.num_nodes, ref.num_nodes or vllm.num_engines, or choose a larger "
            "overlay."
        )
    if (shape.cpus_per_node - layout.gpus) * layout.nodes < CONTROLLER_CPUS:
        raise ConfigError(
            f"{layout.nodes} nodes have {shape.cpus_per_node} CPUs each; Ray needs one per GPU ({layout.gpus}) and "
            f"{CONTROLLER_CPUS} for OpenRLHF's controllers. Give the nodes more CPUs."
        )
    return layout


def _refuse_larger_than_a_node(flags: Flags, gpus_per_node: int) -> None:
    for name in ("actor.num_gpus_per_node", "ref.num_gpus_per_node", "vllm.tensor_parallel_size"):
        if (flags[name] or 0) > gpus_per_node:
            raise ConfigError(
                f"{name} is {flags[name]}, which is more than the GPUs of a node ({gpus_per_node}). Lower it, or "
                "choose larger nodes."
            )


def run_name(text: str) -> str:
    """The text as a DNS-1035 label of at most 37 characters, so that the prefix of a step fits before it.

    The label of a text that is not already one ends in a hash of the text, so different texts have different labels.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"
    slug = slug if slug[0].isalpha() else f"run-{slug}"
    longest = LONGEST_NAME - len(LONGEST_PREFIX)
    if slug == text and len(slug) <= longest:
        return slug
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{slug[: longest - 7].rstrip('-')}-{digest}"
