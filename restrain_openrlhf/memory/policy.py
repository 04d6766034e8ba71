"""The policy's and the reference policy's share: parameters, gradients, Adam's states (DeepSpeed's ZeRO stages)."""

from collections.abc import Iterator

from restrain_openrlhf.memory.layout import Layout
from restrain_openrlhf.memory.lines import Line, Phase, product
from restrain_openrlhf.memory.shape import ModelShape

BF16 = 2
# fp32 master weights and Adam's two moments.
ADAM = 12
# The gradient's copy in one flat bf16 tensor and in fp32 (deepspeed/runtime/zero/stage_1_and_2.py, step).
STEP_COPIES = 2 + 4
# DeepSpeed's defaults, in elements: OpenRLHF leaves them at "auto", which DeepSpeed drops.
REDUCE_BUCKET = 500_000_000
MOST_LIVE = 1_000_000_000
ZERO_2 = 2
ZERO_3 = 3
TRAINING = (Phase.BACKWARD, Phase.STEP)


def policy_lines(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    """What the policy's process holds beside activations and logits."""
    trained = layout.trainable(shape)
    held = shape.parameters if not layout.lora_rank else shape.parameters + trained
    text, size = product(held, BF16, divisor=layout.parameter_shards)
    yield Line(f"policy, {'base and adapters' if layout.lora_rank else 'bf16'}", text, size, layout.policy_phases, True)
    if layout.zero_stage == ZERO_3 and layout.gpus > 1:
        text, size = product(min(held, MOST_LIVE), BF16)
        yield Line("policy, layers gathered by ZeRO 3", text, size, (Phase.EXPERIENCE, Phase.BACKWARD))
    yield from _gradients(layout, trained)
    yield from _optimizer(layout, shape, trained)


def _gradients(layout: Layout, trained: int) -> Iterator[Line]:
    on_the_host = layout.adam_offload and layout.zero_stage >= ZERO_2
    shards = layout.gpus if layout.zero_stage >= ZERO_2 else 1
    if not on_the_host:
        yield Line("gradients, bf16", *product(trained, BF16, divisor=shards), TRAINING, True)
    if layout.zero_stage:
        buckets = 2 if layout.overlap_comm else 1
        yield Line("gradients' reduce bucket", *product(buckets, REDUCE_BUCKET, BF16), (Phase.BACKWARD,))


def _optimizer(layout: Layout, shape: ModelShape, trained: int) -> Iterator[Line]:
    if layout.adam_offload:
        largest = (
            shape.embedding if not layout.lora_rank else layout.lora_rank * max(sum(shape.projections.values(), ()))
        )
        yield Line("Adam on the host: its buffer here", *product(largest, BF16), layout.policy_phases)
        return
    text, size = product(trained, ADAM, divisor=layout.shards)
    yield Line(
        "fp32 master weights and Adam", text, size, TRAINING if layout.policy_sleeps else layout.policy_phases, True
    )
    yield Line("gradients' flat and fp32 copies", *product(trained, STEP_COPIES, divisor=layout.shards), (Phase.STEP,))


def reference_lines(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    """The frozen model; OpenRLHF's offload has an effect with ZeRO 3 alone (deepspeed_utils.py, get_eval_ds_config)."""
    if not layout.has_reference or reference_on_the_host(layout):
        return
    shards = layout.reference_gpus if layout.zero_stage == ZERO_3 else 1
    yield Line(
        "reference policy, bf16", *product(shape.parameters, BF16, divisor=shards), layout.reference_phases, True
    )


def reference_on_the_host(layout: Layout) -> bool:
    """Whether the reference policy's parameters lie in the host's memory."""
    return layout.has_reference and layout.reference_offload and layout.zero_stage == ZERO_3
