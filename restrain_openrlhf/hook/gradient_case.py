"""One real training step of OpenRLHF's ActorPPOTrainer under DeepSpeed, against the gradient of the paper's loss.

Run as a program, it prints a JSON line per case, how far apart the two gradients are, and at the end the host's methods
that were not patched. Two prompts of six rollouts, five
labels and a missing answer between them; the old policy is far enough away that ratios clip on both sides. DeepSpeed
takes hold of the whole process, so the cases have one to themselves.
"""

import argparse
import copy
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.gpu_check.papers_labels import Classes
from restrain_openrlhf.gpu_check.papers_loss import Formula
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.environment import to_environment
from restrain_openrlhf.hook.host_flags import parse, to_arguments
from restrain_openrlhf.hook.instrument import install
from restrain_openrlhf.hook.patches import PATCHES
from restrain_openrlhf.method import build, parse_settings

GROUPS: tuple[Classes, ...] = ([0, 0, 0, 1, 2, None], [0, 0, 0, 0, 1, 1])
PROMPT_WEIGHTS = (0.6, 0.9)
N = 6
ROLLOUTS = N * len(GROUPS)
PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY = 4, 7, 32
BETA, CLIP = 0.1, 0.2
# Of Adam.
BETAS = (0.9, 0.95)
# Four micro-batches; dynamic batching makes as many of these lengths.
MICRO_BATCH = 3
MOST_TOKENS = 36
# In a case's word, before the stage.
ZERO = "zero"
PARTITIONED = 3


