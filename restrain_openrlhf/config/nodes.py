"""What a run needs of a cluster: settings that the cluster can serve, a name, and a number of nodes and GPUs."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from restrain_openrlhf.config.checks import refuse_settings, refuse_unattended
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import Flags, flags_of
from restrain_openrlhf.config.memory import GIB
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError

# OpenRLHF's controllers (trainer, samples generator, vLLM's own workers) need a CPU each, besides one CPU per GPU.
CONTROLLER_CPUS = 4
# KubeRay refuses RayJobs with longer names, because it appends suffixes for the cluster and its services.
LONGEST_NAME = 47
LONGEST_PREFIX = "test-time-"


class NodeShape(BaseModel):
    """The GPU nodes that one run may use; on Kubernetes an overlay's `overlay.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus_per_node: int = Field(ge=1, description="GPUs of a node.")
    max_nodes: int = Field(ge=1, description="Nodes that a run may have.")
    cpus_per_node: int = Field(ge=1, description="CPUs of a node that a run may use.")
    # GiB of each GPU; None: a run's memory is not checked.
    gpu_memory: int | None = Field(default=None, ge=1)


@dataclass(frozen=True)
class Layout:
    """`nodes` worker pods with `gpus` GPUs each, together exactly what Ray's placement groups need."""

    nodes: int
    gpus: int


def flags_on_nodes(config: RunConfig, shape: NodeShape) -> dict[str, Any]:
    """The values of all flags of OpenRLHF in a run that a cluster starts, and restarts.

    Raises ConfigError for settings that could not run or fit, and for a run that could not be resumed.
    """
    flags = flags_of(config)
    refuse_settings(config, flags, shape.gpu_memory * GIB if shape.gpu_memory else None)
    refuse_unattended(flags)
    return flags


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
