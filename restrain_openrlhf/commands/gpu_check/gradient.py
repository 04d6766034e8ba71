"""One training step's gradient against the paper's loss, in each numeric type and way of batching.

Run as a program with cases as JSON, it takes one real step of OpenRLHF's ActorPPOTrainer under DeepSpeed for each and
prints how far apart the two gradients are, and at the end the host's methods that were not patched. Two prompts of six
rollouts, five labels and a missing answer between them, or the same rollouts many times over; the old policy is far
enough away that ratios clip on both sides. DeepSpeed takes hold of the whole process, so the cases have one to
themselves.

Rollouts that come many times have the gradient that they have once, which is what the step is held against. Of as many
other rollouts the gradients would nearly cancel, in their mean and not in the rounding of each: a right sum over 512
micro-batches was 0.015 off, where one in bf16 was 0.028. So it is 0.002, and 0.061.
"""

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.gpu_check import host_step
from restrain_openrlhf.commands.gpu_check.children import measured
from restrain_openrlhf.commands.gpu_check.outcome import CheckOutcome, failed, judged, skipped
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import Flags, to_arguments
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.install.instrument import unpatched
from restrain_openrlhf.hook.launch.train import flags_here
from restrain_openrlhf.machine import flash_attention
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.method.papers_loss import PapersLoss
from restrain_openrlhf.method.types import Classes

# What a wrong implementation would do instead of the paper's formula.
WRONG: Mapping[str, Mapping[str, Any]] = {
    "net_advantage": {"net_advantage": True},
    "kl_without_prompt_weight": {"weighs_kl": False},
}
# Relative to the gradient's norm. A loss without the prompt weight on KL is 0.06 off, one by the net advantage 0.5 or
# more. In bf16 a right step is 0.002 to 0.004 off, and 0.01 where attention, or half of each matrix, is rounded apart.
LIMITS = {"fp32": 1e-4, "bf16": 0.02}
GROUPS: tuple[Classes, ...] = ([0, 0, 0, 1, 2, None], [0, 0, 0, 0, 1, 1])
PROMPT_WEIGHTS = (0.6, 0.9)
N = 6
ROLLOUTS = N * len(GROUPS)
PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY = 4, 7, 32
BETA, CLIP = 0.1, 0.2
# log π − log π_old of a token: two ratios are clipped, and none is so near to the clip that rounding decides.
SHIFTS = (-0.5, -0.1, 0.1, 0.5)
# Four micro-batches; dynamic batching makes as many of these lengths.
MICRO_BATCH = 3
MOST_TOKENS = 36
# A configuration's own number of micro-batches is tried up to this one.
MOST_MICRO_BATCHES = 512


@dataclass(frozen=True)
class GradientCase:
    """How the step is computed. On a GPU the kernels that pack take bf16 alone.

    `attention` is the policy's, by OpenRLHF's name. `stage` is ZeRO's; where None as it is trained: 2 in bf16, with
    sharded states, and 0 in fp32. The rollouts of the two prompts come `repeats` times.
    `grad_accum_dtype` and `adam_offload` are DeepSpeed's. With `lora` an adapter alone is trained, one that is not new:
    both of its matrices have a gradient. With `two_turns` a rollout has an agent's observation between its tokens.
    The policy is the one that is sampled at `temperature`.
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

    @property
    def rollouts(self) -> int:
        """Of the step."""
        return ROLLOUTS * self.repeats

    @property
    def name(self) -> str:
        """In words, such as `bf16, packed, dynamic`."""
        other = {
            "mean of sequences": not self.token_mean,
            f"ZeRO {self.stage}": self.stage is not None,
            f"{self.rollouts // MICRO_BATCH} of them": self.repeats > 1,
            f"summed in {self.grad_accum_dtype}": self.grad_accum_dtype is not None,
            "Adam on the host": self.adam_offload,
            self.attention: self.attention != "sdpa",
            "LoRA": self.lora,
            "two turns": self.two_turns,
            f"temperature {self.temperature:g}": self.temperature != 1,
        }
        return ", ".join([self.dtype, self.batching, *(word for word, applies in other.items() if applies)])


CASES = tuple(
    GradientCase(dtype, batching) for dtype in ("fp32", "bf16") for batching in ("whole", "micro-batches", "dynamic")
)
FLASH, TORCHS = (
    tuple(GradientCase("bf16", batching, attention=attention) for batching in ("packed", "packed, dynamic"))
    for attention in ("flash_attention_2", flash_attention.BY_TORCH)
)


def check_gradient(out: Path, config: RunConfig | None = None) -> list[CheckOutcome]:
    """All cases in one process: flash-attn's where it is there, and CONFIG's own sum of micro-batches."""
    missing = [each.reason for each in detect().unsupported if each.value == "flash_attention_2"]
    flags = {} if config is None else flags_here(config)
    # Stage 0 has no optimizer of DeepSpeed's whose sum could be read.
    own = (sum_of(flags),) if flags.get("ds.zero_stage") else ()
    cases = (*CASES, *TORCHS, *(() if missing else FLASH), *own)
    *gaps, patches = measured(__name__, as_words(cases), out / "gradient" / "gradient.log")
    outcomes = [judge_gradient(case, gap) for case, gap in zip(cases, gaps, strict=True)]
    outcomes += [skipped(f"gradient: {case.name}", missing[0]) for case in FLASH if missing]
    return [*outcomes, judge_patches(patches["not_patched"])]


def sum_of(flags: Flags) -> GradientCase:
    """As many micro-batches as each GPU adds up in a step of these flags, at least four, in their type, temperature.

    Packed where these are, by their attention; of an adapter where one is trained.
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
    )