@dataclass(frozen=True)
class GradientCase:
    """How the step is computed. `packed` needs flash-attn, which takes bf16 alone.

    `stage` is ZeRO's; where None as it is trained: 2 in bf16, with sharded states, and 0 in fp32.
    """

    dtype: str = "fp32"
    micro_batches: bool = False
    dynamic: bool = False
    packed: bool = False
    token_mean: bool = True
    stage: int | None = None

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that is used."""
        return (2 if self.dtype == "bf16" else 0) if self.stage is None else self.stage

    @property
    def name(self) -> str:
        """In words, such as `bf16, packed, dynamic`."""
        batching = [word for word, on in (("packed", self.packed), ("dynamic", self.dynamic)) if on]
        batching = batching or ["micro-batches" if self.micro_batches else "whole"]
        stage = [] if self.stage is None else [f"ZeRO {self.stage}"]
        return ", ".join([self.dtype, *batching, *([] if self.token_mean else ["mean of sequences"]), *stage])

    @classmethod
    def of(cls, word: str) -> "GradientCase":
        """From a word such as `bf16+packed+dynamic`."""
        dtype, *others = word.split("+")
        switches = {"micro": "micro_batches", "dynamic": "dynamic", "packed": "packed"}
        on = {switches[other]: True for other in others if other in switches}
        stage = next((int(other.removeprefix(ZERO)) for other in others if other.startswith(ZERO)), None)
        return cls(dtype=dtype, token_mean="sequences" not in others, stage=stage, **on)

    @property
    def word(self) -> str:
        """As `of` reads it."""
        on = {"micro": self.micro_batches, "dynamic": self.dynamic, "packed": self.packed}
        on |= {"sequences": not self.token_mean, f"{ZERO}{self.stage}": self.stage is not None}
        return "+".join([self.dtype, *(name for name, is_on in on.items() if is_on)])


@dataclass(frozen=True)
class GradientGap:
    """Distances from the paper's gradient, relative to its norm: the hooked step's, and two wrong losses'.

    A tolerance between `hooked` and the wrong ones can tell them apart; `clipped_share` of the tokens are clipped.
    """

    case: str
    hooked: float
    net_advantage: float
    kl_without_prompt_weight: float
    clipped_share: float


def measure(case: GradientCase) -> GradientGap:
    """One step of the case, in this process. The hook must be installed."""
    import torch  # noqa: PLC0415 - after the device is prepared

    actor, plain, trainer = _prepare(case)
    rollouts = _rollouts(plain)
    captured = _step(trainer, actor, _experience(rollouts))
    formula = Formula(GROUPS, PROMPT_WEIGHTS, BETA, CLIP, token_mean=case.token_mean)
    wrong = (replace(formula, net_advantage=True), replace(formula, weighs_kl=False))
    paper, net, without_weight = (_direct(plain, rollouts, each) for each in (formula, *wrong))
    ratio = (rollouts.current - rollouts.old).exp()[rollouts.mask.bool()]
    return GradientGap(
        case.word,
        hooked=relative(captured, paper),
        net_advantage=relative(net, paper),
        kl_without_prompt_weight=relative(without_weight, paper),
        clipped_share=((ratio - 1).abs() > CLIP).to(torch.float32).mean().item(),
    )


def relative(one: Any, other: Any) -> float:
    """|one − other| / |other|."""
    return float((one - other).norm() / other.norm())


def _arguments(case: GradientCase) -> Any:
    from openrlhf.utils.config import hierarchize  # noqa: PLC0415

    arguments = parse(
        to_arguments(
            {
                "rollout.batch_size": len(GROUPS),
                "rollout.n_samples_per_prompt": N,
                "train.batch_size": ROLLOUTS,
                "train.micro_batch_size": MICRO_BATCH if case.micro_batches else ROLLOUTS,
                "train.dynamic_batch_enable": case.dynamic,
                "train.max_tokens_per_gpu": MOST_TOKENS,
                "ds.packing_samples": case.packed,
                "ds.attn_implementation": "flash_attention_2" if case.packed else "sdpa",
                "ds.zero_stage": case.zero_stage,
                "algo.advantage.estimator": "group_norm",
                "algo.kl.use_loss": True,
                "algo.kl.estimator": "k3",
                "algo.kl.init_coef": BETA,
                "actor.loss_agg_mode": "token-mean" if case.token_mean else "seq-mean-token-mean",
                "actor.max_norm": 0.0,
            }
        )
    )
    args = hierarchize(arguments)
    args.actor.eps_clip_low_high = (CLIP, CLIP)
    args.ds.param_dtype = case.dtype
    return args


def _prepare(case: GradientCase) -> tuple[Any, Any, Any]:
    """The policy in DeepSpeed's engine, a copy outside of it, and the host's trainer.

    DeepSpeed wants all backward passes to itself: the paper's loss is differentiated on the copy.
    """
    import torch  # noqa: PLC0415
    from openrlhf.models import Actor  # noqa: PLC0415
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer  # noqa: PLC0415
    from openrlhf.utils import get_strategy  # noqa: PLC0415

    args = _arguments(case)
    strategy = get_strategy(args)
    strategy.setup_distributed()
    torch.manual_seed(0)
    model = _model(case, args.ds.attn_implementation)
    actor, plain = Actor(model), Actor(copy.deepcopy(model).to(torch.cuda.current_device()))
    for policy in (actor, plain):
        policy.packing_samples, policy.temperature = case.packed, 1.0
    config = {
        "optim": "adam",
        "adam": {"lr": 1e-3, "betas": BETAS, "eps": 1e-8, "weight_decay": 0.0},
        "lr_scheduler": "constant",
        "scheduler_steps": 10,
        "max_norm": 0.0,
    }
    actor, optimizer, scheduler = strategy.prepare((actor, config))
    micro_batch = args.train.micro_batch_size
    trainer = ActorPPOTrainer(
        strategy, actor, None, optimizer, scheduler, micro_train_batch_size=micro_batch, dataloader_pin_memory=False
    )
    return actor, plain, trainer


def _model(case: GradientCase, attention: str) -> Any:
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: PLC0415

    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=False,
    )
    models: Any = AutoModelForCausalLM
    return models.from_config(config, attn_implementation=attention).to(
        torch.bfloat16 if case.dtype == "bf16" else torch.float32
    )


@dataclass(frozen=True)
class Rollouts:
    """Tokens (B, T) and log-probabilities (B, T-1) of the policy now, of an old and of a reference policy."""

    sequences: Any
    attention: Any
    mask: Any
    current: Any
    old: Any
    base: Any


def _rollouts(policy: Any) -> Rollouts:
    import torch  # noqa: PLC0415

    device, length = torch.cuda.current_device(), PROMPT_TOKENS + RESPONSE_TOKENS
    # Made on the CPU, so that every device has the same case.
    generator = torch.Generator().manual_seed(1)
    sequences = torch.randint(3, VOCABULARY, (ROLLOUTS, length), generator=generator)
    attention, mask = torch.ones_like(sequences), torch.zeros(ROLLOUTS, length - 1)
    for row in range(ROLLOUTS):
        end = length - row % 4
        attention[row, end:] = 0
        mask[row, PROMPT_TOKENS - 1 : end - 1] = 1
    tensors = [each.to(device) for each in (sequences, mask, attention)]
    with torch.no_grad():
        current = policy(*tensors).float().cpu()
    old, base = (current + torch.randn(current.shape, generator=generator) * 0.5 for _ in range(2))
    return Rollouts(sequences, attention, mask, current, old, base)


def _experience(rollouts: Rollouts) -> Any:
    """As rollouts reach the policy's replay buffer: scored by the method, each with its pair."""
    import torch  # noqa: PLC0415
    from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: PLC0415

    from restrain_openrlhf.hook.group_columns import TRAINED_ON, columns  # noqa: PLC0415 - imports the stack
    from restrain_openrlhf.reward.whole_group import score_whole_group  # noqa: PLC0415
    from restrain_openrlhf.reward.wire import GroupRequest  # noqa: PLC0415
    from restrain_openrlhf.scoring import GroupScorer  # noqa: PLC0415

    rows = []
    for classes, weight in zip(GROUPS, PROMPT_WEIGHTS, strict=True):
        method = build(parse_settings({"name": "restrain", "kappa": 2, "prompt_weight": weight}))
        texts = ["none" if label is None else rf"\boxed{{{label}}}" for label in classes]
        responses = [{"text": text, "finished": True} for text in texts]
        group = GroupRequest.model_validate({"prompt": "x", "responses": responses})
        rows += columns(group, score_whole_group(GroupScorer(method), group))
    return Experience(
        sequences=rollouts.sequences,
        attention_mask=rollouts.attention,
        action_mask=rollouts.mask,
        action_log_probs=rollouts.old * rollouts.mask,
        base_action_log_probs=rollouts.base * rollouts.mask,
        advantages=None,
        total_length=rollouts.attention.sum(1),
        info={name: [torch.tensor([row[name]])[0] for row in rows] for name in TRAINED_ON},
    )


