"""OpenRLHF's own trainer under DeepSpeed in a process of its own, with the hook on: what the measured steps run in."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method import parse_settings


def prepare_process() -> None:
    """This process is all there is of the distributed run; to be called before the host is imported."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= to_environment(HookConfig(method=parse_settings({"name": "ttrl"})))
    detect().install()
    install()


def arguments_of(words: Sequence[str]) -> Any:
    """The host's arguments of these words, completed as its own command does (cli/train_ppo_ray.py)."""
    from openrlhf.utils.config import hierarchize  # noqa: PLC0415 - after the device is prepared

    args = hierarchize(parse(words))
    if args.actor.eps_clip_low_high is None:
        args.actor.eps_clip_low_high = (args.actor.eps_clip, args.actor.eps_clip)
    return args


def strategy_of(args: Any) -> Any:
    """The host's, with its process group."""
    from openrlhf.utils import get_strategy  # noqa: PLC0415

    strategy = get_strategy(args)
    strategy.setup_distributed()
    return strategy


def policy_of(model: Any, args: Any) -> Any:
    """The host's policy around a model, outside of DeepSpeed."""
    from openrlhf.models import Actor  # noqa: PLC0415

    policy = Actor(model)
    policy.packing_samples, policy.temperature = args.ds.packing_samples, args.rollout.temperature
    return policy


def trainer_of(strategy: Any, policy: Any, args: Any) -> Any:
    """The host's trainer of the policy, as trainer/ray/ppo_actor.py makes it; `trainer.actor` is DeepSpeed's engine."""
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer  # noqa: PLC0415

    actor = args.actor
    optimizer = {"optim": actor.optim, "muon": vars(actor.muon), "adam": vars(actor.adam), "max_norm": actor.max_norm}
    schedule = {"lr_scheduler": "constant", "scheduler_steps": 10}
    engine, adam, scheduler = strategy.prepare((policy, {**optimizer, **schedule}))
    micro_batch = args.train.micro_batch_size
    return ActorPPOTrainer(strategy, engine, None, adam, scheduler, micro_train_batch_size=micro_batch)


def experience_of(
    sequences: Any, attention: Any, mask: Any, old: Any, base: Any, info: Mapping[str, Sequence[Any]]
) -> Any:
    """Rollouts as they reach the replay buffer: tokens (B, T), log-probabilities (B, T-1), the method's columns."""
    from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: PLC0415

    return Experience(
        sequences=sequences,
        attention_mask=attention,
        action_mask=mask,
        action_log_probs=old,
        base_action_log_probs=base,
        advantages=None,
        total_length=attention.sum(1),
        info=dict(info),
    )