def judge_gradient(case: GradientCase, gap: Mapping[str, float]) -> CheckOutcome:
    """Failed where the step is not the paper's, or where the case could not tell."""
    name, limit = f"gradient: {case.name}", LIMITS[case.dtype]
    numbers = {measure: gap[measure] for measure in ("hooked", *WRONG)}
    if min(gap[wrong] for wrong in WRONG) < limit:
        return failed(name, f"a wrong loss is within the limit of {limit:g}: the case shows nothing", **numbers)
    return judged(name, gap["hooked"] < limit, f"{gap['hooked']:.1e} from the paper's (limit {limit:g})", **numbers)


def judge_patches(not_patched: Sequence[str]) -> CheckOutcome:
    """Whether the hook is on in a process that imports the host after it."""
    found = f"not patched: {', '.join(not_patched)}" if not_patched else "every method of the hook's table is patched"
    return judged("hook", not not_patched, found)


def as_words(cases: Sequence[GradientCase]) -> list[str]:
    """The cases as this program takes them."""
    return [json.dumps(asdict(case)) for case in cases]


def measure(case: GradientCase) -> dict[str, float]:
    """One step of the case, in this process; the hook must be installed.

    Distances from the paper's gradient, relative to its norm: the hooked step's, and those of the WRONG losses. A
    tolerance between them can tell the two apart; `clipped_share` of the tokens are clipped.
    """
    plain, trainer = _prepare(case)
    experience, clipped_share = _experience(plain, case)
    for _ in range(case.repeats):
        trainer.replay_buffer.append(experience)
    trainer.ppo_train(BETA)
    formula = PapersLoss(GROUPS, PROMPT_WEIGHTS, BETA, CLIP, token_mean=case.token_mean)
    paper = _direct(plain, experience, formula)
    wrong = {name: _direct(plain, experience, replace(formula, **changed)) for name, changed in WRONG.items()}
    found = {"hooked": host_step.used_gradient(trainer.actor.model), **wrong}
    apart = {name: float((each - paper).norm() / paper.norm()) for name, each in found.items()}
    return {**apart, "clipped_share": clipped_share}


def _arguments(case: GradientCase) -> Any:
    flags = {
        "rollout.batch_size": len(GROUPS) * case.repeats,
        "rollout.n_samples_per_prompt": N,
        "rollout.temperature": case.temperature,
        "train.batch_size": case.rollouts,
        "train.micro_batch_size": MICRO_BATCH if "micro-batches" in case.batching else case.rollouts,
        "train.dynamic_batch_enable": "dynamic" in case.batching,
        "train.max_tokens_per_gpu": MOST_TOKENS,
        "ds.zero_stage": (2 if case.dtype == "bf16" else 0) if case.stage is None else case.stage,
        "ds.grad_accum_dtype": case.grad_accum_dtype,
        "ds.adam_offload": case.adam_offload,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True,
        "algo.kl.estimator": "k3",
        "algo.kl.init_coef": BETA,
        "actor.max_norm": 0.0,
        # As in every run (config/host_flags.py): the entropy is logged.
        "actor.entropy_coef": 0,
        # The default is token-mean, and before 0.11.2 there is no other.
        **({} if case.token_mean else {"actor.loss_agg_mode": "seq-mean-token-mean"}),
    }
    args = host_step.arguments_of(to_arguments(flags))
    args.actor.eps_clip_low_high = (CLIP, CLIP)
    args.ds.param_dtype = case.dtype
    # Dynamic batches that are padded exist in these cases alone: the host packs them.
    args.ds.packing_samples, args.ds.attn_implementation = "packed" in case.batching, case.attention
    return args


def _prepare(case: GradientCase) -> tuple[Any, Any]:
    """A copy of the policy outside of DeepSpeed's engine, and the host's trainer with the policy in it.

    DeepSpeed wants all backward passes to itself: the paper's loss is differentiated on the copy.
    """
    import torch  # noqa: PLC0415 - after the device is prepared

    args = _arguments(case)
    strategy = host_step.strategy_of(args)
    torch.manual_seed(0)
    model = host_step.small_model(args, VOCABULARY, case.lora)
    plain = host_step.policy_of(copy.deepcopy(model).to(torch.cuda.current_device()), args)
    if case.attention == flash_attention.BY_TORCH:
        # No GPU of ours has run this attention: the paper's gradient is by another.
        plain.model.set_attn_implementation("sdpa")
    return plain, host_step.trainer_of(strategy, host_step.policy_of(model, args), args)


def _experience(policy: Any, case: GradientCase) -> tuple[Any, float]:
    """Rollouts as they reach the policy's replay buffer, each with its pair, and the share of tokens that are clipped.

    Made on the CPU, so that every device has the same case.
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
    """The columns that a method gives the rollouts."""
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
    """The gradient of the formula, differentiated on a policy outside of DeepSpeed and of the host's log-probabilities.

    The hook takes their place in a training step (fixes/log_probs.py).
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
    """Print a JSON line for each of the cases."""
    host_step.prepare_process()
    for word in words:
        sys.stdout.write(dump(measure(GradientCase(**json.loads(word)))))
    sys.stdout.write(dump({"not_patched": unpatched()}))


if __name__ == "__main__":
    main(sys.argv[1:])