def _step(trainer: Any, actor: Any, experience: Any) -> Any:
    """The gradient that the optimizer used in one step of the host's own loop: its first moment, which began at 0."""
    import torch  # noqa: PLC0415

    trainer.replay_buffer.append(experience)
    trainer.ppo_train(BETA)
    moments = [_first_moment(actor.model, each) for each in actor.model.module.parameters()]
    return torch.cat([moment.flatten().double().cpu() for moment in moments]) / (1 - BETAS[0])


def _first_moment(engine: Any, parameter: Any) -> Any:
    """Adam's exp_avg of the whole parameter, also where it lies in ZeRO's flat groups.

    `safe_get_full_optimizer_state` does not do here: DeepSpeed links the states after the first group's step, when the
    other groups have none yet (runtime/zero/stage_1_and_2.py, _optimizer_step). ZeRO 3 has no such groups.
    """
    if engine.zero_optimization_stage() == PARTITIONED:
        from deepspeed.utils import safe_get_full_optimizer_state  # noqa: PLC0415

        return safe_get_full_optimizer_state(parameter, "exp_avg")
    optimizer, place = engine.optimizer, getattr(parameter, "_hp_mapping", None)
    if place is None:
        return optimizer.state[parameter]["exp_avg"]
    group = optimizer.single_partition_of_fp32_groups[place.param_group_index]
    address = place.get_hp_fragment_address()
    return optimizer.optimizer.state[group]["exp_avg"].narrow(0, address.start, address.numel)


def _direct(policy: Any, rollouts: Rollouts, formula: Formula) -> Any:
    import torch  # noqa: PLC0415

    device = torch.cuda.current_device()
    names = ("sequences", "mask", "attention", "old", "base")
    sequences, mask, attention, old, base = (getattr(rollouts, name).to(device) for name in names)
    policy.model.zero_grad()
    loss: Any = formula.loss(policy(sequences, mask, attention), old * mask, base * mask, mask)
    loss.backward()
    return torch.cat([each.grad.flatten().double().cpu() for each in policy.model.parameters()])


def not_patched() -> list[str]:
    """What of the hook's table does not come to our function, in this process that imported the host after the hook."""
    return [patch.qualname for patch in PATCHES if not patch.is_on()]


def _alone() -> None:
    """This process is all there is of the distributed run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def main(words: Sequence[str]) -> None:
    """Print a JSON line for each of the cases."""
    parser = argparse.ArgumentParser(description="One training step against the paper's gradient.")
    parser.add_argument("cases", nargs="+", help="Such as bf16+dynamic.")
    chosen = parser.parse_args(words)
    _alone()
    os.environ |= to_environment(HookConfig(method=parse_settings({"name": "ttrl"})))
    detect().install()
    install()
    for word in chosen.cases:
        sys.stdout.write(dump(asdict(measure(GradientCase.of(word)))))
        sys.stdout.flush()
    sys.stdout.write(dump({"not_patched": not_patched()}))


if __name__ == "__main__":
    main(sys.argv[1:])
