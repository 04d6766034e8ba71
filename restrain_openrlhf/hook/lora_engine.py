"""vLLM's side of LoRA, as its engines are started: which layers take an adapter, of what rank, and who uses it."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.layout import Flags

VARIABLE = "RESTRAIN_LORA"
ALL_LINEAR = "all-linear"
WORKER = "restrain_openrlhf.hook.lora_worker.AdapterWorker"
# One adapter, the policy's, whose tensors are replaced in place at every sync.
ADAPTER_ID = 1
ALPHA = "restrain_lora_alpha"
# vllm/config/lora.py, MaxLoRARanks.
SLOT_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class AdapterPlan:
    """A run's adapter: its rank, its alpha (B A is multiplied by alpha / rank), and its layers by their last names."""

    rank: int
    alpha: float
    targets: tuple[str, ...]

    def engine_options(self) -> dict[str, Any]:
        """vLLM's engine arguments (engine/arg_utils.py). A slot's rank is one of a few: the next that has room."""
        return {
            "enable_lora": True,
            "max_loras": 1,
            "max_lora_rank": min(rank for rank in SLOT_RANKS if rank >= self.rank),
            # vLLM would give the embedding and the output head slots too, which nothing fills.
            "lora_target_modules": list(self.targets),
            "worker_extension_cls": WORKER,
            "additional_config": {ALPHA: self.alpha},
        }


def plan_of_run(flags: Flags) -> AdapterPlan | None:
    """From the host's flags under dotted names; None where no adapter is trained.

    Raises ConfigError for a rank that vLLM has no slot for, and for a layer that it cannot give an adapter.
    """
    rank: int = flags["ds.lora.rank"]
    if rank <= 0:
        return None
    if rank > max(SLOT_RANKS):
        raise ConfigError(
            f"ds.lora.rank is {rank}, and vLLM, which gets the adapter, has room for {max(SLOT_RANKS)} at most. "
            "Lower it."
        )
    named = flags["ds.lora.target_modules"]
    asked = [named] if isinstance(named, str) else list(named)
    return AdapterPlan(rank, flags["ds.lora.alpha"], layers_of(flags["actor.model_name_or_path"], asked))


def layers_of(model: str, asked: Sequence[str]) -> tuple[str, ...]:
    """The last names of the layers that get an adapter, as peft chooses them, of a model whose weights are not read.

    Raises ConfigError for a name that no layer has, and for an embedding, the output head or any other layer that is
    not linear: vLLM has no slot for an adapter there, or only a rounded copy of it.
    """
    empty = _without_weights(model)
    head = empty.get_output_embeddings()
    linear = {name for name, layer in _layers(empty) if _is_linear(layer) and layer is not head}
    if list(asked) == [ALL_LINEAR]:
        return tuple(sorted(linear))
    every = {name for name, _ in _layers(empty)}
    for name in asked:
        if name not in linear:
            found = "is no linear layer, or the output head" if name in every else "is the name of no layer"
            raise ConfigError(
                f"ds.lora.target_modules has {name!r}, which {found} of {model}. vLLM, which gets the adapter at every "
                f"sync, takes one for the linear layers: {', '.join(sorted(linear))}. Name some of these, or "
                f"{ALL_LINEAR}."
            )
    return tuple(sorted(asked))


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    return ((name.rpartition(".")[2], layer) for name, layer in model.named_modules())


def _is_linear(layer: Any) -> bool:
    from torch import nn  # noqa: PLC0415 - costs seconds

    return isinstance(layer, nn.Linear)


def _without_weights(model: str) -> Any:
    """The model as the host loads it (models/actor.py), on torch's meta device."""
    import torch  # noqa: PLC0415 - these cost seconds
    from openrlhf.utils.utils import is_vlm_model  # noqa: PLC0415
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: PLC0415

    maker: Any = AutoModelForImageTextToText if is_vlm_model(model) else AutoModelForCausalLM
    with torch.device("meta"):
        return maker.from_config(AutoConfig.from_pretrained(model, trust_remote_code=True), trust_remote_code=True)


def to_environment(plan: AdapterPlan | None) -> dict[str, str]:
    """The variable that hands it to the rollout actors; the host starts them without the flags of LoRA."""
    return {VARIABLE: json.dumps(asdict(plan))} if plan else {}


def plan_here() -> AdapterPlan | None:
    """The plan of this process's run; None where no adapter is trained."""
    if VARIABLE not in os.environ:
        return None
    found = json.loads(os.environ[VARIABLE])
    return AdapterPlan(found["rank"], found["alpha"], tuple(found["targets"]))


async def serve_policy(actor: Any) -> None:
    """Have every request of a rollout actor (trainer/ray/vllm_engine.py) answered with the policy's adapter.

    Training, plans, trees and evaluation all ask by `actor.llm.generate`. The adapter is nothing until the first sync,
    as the policy's own is (B = 0).
    """
    from vllm.lora.request import LoRARequest  # noqa: PLC0415 - costs seconds

    await actor.llm.collective_rpc("start_adapter")
    # The path is never read: the adapter is in its slot (hook/lora_worker.py).
    policy = LoRARequest("policy", ADAPTER_ID, lora_path="sent-by-the-trainer")
    actor.llm.generate = partial(actor.llm.generate, lora_request=policy)
