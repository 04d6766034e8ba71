"""How many worker pods of how many GPUs a run needs, from OpenRLHF's flags, checked against an overlay's nodes."""

from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.layout import refuse_impossible
from restrain_openrlhf.hook.sizes import gpus_needed
from restrain_openrlhf.k8s.overlay import NodeShape

# OpenRLHF's controllers (trainer, samples generator, vLLM's own workers) ask Ray for a CPU each, beside one per GPU.
CONTROLLER_CPUS = 4


@dataclass(frozen=True)
class Layout:
    """`nodes` worker pods with `gpus` GPUs each; together exactly what Ray's placement groups need."""

    nodes: int
    gpus: int


def plan(flags: dict[str, Any], shape: NodeShape) -> Layout:
    """The worker pods for these flags (dotted names, as parsed by the host).

    Raises ConfigError where OpenRLHF could not run the layout, a part of it does not fit a node, GPUs would lie idle,
    or nodes are too few.
    """
    refuse_impossible(flags)
    needed = gpus_needed(flags)
    _refuse_what_no_node_holds(flags, shape)
    layout = Layout(1, needed) if needed <= shape.gpus_per_node else Layout(-(-needed // shape.gpus_per_node), 0)
    if layout.gpus == 0:
        if needed % shape.gpus_per_node:
            raise ConfigError(
                f"The layout needs {needed} GPUs, which is no multiple of the {shape.gpus_per_node} of a node: GPUs of "
                "the last node would lie idle. Change actor.num_gpus_per_node, ref.num_gpus_per_node or "
                "vllm.num_engines, or set train.colocate_all."
            )
        layout = Layout(layout.nodes, shape.gpus_per_node)
    if layout.nodes > shape.max_nodes:
        raise ConfigError(
            f"The layout needs {needed} GPUs, {layout.nodes} nodes of {shape.gpus_per_node}; this overlay has "
            f"{shape.max_nodes}. Lower actor.num_nodes, ref.num_nodes or vllm.num_engines, or choose a larger overlay."
        )
    _refuse_missing_cpus(layout, shape)
    return layout


def _refuse_what_no_node_holds(flags: dict[str, Any], shape: NodeShape) -> None:
    for name in ("actor.num_gpus_per_node", "ref.num_gpus_per_node", "vllm.tensor_parallel_size"):
        value = int(flags[name] or 0)
        if value > shape.gpus_per_node:
            raise ConfigError(f"{name} is {value}; a node has {shape.gpus_per_node} GPUs.")


def _refuse_missing_cpus(layout: Layout, shape: NodeShape) -> None:
    if shape.cpus_per_node * layout.nodes < layout.gpus * layout.nodes + CONTROLLER_CPUS:
        raise ConfigError(
            f"{layout.nodes} nodes have {shape.cpus_per_node} CPUs each; Ray needs one per GPU ({layout.gpus}) and "
            f"{CONTROLLER_CPUS} for OpenRLHF's controllers. Give the nodes more CPUs."
        )
