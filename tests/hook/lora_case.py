"""A LoRA policy of the host under DeepSpeed: trained, checkpointed, resumed and saved, with the base kept to the bit.

Run as a program, for a port, an empty folder and a ZeRO stage: prints what happened as JSON.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.machine.devices import detect

detect().install()
install()

import torch  # noqa: E402 - the stand-ins come first
from openrlhf.models import Actor  # noqa: E402
from openrlhf.utils import get_strategy  # noqa: E402
from openrlhf.utils.config import hierarchize  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from restrain_openrlhf.config.host_flags import parse, to_arguments  # noqa: E402
from restrain_openrlhf.hook.fixes.lora import (  # noqa: E402
    WholeModel,
    run_without_adapter,
)

CONFIG = {
    "optim": "adam",
    "adam": {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0},
    "lr_scheduler": "constant",
    "scheduler_steps": 10,
    "max_norm": 1.0,
}
TOKENS = torch.randint(3, 90, (4, 12), generator=torch.Generator().manual_seed(0))
BATCH = TOKENS, torch.ones(4, 11), torch.ones(4, 12)


def strategy_of(stage):
    flags = {"train.batch_size": 4, "train.micro_batch_size": 4, "ds.zero_stage": stage, "ds.lora.rank": 4}
    strategy = get_strategy(hierarchize(parse(to_arguments(flags))))
    strategy.setup_distributed()
    return strategy


class Policy:
    """The host's Actor, with what its trainer does to it."""

    def __init__(self, strategy, *target_modules):
        lora = {"lora_rank": 4, "lora_alpha": 8, "target_modules": list(target_modules)}
        made = Actor(str(ADDITION.model), attn_implementation="sdpa", ds_config=strategy.get_ds_train_config(), **lora)
        self.strategy, self.actor = strategy, strategy.prepare((made, CONFIG))[0]
        self.model = strategy._unwrap_model(self.actor)

    def step(self):
        self.strategy.backward(-self.actor(*BATCH).mean(), self.actor, None)
        self.strategy.optimizer_step(None, self.actor, None)

    def weights(self):
        return {name: parameter.clone() for name, parameter in self.model.named_parameters()}

    @torch.no_grad()
    def log_probs(self):
        return self.actor(*BATCH)

    def log_probs_of_base(self):
        worker = SimpleNamespace(
            strategy=self.strategy, actor=self.actor, execute_batch=lambda *_words: self.log_probs()
        )
        return run_without_adapter(worker, "forward", None, 0, 4)


def same(one, other):
    return all(torch.equal(one[name], tensor) for name, tensor in other.items())


def train(policy: Policy) -> dict[str, object]:
    """Two steps; the base model is asked before, between and after them."""
    start, at_first = policy.weights(), policy.log_probs()
    gap = policy.log_probs_of_base() - at_first
    policy.step()
    policy.log_probs_of_base()
    policy.step()
    still = {name for name, weight in policy.weights().items() if torch.equal(weight, start[name])}
    return {
        "gap_at_first": float(gap.abs().max()),
        "base_after_training": bool(torch.equal(policy.log_probs_of_base(), at_first)),
        "moved": float((policy.log_probs() - at_first).abs().max()),
        "frozen_moved": [name for name in start if "lora_" not in name and name not in still],
        "trained_still": [name for name in start if "lora_" in name and name in still],
    }


def save(policy: Policy, folder: Path) -> dict[str, object]:
    tokenizer = SimpleNamespace(save_pretrained=lambda folder: None)
    policy.strategy.save_model(policy.actor, tokenizer, str(folder))
    whole = WholeModel(policy.model).state_dict()
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.bfloat16)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return {
        "saved_whole": same(whole, loaded.state_dict()) and not same(whole, base.state_dict()),
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()),
    }


def resume(policy: Policy, folder: Path) -> dict[str, object]:
    """One more step, and the same step from a checkpoint."""
    strategy = policy.strategy
    strategy.save_ckpt(policy.actor.model, str(folder), "two", client_state={"step": 2})
    saved = torch.load(folder / "two" / "mp_rank_00_model_states.pt", weights_only=False)
    again = Policy(strategy, "all-linear")
    strategy.load_ckpt(again.actor.model, str(folder))
    policy.step()
    again.step()
    return {
        "in_checkpoint": sorted({name.rsplit(".", 3)[-3] for name in saved["module"]}),
        "resumed": same(policy.weights(), again.weights()),
        "other_adapter": refusal(strategy, folder),
    }


def refusal(strategy, folder: Path) -> str:
    """What loading it into another adapter says."""
    try:
        strategy.load_ckpt(Policy(strategy, "q_proj").actor.model, str(folder))
    except RuntimeError as error:
        return str(error)
    return ""


def main(folder: Path, stage: int) -> dict[str, object]:
    policy = Policy(strategy_of(stage), "all-linear")
    return {**train(policy), **save(policy, folder / "model"), **resume(policy, folder / "checkpoints")}


if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ["MASTER_PORT"] = sys.argv[1]
    print(json.dumps(main(Path(sys.argv[2]), int(sys.argv[3]))))
