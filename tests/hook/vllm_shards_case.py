"""A program: one of several tensor-parallel ranks, whose vLLM model gets another model's weights one name at a time.

That is how OpenRLHF's workers load them on CUDA (trainer/ray/vllm_worker_wrap.py). Run with a rank, their number, a
free port and models' folders, it prints a JSON line for each folder: parameters that are not the rank's own cut of the
Hugging Face weights, and parameters that no weight reached.
"""

import json
import os
import sys

from restrain_openrlhf.machine.devices import detect

detect().install()

import torch  # noqa: E402 - the stand-ins come first
from transformers import AutoModelForCausalLM  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed import init_distributed_environment, initialize_model_parallel  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.model_executor.model_loader.utils import initialize_model  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
BY_INPUT = ("o_proj.weight", "down_proj.weight")


def of_rank(name, weights, config, rank, ranks, rows):
    """What this rank should hold under vLLM's name, cut by hand; `rows` it has of the embedding, with padding."""
    fused = next((each for each in FUSED if f".{each}." in name), None)
    if fused:
        parts = (part(weights[name.replace(fused, one)], one, config, rank, ranks) for one in FUSED[fused])
        return torch.cat(list(parts))
    if name.endswith(BY_INPUT):
        return weights[name].chunk(ranks, 1)[rank]
    if "embed_tokens" in name or "lm_head" in name:
        whole = weights[name]
        padding = whole.new_zeros(rows * ranks - len(whole), whole.shape[1])
        return torch.cat([whole, padding]).chunk(ranks)[rank]
    return weights[name]


def part(weight, name, config, rank, ranks):
    """Several ranks have the same key head where there are fewer of them than ranks."""
    if name in ("k_proj", "v_proj"):
        heads = weight.view(config.num_key_value_heads, -1, *weight.shape[1:])
        copies = max(1, ranks // len(heads))
        return heads.repeat_interleave(copies, 0).chunk(ranks)[rank].flatten(0, 1)
    return weight.chunk(ranks)[rank]


def moved(folder):
    """The model of the folder, and what training made of it."""
    start, trained = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16) for _ in range(2))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(torch.randn_like(parameter))
    return start, trained


def synced(engine, folder, rank, ranks):
    start, trained = moved(folder)
    with set_default_torch_dtype(torch.bfloat16):
        model = initialize_model(vllm_config=engine)
    model.load_weights(list(start.state_dict().items()))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for name, parameter in trained.named_parameters():
        model.load_weights(weights=[(name, parameter.data)])
    weights = dict(trained.named_parameters())
    held = dict(model.named_parameters())
    cuts = {name: of_rank(name, weights, trained.config, rank, ranks, len(each)) for name, each in held.items()}
    return {
        "wrong": [name for name, each in held.items() if not torch.equal(each, cuts[name])],
        "still": [name for name, each in held.items() if torch.equal(each, before[name])],
        "fused": sum(name.endswith("_proj.weight") and any(each in name for each in FUSED) for name in held),
        "one_head": model.lm_head.weight is model.model.embed_tokens.weight,
    }


def main(rank, ranks, port, *folders):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(ranks), "VLLM_DIST_IDENT": port}
    for place, folder in enumerate(folders):
        words = {"tensor_parallel_size": ranks, "distributed_executor_backend": "mp", "skip_tokenizer_init": True}
        engine = EngineArgs(folder, dtype="bfloat16", enforce_eager=True, max_model_len=32, **words)
        config = engine.create_engine_config()
        with set_current_vllm_config(config):
            if place == 0:
                init_distributed_environment(ranks, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
                initialize_model_parallel(ranks)
            print(json.dumps(synced(config, folder, rank, ranks)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
