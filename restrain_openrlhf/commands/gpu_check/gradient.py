"""Compares the gradient of a training step with that of the paper's loss, for each numeric type and batching.

As a program with cases as JSON, this module takes one real step of OpenRLHF's ActorPPOTrainer under DeepSpeed for each
case, and prints how far apart the two gradients are, and at the end which of the host's methods were not patched. A
case has two prompts of six rollouts each, with five labels and a missing answer, or the same rollouts many times. The
old policy is far enough away that ratios are clipped on both sides. The cases have a process of their own, because
DeepSpeed changes the whole process.

The step uses the same rollouts many times, and its mean gradient is that of using them once. With as many different
rollouts the gradients would nearly cancel, but their rounding errors would not: a right sum over 512 micro-batches was
then 0.015 off, and one in bf16 0.028. With repeated rollouts they are 0.002 and 0.061 off.
"""

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.gpu_check import CheckOutcome, failed, host_step, judged, measured
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import Flags, to_arguments
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.install.instrument import unpatched
from restrain_openrlhf.machine import flash_attention
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.method.papers_loss import PapersLoss
from restrain_openrlhf.method.types import Classes

# Changes of the paper's formula that a wrong implementation might have.
WRONG_FORMULAS: Mapping[str, Mapping[str, Any]] = {
    "net_advantage": {"net_advantage": True},
    "kl_without_prompt_weight": {"weighs_kl": False},
}
# Limits of the distance, relative to the gradient's norm. A loss without the prompt weight on KL is 0.06 off, and one
# with the net advantage 0.5 or more. In bf16 a right step is 0.002 to 0.004 off, and 0.01 where attention, or half of
# each matrix, is rounded separately.
LIMITS = {"fp32": 1e-4, "bf16": 0.02}
GROUPS: tuple[Classes, ...] = ([0, 0, 0, 1, 2, None], [0, 0, 0, 0, 1, 1])
PROMPT_WEIGHTS = (0.6, 0.9)
GROUP_SIZE = 6
ROLLOUTS = GROUP_SIZE * len(GROUPS)
PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY = 4, 7, 32
BETA, CLIP = 0.1, 0.2
# Values of log π − log π_old of a token. Two of the ratios are clipped, and none is so near to the clip that rounding
# decides.
SHIFTS = (-0.5, -0.1, 0.1, 0.5)
# This gives four micro-batches, and dynamic batching gives as many for these lengths.
MICRO_BATCH = 3
MOST_TOKENS = 36
# A configuration's own number of micro-batches is used up to this limit.
MOST_MICRO_BATCHES = 512


@dataclass(frozen=True)
class GradientCase:
    """How the step is computed. On a GPU, the kernels for packing only take bf16.

    `attention` is the policy's, by OpenRLHF's name. `stage` is the ZeRO stage; None means 2 in bf16 and 0 in fp32. The
    rollouts of the two prompts are repeated `repeats` times. `grad_accum_dtype` and `adam_offload` are those of
    DeepSpeed. With `lora` only an adapter is trained, which is not new, so that both of its matrices have a gradient.
    With `two_turns` a rollout has an agent's observation between its tokens. The policy is sampled at `temperature`.
    """

    dtype: str = "fp32"
    batching: str = "whole"
    token_mean: bool = True
    stage: int | None = None
    repeats: int = 1
    grad_accum_dtype: str | None = None
    adam_offload: bool = False
    attention: str = "sdpa"
    lora: bool = False
    two_turns: bool = False
    temperature: float = 1.0
    checkpointing: bool = False

    @property
    def rollouts(self) -> int:
        return ROLLOUTS * self.repeats

    @property
    def name(self) -> str:
        """The type, the batching and what differs from the defaults, such as `bf16, packed, lora True`."""
        given = ((each.name, getattr(self, each.name), each.default) for each in fields(self)[2:])
        others = (f"{name} {value}" for name, value, usual in given if value != usual)
        return ", ".join([self.dtype, self.batching, *others])


CASES = tuple(
    GradientCase(dtype, batching) for dtype in ("fp32", "bf16") for batching in ("whole", "micro-batches", "dynamic")
)
FLASH, TORCHS = (
    tuple(GradientCase("bf16", batching, attention=attention) for batching in ("packed", "packed, dynamic"))
    for attention in ("flash_attention_2", flash_attention.BY_TORCH)
)


def check_gradient(out: Path, config: RunConfig | None = None) -> list[CheckOutcome]:
    """Measure all cases in one process, including flash-attn's if it is installed, and that of CONFIG."""
    flags = {} if config is None else HostRun.of(config).flags
    # With stage 0 there is no optimizer of DeepSpeed from which the gradient could be read.
    own = (sum_of(flags),) if flags.get("ds.zero_stage") else ()
    has_flash = all(each.value != "flash_attention_2" for each in detect().unsupported)
    cases = (*CASES, *TORCHS, *(FLASH if has_flash else ()), *own)
    *gaps, patches = measured(__name__, as_words(cases), out / "gradient" / "gradient.log")
    outcomes = [judge_gradient(case, gap) for case, gap in zip(cases, gaps, strict=True)]
    return [*outcomes, judge_patches(patches["not_patched"])]


