"""In a process of its own: vLLM engines that get new weights as a run gives them, compared with the policy.

Prints one JSON object per case: the mean gap of log-probabilities, in nats, before the first sync and after each,
and how far the syncs moved them; without an adapter, the weights whose digests are others than those of an engine that
loads the policy, too. Arguments: an empty folder, then cases such as `tied/float32`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from restrain_openrlhf.machine.devices import detect

detect().install()

import torch  # noqa: E402 - the stand-ins come first
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.distributed import cleanup_dist_env_and_memory  # noqa: E402

from restrain_openrlhf.hook.fixes.lora import naming_whole_weights  # noqa: E402
from restrain_openrlhf.hook.rollout.samples import held  # noqa: E402

VOCABULARY, LENGTH, ROWS = 96, 24, 64
# As the presets have it (configs/one_gpu).
RANK = 32
LEFT_OUT = "model.layers.1.self_attn.k_proj.weight"


class Handed:
    """Stands for the group that a weight is broadcast over."""

    weight: torch.Tensor

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        assert src == 0
        tensor.copy_(self.weight)


def policy_of(tied: bool, dtype: torch.dtype) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        # Logits of a size at which a stale head is seen.
        initializer_range=0.2,
    )
    return Qwen3ForCausalLM(config).to(dtype).eval()


def engine_of(folder: Path, dtype: str) -> LLM:
    return LLM(
        model=str(folder),
        dtype=dtype,
        skip_tokenizer_init=True,
        max_model_len=LENGTH + 2,
        enforce_eager=True,
        enable_prefix_caching=False,
        worker_extension_cls="openrlhf.trainer.ray.vllm_worker_wrap.WorkerWrap",
    )


def of_vllm(engine: LLM, tokens: list[list[int]]) -> torch.Tensor:
    """Log-probabilities of every token but the first, (B, T-1)."""
    parameters = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
    outputs = engine.generate([{"prompt_token_ids": row} for row in tokens], parameters, use_tqdm=False)
    rows = [zip(output.prompt_logprobs[1:], row[1:], strict=True) for output, row in zip(outputs, tokens, strict=True)]
    return torch.tensor([[entries[token].logprob for entries, token in row] for row in rows])


@torch.no_grad()
def of_policy(policy: Any, tokens: list[list[int]]) -> torch.Tensor:
    ids = torch.tensor(tokens)
    log_probs = policy(ids).logits.float().log_softmax(-1)
    return log_probs[:, :-1].gather(2, ids[:, 1:, None])[..., 0]


@torch.no_grad()
def train(policy: Any) -> None:
    """Move every weight that is trained by about a tenth; half of an adapter's are 0 at first."""
    for parameter in policy.parameters():
        if parameter.requires_grad:
            size = max(0.1 * float(parameter.std()), 0.05)
            parameter.add_(size * torch.randn_like(parameter))


def sync(policy: Any, worker: Any, without: str = "") -> None:
    """As trainer/ray/ppo_actor.py does (broadcast_to_vllm), parameter by parameter, `without` one."""
    worker._model_update_group, worker._model_update_with_ray = Handed(), False
    with naming_whole_weights(policy):
        parameters = [each for each in policy.named_parameters() if each[0] != without]
    for number, (name, parameter) in enumerate(parameters, start=1):
        worker._model_update_group.weight = parameter.data
        worker.update_weight(name, parameter.dtype, parameter.shape, empty_cache=number == len(parameters))


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().mean())


def compare(folder: Path, case: str) -> dict[str, object]:
    head, dtype = case.split("/")
    policy: Any = policy_of(head != "untied", getattr(torch, dtype))
    policy.save_pretrained(folder)
    if head == "lora":
        config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules="all-linear")
        policy = get_peft_model(policy, config).to(getattr(torch, dtype)).eval()
    tokens = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1)).tolist()
    engine = engine_of(folder, dtype)
    loaded = of_vllm(engine, tokens)
    found: dict[str, object] = {"case": case, "before": gap(loaded, of_policy(policy, tokens)), "after": []}
    for _ in range(2):
        train(policy)
        sync(policy, engine.llm_engine.model_executor.driver_worker.worker)
        synced = of_vllm(engine, tokens)
        found["after"] = [*found["after"], gap(synced, of_policy(policy, tokens))]
        found["moved"] = gap(synced, loaded)
    if head != "lora":
        found |= other_digests(policy, engine, folder / "synced", dtype)
    del engine
    cleanup_dist_env_and_memory()
    return found


def other_digests(policy: Any, engine: LLM, folder: Path, dtype: str) -> dict[str, object]:
    """The weights whose digests are others than those of an engine that loads the policy from a folder: after a sync,
    and after one without a weight that vLLM has fused with two more."""
    worker = engine.llm_engine.model_executor.driver_worker.worker
    train(policy)
    sync(policy, worker, without=LEFT_OUT)
    without_one = held(worker)
    sync(policy, worker)
    synced = held(worker)
    policy.save_pretrained(folder)
    (loaded,) = engine_of(folder, dtype).collective_rpc(held)
    return {
        "weights": len(loaded),
        "other": [name for name in loaded if synced.get(name) != loaded[name]],
        "other_without_one": [name for name in loaded if without_one.get(name) != loaded[name]],
    }


if __name__ == "__main__":
    for each in sys.argv[2:]:
        print(json.dumps(compare(Path(sys.argv[1]) / each.replace("/", "-"), each)), flush=True)
