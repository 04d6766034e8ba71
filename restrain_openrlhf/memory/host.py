"""What a run needs beside GPUs: the host's memory of a node, and the disk of its checkpoints."""

from collections.abc import Iterator

from restrain_openrlhf.memory.layout import Layout
from restrain_openrlhf.memory.lines import Line, product
from restrain_openrlhf.memory.policy import ADAM, BF16, reference_on_the_host
from restrain_openrlhf.memory.shape import ModelShape

# Adam on the host: its 12 bytes, the fp32 gradient, and bf16 buffers for weights and for accumulating
# (deepspeed/runtime/zero/stage_1_and_2.py).
OFFLOADED = ADAM + 4 + 2 + 2


def host_lines(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    """Per node, beside what every process needs to load the model and to hold a batch of rollouts."""
    trained = layout.trainable(shape)
    if layout.adam_offload:
        yield Line("Adam on the host", *product(trained, OFFLOADED, divisor=layout.nodes))
    elif layout.policy_sleeps:
        yield Line("optimizer asleep", *product(trained, ADAM, divisor=layout.nodes))
    if layout.engine_sleeps:
        yield Line("vLLM's weights asleep", *product(layout.engines, shape.parameters, BF16, divisor=layout.nodes))
    if reference_on_the_host(layout):
        yield Line("reference policy on the host", *product(shape.parameters, BF16, divisor=layout.nodes))


def disk_lines(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    """The run's folder at its largest: checkpoints (with LoRA of the adapter alone), and what is trained at the end."""
    trained = layout.trainable(shape)
    text, size = product(trained, BF16 + ADAM)
    yield Line("one checkpoint", text, size)
    yield Line("checkpoints kept (ckpt.max_num)", *product(layout.checkpoints, size))
    yield Line(f"trained {'adapter' if layout.lora_rank else 'model'}, bf16", *product(trained, BF16))