def sum_of(flags: Flags) -> GradientCase:
    """The case with the batching, numeric types, attention and temperature of these flags.

    It has as many micro-batches as each GPU adds up in a step, but at least four. If an adapter is trained, so it is
    here.
    """
    gpus, dynamic = max(GpuLayout.of(flags).policy, 1), flags["train.dynamic_batch_enable"]
    packed = dynamic or flags["ds.packing_samples"]
    if dynamic:
        count = flags["train.batch_size"] * flags["data.max_len"] // (flags["train.max_tokens_per_gpu"] * gpus)
    else:
        count = flags["train.batch_size"] // (flags["train.micro_batch_size"] * gpus)
    return GradientCase(
        "bf16",
        ("packed, " if packed else "") + ("dynamic" if dynamic else "micro-batches"),
        attention=host_step.attention_of(flags["ds.attn_implementation"], packed),
        stage=flags["ds.zero_stage"],
        repeats=max(1, min(count, MOST_MICRO_BATCHES) * MICRO_BATCH // ROLLOUTS),
        grad_accum_dtype=flags["ds.grad_accum_dtype"],
        adam_offload=flags["ds.adam_offload"],
        lora=flags["ds.lora.rank"] > 0,
        temperature=flags["rollout.temperature"],
        checkpointing=flags["actor.gradient_checkpointing_enable"],
    )


def judge_gradient(case: GradientCase, gap: Mapping[str, float]) -> CheckOutcome:
    """Failed where the gradient is not the paper's, or where the case could not tell a wrong one."""
    name, limit = f"gradient: {case.name}", LIMITS[case.dtype]
    if min(gap[wrong] for wrong in WRONG_FORMULAS) < limit:
        return failed(name, f"a wrong loss is within the limit of {limit:g}: the case shows nothing")
    return judged(name, gap["hooked"] < limit, f"{gap['hooked']:.1e} from the paper's (limit {limit:g})")


def judge_patches(not_patched: Sequence[str]) -> CheckOutcome:
    """Whether the hook is on in a process that imports the host after installing the hook."""
    found = f"not patched: {', '.join(not_patched)}" if not_patched else "every method of the hook's table is patched"
    return judged("hook", not not_patched, found)


def as_words(cases: Sequence[GradientCase]) -> list[str]:
    return [json.dumps(asdict(case)) for case in cases]


def measure(case: GradientCase) -> dict[str, float]:
    """Take one step of the case in this process, in which the hook must be installed.

    Returns distances from the paper's gradient, relative to its norm: that of the hooked step, and those of
    the WRONG_FORMULAS. A limit between them tells right from wrong. `clipped_share` is the share of clipped tokens.
    """
    plain, trainer = _prepare(case)
    experience, clipped_share = _experience(plain, case)
    for _ in range(case.repeats):
        trainer.replay_buffer.append(experience)
    trainer.ppo_train(BETA)
    formula = PapersLoss(GROUPS, PROMPT_WEIGHTS, BETA, CLIP, token_mean=case.token_mean)
    paper = _direct(plain, experience, formula)
    wrong = {name: _direct(plain, experience, replace(formula, **changed)) for name, changed in WRONG_FORMULAS.items()}
    found = {"hooked": host_step.used_gradient(trainer.actor.model), **wrong}
    apart = {name: float((each - paper).norm() / paper.norm()) for name, each in found.items()}
    return {**apart, "clipped_share": clipped_share}


def _arguments(case: GradientCase) -> Any:
    flags = {
        "rollout.batch_size": len(GROUPS) * case.repeats,
        "rollout.n_samples_per_prompt": GROUP_SIZE,
        "rollout.temperature": case.temperature,
        "train.batch_size": case.rollouts,
        "train.micro_batch_size": MICRO_BATCH if "micro-batches" in case.batching else case.rollouts,
        "train.dynamic_batch_enable": "dynamic" in case.batching,
        "train.max_tokens_per_gpu": MOST_TOKENS,
        "ds.zero_stage": (2 if case.dtype == "bf16" else 0) if case.stage is None else case.stage,
        "ds.grad_accum_dtype": case.grad_accum_dtype,
        "ds.adam_offload": case.adam_offload,
        "actor.gradient_checkpointing_enable": case.checkpointing,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True,
        "algo.kl.estimator": "k3",
        "algo.kl.init_coef": BETA,
        "actor.max_norm": 0.0,
        # With 0, as in every run (config/host_flags.py), the entropy is only logged.
        "actor.entropy_coef": 0,
        # token-mean is the default, and the only mode before 0.11.2.
        **({} if case.token_mean else {"actor.loss_agg_mode": "seq-mean-token-mean"}),
    }
    args = host_step.arguments_of(to_arguments(flags))
    args.actor.eps_clip_low_high = (CLIP, CLIP)
    args.ds.param_dtype = case.dtype
    # Padded dynamic batches only exist in these cases; the host always packs them.
    args.ds.packing_samples, args.ds.attn_implementation = "packed" in case.batching, case.attention
    return args


def _prepare(case: GradientCase) -> tuple[Any, Any]:
    """A copy of the policy outside of DeepSpeed's engine, and the host's trainer with the policy.

    The paper's loss is differentiated on the copy, because DeepSpeed must see all backward passes of its engine.
    """
    import torch  # noqa: PLC0415 - after the device is prepared

    args = _arguments(case)
    strategy = host_step.strategy_of(args)
    torch.manual_seed(0)
    model = host_step.small_model(args, VOCABULARY, case.lora)
    plain = host_step.policy_of(copy.deepcopy(model).to(torch.cuda.current_device()), args)
    if case.attention == flash_attention.BY_TORCH:
        # This attention is what is checked, so the paper's gradient is computed with another one.
        plain.model.set_attn_implementation("sdpa")
    return plain, host_step.trainer_of(strategy, host_step.policy_of(model, args), args)


def _experience(policy: Any, case: GradientCase) -> tuple[Any, float]:
    """Rollouts with their pairs, in the form of the policy's replay buffer, and the share of clipped tokens.

    They are made on the CPU, so that all devices have the same case.
    """
    import torch  # noqa: PLC0415

    length, generator = PROMPT_TOKENS + RESPONSE_TOKENS, torch.Generator().manual_seed(1)
    sequences = torch.randint(3, VOCABULARY, (ROLLOUTS, length), generator=generator)
    attention, mask = torch.ones_like(sequences), torch.zeros(ROLLOUTS, length - 1)
    for row in range(ROLLOUTS):
        end = length - row % 4
        attention[row, end:] = 0
        mask[row, PROMPT_TOKENS - 1 : end - 1] = 1
        if case.two_turns:
            mask[row, PROMPT_TOKENS + row % 2 : PROMPT_TOKENS + 2] = 0
    with torch.no_grad():
        current = policy(*(each.to(torch.cuda.current_device()) for each in (sequences, mask, attention))).float().cpu()
    shifts = torch.tensor(SHIFTS)[torch.randint(len(SHIFTS), current.shape, generator=generator)]
    old, base = current - shifts, current + torch.randn(current.shape, generator=generator) * 0.5
    experience = host_step.experience_of(sequences, attention, mask, old * mask, base * mask, _scored())
    clipped = (shifts.exp()[mask.bool()] - 1).abs() > CLIP
    return experience, clipped.float().mean().item()


def _scored() -> dict[str, list[Any]]:
    import torch  # noqa: PLC0415

    from restrain_openrlhf.hook.rollout.group_columns import TRAINED_ON, columns  # noqa: PLC0415 - imports the stack
    from restrain_openrlhf.scoring import GroupScorer, score_whole_group  # noqa: PLC0415
    from restrain_openrlhf.scoring.wire import GroupRequest  # noqa: PLC0415

    rows = []
    for classes, weight in zip(GROUPS, PROMPT_WEIGHTS, strict=True):
        method = build(parse_settings({"name": "restrain", "kappa": 2, "prompt_weight": weight}))
        texts = ["none" if label is None else rf"\boxed{{{label}}}" for label in classes]
        responses = [{"text": text, "finished": True} for text in texts]
        group = GroupRequest.model_validate({"prompt": "x", "responses": responses})
        rows += columns(group, score_whole_group(GroupScorer(method), group))
    return {name: [torch.tensor([row[name]])[0] for row in rows] for name in TRAINED_ON}


def _direct(policy: Any, experience: Any, formula: PapersLoss) -> Any:
    """The gradient of the formula, on a policy outside of DeepSpeed and without the host's log-probabilities.

    The hook replaces these in a training step (hook/fixes/training_step.py), so they are part of what is checked.
    """
    import torch  # noqa: PLC0415

    names = ("sequences", "action_mask", "attention_mask", "action_log_probs", "base_action_log_probs")
    sequences, mask, attention, old, base = (
        getattr(experience, name).to(torch.cuda.current_device()) for name in names
    )
    policy.model.zero_grad()
    logits = policy.model(sequences, attention_mask=attention).logits[:, :-1].float() / policy.temperature
    log_probs = logits.log_softmax(-1).gather(-1, sequences[:, 1:, None])[..., 0] * mask
    loss: Any = formula.loss(log_probs, old, base, mask)
    loss.backward()
    return torch.cat([each.grad.flatten().double().cpu() for each in host_step.trained(policy.model)])


def main(words: Sequence[str]) -> None:
    host_step.prepare_process()
    for word in words:
        sys.stdout.write(dump(measure(GradientCase(**json.loads(word)))))
    sys.stdout.write(dump({"not_patched": unpatched()}))


if __name__ == "__main__":
    main(sys.argv[1:])
