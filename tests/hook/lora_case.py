"""A LoRA policy of the host under DeepSpeed: trained, checkpointed, resumed and saved, with the base kept to the bit.

Run as a program, for a port, an empty folder and a ZeRO stage: prints what happened as JSON.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.instrument import install

CONFIG = {
    "optim": "adam",
    "adam": {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0},
    "lr_scheduler": "constant",
    "scheduler_steps": 10,
    "max_norm": 1.0,
}
FLAGS = {
    "train.batch_size": 4,
    "train.micro_batch_size": 4,
    "ds.attn_implementation": "sdpa",
    "ds.lora.rank": 4,
}


def main(folder: Path, stage: int) -> dict[str, object]:
    detect().install()
    install()
    import torch
    from openrlhf.models import Actor
    from openrlhf.utils import get_strategy
    from openrlhf.utils.config import hierarchize
    from transformers import AutoModelForCausalLM

    from restrain_openrlhf.hook.host_flags import parse, to_arguments
    from restrain_openrlhf.hook.lora import WholeModel
    from restrain_openrlhf.hook.lora_reference import run_without_adapter

    args = hierarchize(parse(to_arguments({**FLAGS, "ds.zero_stage": stage})))
    strategy = get_strategy(args)
    strategy.setup_distributed()

    def policy(**lora):
        actor = Actor(str(MODEL), attn_implementation="sdpa", ds_config=strategy.get_ds_train_config(), **lora)
        return strategy.prepare((actor, CONFIG))[0]

    torch.manual_seed(0)
    tokens = torch.randint(3, 90, (4, 12))
    mask, attention = torch.ones(4, 11), torch.ones(4, 12)

    def log_probs(actor):
        with torch.no_grad():
            return actor(tokens, mask, attention)

    def step(actor):
        strategy.backward(-actor(tokens, mask, attention).mean(), actor, None)
        strategy.optimizer_step(None, actor, None)

    def weights(actor):
        return {name: parameter.clone() for name, parameter in strategy._unwrap_model(actor).named_parameters()}

    def same(one, other):
        return all(torch.equal(one[name], tensor) for name, tensor in other.items())

    def of_base(actor):
        worker = SimpleNamespace(strategy=strategy, actor=actor, execute_batch=lambda *_: log_probs(actor))
        return run_without_adapter(worker, "forward", None, 0, 4)

    lora = {"lora_rank": 4, "lora_alpha": 8, "target_modules": ["all-linear"]}
    actor, base = policy(**lora), AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    found: dict[str, object] = {}
    at_first, start = log_probs(actor), weights(actor)
    found["kl_at_first"] = float((at_first - of_base(actor)).abs().max())
    step(actor)
    of_base(actor)
    step(actor)
    found["base_after_training"] = bool(torch.equal(of_base(actor), at_first))
    found["moved"] = float((log_probs(actor) - at_first).abs().max())
    strategy.save_ckpt(actor.model, str(folder / "checkpoints"), "two", client_state={"step": 2})
    saved = torch.load(folder / "checkpoints" / "two" / "mp_rank_00_model_states.pt", weights_only=False)
    found["in_checkpoint"] = sorted({name.rsplit(".", 3)[-3] for name in saved["module"]})
    strategy.save_model(actor, SimpleNamespace(save_pretrained=lambda folder: None), str(folder / "model"))
    now, whole = weights(actor), WholeModel(strategy._unwrap_model(actor)).state_dict()
    found["frozen_moved"] = [n for n, tensor in now.items() if "lora_" not in n and not torch.equal(tensor, start[n])]
    found["trained_still"] = [n for n, tensor in now.items() if "lora_" in n and torch.equal(tensor, start[n])]
    loaded = AutoModelForCausalLM.from_pretrained(folder / "model", dtype="auto")
    found["saved_whole"] = same(whole, loaded.state_dict()) and not same(whole, base.state_dict())
    found["files"] = sorted(str(path.relative_to(folder)) for path in (folder / "model").rglob("*") if path.is_file())
    step(actor)
    again = policy(**lora)
    strategy.load_ckpt(again.model, str(folder / "checkpoints"))
    step(again)
    found["resumed"] = same(weights(actor), weights(again))
    try:
        strategy.load_ckpt(policy(**{**lora, "target_modules": ["q_proj", "lm_head"][:1]}).model, str(folder / "checkpoints"))
    except RuntimeError as error:
        found["other_adapter"] = str(error)[:80]
    return found


if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ["MASTER_PORT"] = sys.argv[1]
    print(json.dumps(main(Path(sys.argv[2]), int(sys.argv[3]))))
