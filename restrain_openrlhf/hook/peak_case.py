"""One training step of a configuration's model with few layers, by the host's own trainer: peak memory and seconds.

Run as a program with the flags of OpenRLHF and `--layers L`, the layers that the model gets; its weights are random.
Prints a JSON line. It needs CUDA: a CPU does not say what it gave to whom.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.environment import to_environment
from restrain_openrlhf.hook.host_flags import parse
from restrain_openrlhf.hook.instrument import install
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.reward.wire import KL_WEIGHT, NEGATIVE, POSITIVE

# Micro-batches of a step: with a second one, gradients of the first are there while activations are.
MICRO_BATCHES = 2


@dataclass(frozen=True)
class PeakSeen:
    """Bytes of one GPU at `layers` layers: what stays between steps, the step's peak, and the step's seconds."""

    layers: int
    held: int
    peak: int
    seconds: float
    tokens: int


def layers_of(model: str) -> int:
    """The layers of the model that a configuration names. Raises ConfigError where its config.json cannot be had."""
    return int(_model_config(model).num_hidden_layers)


def measure(words: Sequence[str], layers: int) -> PeakSeen:
    """A first step, which makes the optimizer's states, and a second one that is measured. `words` are the host's."""
    import torch  # noqa: PLC0415
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer  # noqa: PLC0415
    from openrlhf.utils import get_strategy  # noqa: PLC0415
    from openrlhf.utils.config import hierarchize  # noqa: PLC0415

    args = hierarchize(parse(words))
    micro_batch = _rollouts_at_once(args)
    args.train.batch_size = micro_batch * MICRO_BATCHES
    args.rollout.batch_size, args.rollout.n_samples_per_prompt = MICRO_BATCHES, micro_batch
    strategy = get_strategy(args)
    strategy.setup_distributed()
    actor = _policy(args, layers)
    actor, optimizer, scheduler = strategy.prepare((actor, _optimizer(args)))
    trainer = ActorPPOTrainer(strategy, actor, None, optimizer, scheduler, micro_train_batch_size=micro_batch)
    tokens = 0
    for _ in range(2):
        trainer.replay_buffer.clear()
        trainer.replay_buffer.append(_experience(args, actor.model.module.config.vocab_size))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held, start = torch.cuda.memory_allocated(), time.monotonic()
        trainer.ppo_train(args.algo.kl.init_coef)
        torch.cuda.synchronize()
        tokens = args.train.batch_size * args.data.max_len
        seen = PeakSeen(layers, held, torch.cuda.max_memory_allocated(), time.monotonic() - start, tokens)
    return seen


def _rollouts_at_once(args: Any) -> int:
    """Rollouts of the longest length in a micro-batch; dynamic batching bounds their tokens."""
    if not args.train.dynamic_batch_enable:
        return int(args.train.micro_batch_size)
    return max(1, int(args.train.max_tokens_per_gpu) // int(args.data.max_len))


def _policy(args: Any, layers: int) -> Any:
    import torch  # noqa: PLC0415
    from openrlhf.models import Actor  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    config = _model_config(args.actor.model_name_or_path)
    config.num_hidden_layers = layers
    for name in ("layer_types", "max_window_layers"):
        value = getattr(config, name, None)
        if isinstance(value, list):
            setattr(config, name, value[:layers])
    with torch.device("cuda"):
        models: Any = AutoModelForCausalLM
        model = models.from_config(config, attn_implementation=args.ds.attn_implementation, dtype=torch.bfloat16)
    model.config.use_cache = False
    actor = Actor(model)
    actor.packing_samples, actor.temperature = args.ds.packing_samples, args.rollout.temperature
    if args.actor.gradient_checkpointing_enable:
        actor.gradient_checkpointing_enable({"use_reentrant": args.actor.gradient_checkpointing_reentrant})
    return actor


def _optimizer(args: Any) -> Mapping[str, Any]:
    """As trainer/ray/ppo_actor.py makes it (PolicyModelActor.init_model_from_pretrained)."""
    return {
        "optim": args.actor.optim,
        "muon": vars(args.actor.muon),
        "adam": vars(args.actor.adam),
        "lr_scheduler": "constant",
        "scheduler_steps": 2,
        "max_norm": args.actor.max_norm,
    }


def _experience(args: Any, vocabulary: int) -> Any:
    """Rollouts of the longest length: half of the tokens are the response, or as many as may be new."""
    import torch  # noqa: PLC0415
    from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: PLC0415

    rollouts, length = args.train.batch_size, args.data.max_len
    response = min(args.rollout.max_new_tokens or length // 2, length - 1)
    sequences = torch.randint(vocabulary, (rollouts, length))
    mask = torch.zeros(rollouts, length - 1)
    mask[:, -response:] = 1
    info = {name: [torch.tensor(value)] * rollouts for name, value in _PAIR.items()}
    return Experience(
        sequences=sequences,
        attention_mask=torch.ones_like(sequences),
        action_mask=mask,
        action_log_probs=torch.zeros_like(mask),
        base_action_log_probs=torch.zeros_like(mask),
        advantages=None,
        total_length=torch.full((rollouts,), length),
        info=info,
    )


_PAIR = {POSITIVE: 0.5, NEGATIVE: -0.5, KL_WEIGHT: 1.0}


def _model_config(model: str) -> Any:
    from transformers import AutoConfig  # noqa: PLC0415

    try:
        return AutoConfig.from_pretrained(model, trust_remote_code=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{model}: its config.json cannot be read ({error}). Check actor.model_name_or_path."
        ) from None


def main(words: Sequence[str]) -> None:
    """Print what one step with so many layers took."""
    parser = argparse.ArgumentParser(description="Peak memory of one training step.", allow_abbrev=False)
    parser.add_argument("--layers", type=int, required=True)
    chosen, host_words = parser.parse_known_args(list(words))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= to_environment(HookConfig(method=parse_settings({"name": "ttrl"})))
    detect().install()
    install()
    sys.stdout.write("\n" + dump(asdict(measure(host_words, chosen.layers))))


if __name__ == "__main__":
    main(sys.argv[1:])
