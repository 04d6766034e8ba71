"""What a micro-batch needs: logits, as often as OpenRLHF's log-probabilities copy them, and activations."""

from collections.abc import Iterator

from restrain_openrlhf.memory.layout import Layout
from restrain_openrlhf.memory.lines import Line, Phase, product
from restrain_openrlhf.memory.shape import ModelShape

# Bytes a logit. Actor.forward makes an fp32 copy of the bf16 logits, which go then; flash-attn's cross entropy, which
# log_probs_from_logits calls, copies nothing (openrlhf/models/actor.py, utils.py).
FORWARD = 2 + 4
# Backward: the fp32 logits, their fp32 gradient, and that in bf16. The entropy is compiled and keeps no copy.
BACKWARD = 4 + 4 + 2
# Dividing by a temperature makes the fp32 gradient anew.
TEMPERED = 4 + 4 + 4
BF16 = 2


def batch_lines(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    """Logits and activations of the policy's (and the reference policy's) passes."""
    forward = (Phase.EXPERIENCE, *(() if layout.reference_shares or not layout.has_reference else (Phase.REFERENCE,)))
    text, size = product(*layout.experience_tokens, shape.vocab_size, FORWARD)
    yield Line("logits, forward (bf16, fp32)", text, size, forward)
    width = 6 * shape.intermediate_size + 4 * shape.hidden_size
    text, size = product(*layout.experience_tokens, width)
    yield Line("one layer, forward (6 × inner + 4 × hidden)", text, size, forward)
    factor = BACKWARD if layout.temperature == 1 else TEMPERED
    text, size = product(*layout.train_tokens, shape.vocab_size, factor)
    yield Line("logits, backward (fp32, gradient, bf16)", text, size, (Phase.BACKWARD,))
    yield from _activations(layout, shape)


def layer_bytes(shape: ModelShape) -> int:
    """What one layer keeps of a token for its backward pass: norms in fp32, attention and MLP in bf16."""
    return 16 * shape.hidden_size + 6 * (shape.q_size + shape.kv_size) + 8 * shape.intermediate_size


def _activations(layout: Layout, shape: ModelShape) -> Iterator[Line]:
    tokens, layers, width = layout.train_tokens, shape.num_hidden_layers, layer_bytes(shape)
    kept = "16 × hidden + 6 × (q + kv) + 8 × inner"
    if layout.checkpointing:
        text, size = product(*tokens, layers, shape.hidden_size, BF16)
        yield Line("layers' inputs (gradient checkpointing)", text, size, (Phase.BACKWARD,))
        yield Line(f"one layer, backward ({kept})", *product(*tokens, width), (Phase.BACKWARD,))
    else:
        yield Line(f"all layers ({kept})", *product(*tokens, layers, width), (Phase.BACKWARD,))
