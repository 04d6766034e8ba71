"""A model and a run small enough to work out by hand."""

from restrain_openrlhf.config.host_flags import parse, to_arguments
from restrain_openrlhf.config.memory.shape import ModelShape

# A layer: q 4·4, k and v 4·2 each, o 4·4, gate, up and down 4·8 each, two norms of 4: 16+8+8+16+96+8 = 152; two: 304.
# Embedding and head 10·4 each, the last norm 4: 304 + 80 + 4 = 388.
TINY = ModelShape(
    model_type="llama",
    hidden_size=4,
    intermediate_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=2,
    vocab_size=10,
    tie_word_embeddings=False,
)
PARAMETERS = 388
ONE_GPU = {
    "train.colocate_all": True,
    "vllm.enable_sleep": True,
    "ds.enable_sleep": True,
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 1,
    "ref.num_nodes": 1,
    "ref.num_gpus_per_node": 1,
    "vllm.num_engines": 1,
    "vllm.tensor_parallel_size": 1,
    "vllm.gpu_memory_utilization": 0.5,
    "ds.zero_stage": 2,
    "actor.gradient_checkpointing_enable": True,
    "data.max_len": 100,
    "rollout.micro_batch_size": 3,
    "train.micro_batch_size": 2,
    "algo.kl.init_coef": 0.001,
}


def flags(**changed: object) -> dict[str, object]:
    """OpenRLHF's flags of one colocated GPU, some changed (`ds__zero_stage` for ds.zero_stage)."""
    named = {name.replace("__", "."): value for name, value in changed.items()}
    return vars(parse(to_arguments({**ONE_GPU, **named})))


def sizes(found, phase=None) -> dict[str, int]:
    """Bytes by the line's name, of one phase if given."""
    return {line.name: line.bytes for line in found.lines if phase is None or phase in line.phases}
