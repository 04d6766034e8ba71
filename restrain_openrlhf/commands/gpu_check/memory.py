"""Measures the peak memory of a training step with few layers, extrapolates it, and compares it with the estimate.

As a program with a number of layers and OpenRLHF's flags, this module takes training steps of the configuration's
model, with so many layers and random weights, by the host's trainer, and prints the memory of the second step as a JSON
line. It needs CUDA, because a CPU does not report what a process has allocated.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from restrain_openrlhf.commands.gpu_check import CheckOutcome, host_step, judged, measured, skipped
from restrain_openrlhf.config.gpu_layout import GpuLayout, rollouts_of_step
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.estimate import CONTEXT, estimate
from restrain_openrlhf.config.memory.lines import GIB, TRAINING
from restrain_openrlhf.config.memory.shape import NoEstimateError, shape_of
from restrain_openrlhf.config.this_machine import HostRun, visible_memory
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, POSITIVE

NAME = "peak memory"
LAYERS = (2, 4)
# The measured layout: the policy and its states alone on one GPU.
POLICY_ALONE: Mapping[str, object] = {
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 1,
    "train.colocate_all": False,
    "train.colocate_actor_ref": False,
}
# Micro-batches of a step. With two, the gradients of the first exist at the same time as activations.
MICRO_BATCHES = 2
# The steps that hours are told for.
STEPS = 1000
PAIR = {POSITIVE: 0.5, NEGATIVE: -0.5, KL_WEIGHT: 1.0}


@dataclass(frozen=True)
class TrainingStep:
    """The bytes held between steps and at the peak, with `layers` of `whole` layers on one GPU; a step's tokens, and
    its seconds."""

    layers: int
    whole: int
    held: float
    peak: float
    seconds: float
    tokens: int


def estimated_bytes(flags: Mapping[str, object]) -> tuple[int, int]:
    """The estimated bytes of the training step: in the measured layout, and in CONFIG's layout.

    `flags` are parsed. Raises ConfigError if the estimate does not cover the model or the layout.
    """
    shape = shape_of(str(flags["actor.model_name_or_path"]))
    alone, layout = (
        max(found.peak_bytes[phase] for phase in TRAINING)
        for found in (estimate({**flags, **POLICY_ALONE}, shape), estimate(flags, shape))
    )
    # torch does not count the memory of CUDA's context.
    return alone - CONTEXT, layout


def extrapolate(few: TrainingStep, more: TrainingStep) -> TrainingStep:
    """Extrapolate two measurements to all layers. Embedding and head count once, and each layer adds the same."""
    steps = (few.whole - few.layers) / (more.layers - few.layers)
    held, peak, seconds = (
        getattr(few, name) + (getattr(more, name) - getattr(few, name)) * steps for name in ("held", "peak", "seconds")
    )
    return TrainingStep(few.whole, few.whole, held, peak, seconds, few.tokens)


def check_memory(out: Path, config: RunConfig | None) -> list[CheckOutcome]:
    """Measure in one process per number of layers. Skipped without a configuration or a GPU."""
    device = detect()
    if config is None:
        return [skipped(NAME, "no CONFIG was given")]
    if not device.has_gpus:
        return [skipped(NAME, "it is a GPU's memory that is measured")]
    run = HostRun.of(config)
    words = run.words()
    logs = {layers: out / "memory" / f"layers-{layers}.log" for layers in LAYERS}
    few, more = (TrainingStep(**measured(__name__, [layers, *words], log)[0]) for layers, log in logs.items())
    whole = extrapolate(few, more)
    try:
        alone, layout = estimated_bytes(run.flags)
    except NoEstimateError as error:
        found = f"{_found(whole)}; `restrain show --memory` has no estimate: {error}"
        return [judged(NAME, True, found), speed(whole, run.flags)]
    return [judge_estimate(whole, alone, layout, visible_memory()), speed(whole, run.flags)]


def speed(whole: TrainingStep, flags: Flags) -> CheckOutcome:
    """The speed of the step's forward and backward passes, and the hours of CONFIG's; it is only reported."""
    tokens = whole.tokens / whole.seconds
    most = STEPS * rollouts_of_step(flags) * flags["data.max_len"]
    hours = most / tokens / max(GpuLayout.of(flags).policy, 1) / 3600
    found = (
        f"{whole.seconds:.2f} seconds, {tokens:,.0f} tokens a second on one GPU; {STEPS:,} steps of CONFIG are "
        f"{hours:.1f} hours of training on its GPUs if every rollout is as long as data.max_len"
    )
    return judged("training speed", True, found)


def judge_estimate(whole: TrainingStep, alone: int, layout: int, gpu_bytes: int | None) -> CheckOutcome:
    """Failed where CONFIG's layout, with its estimate corrected by the measurement, needs more than a GPU has.

    What was measured beyond the estimate is assumed on each GPU, because batches and buckets are not sharded, and the
    estimate of sharded states is exact.
    """
    needed = layout + whole.peak - alone
    size = "a GPU's, whose size is not known here" if gpu_bytes is None else f"{gpu_bytes / GIB:.1f}"
    found = (
        f"{_found(whole)}, {whole.peak / alone:.2f} of the estimate for it ({alone / GIB:.1f}); put right by it, "
        f"CONFIG's training step needs {needed / GIB:.1f} GiB of {size}"
    )
    return judged(NAME, gpu_bytes is None or needed <= gpu_bytes, found)


def _found(whole: TrainingStep) -> str:
    peak, held = whole.peak / GIB, whole.held / GIB
    return f"{peak:.1f} GiB at {whole.layers} layers by extrapolation, {held:.1f} of them between steps, on one GPU"


def measure(words: Sequence[str], layers: int) -> TrainingStep:
    """Take a step, which creates the optimizer's states, and measure a second one; `words` are the host's flags."""
    import torch  # noqa: PLC0415 - after the device is prepared
    from transformers import AutoConfig  # noqa: PLC0415

    args = host_step.arguments_of(words)
    config = AutoConfig.from_pretrained(args.actor.model_name_or_path, trust_remote_code=True)
    whole = config.num_hidden_layers
    micro_batch = args.train.micro_batch_size = _rollouts_at_once(args)
    args.train.batch_size = micro_batch * MICRO_BATCHES
    args.rollout.batch_size, args.rollout.n_samples_per_prompt = MICRO_BATCHES, micro_batch
    strategy = host_step.strategy_of(args)
    trainer = host_step.trainer_of(strategy, few_layers(strategy, config, layers), args)
    for _ in range(2):
        trainer.replay_buffer.clear()
        trainer.replay_buffer.append(_experience(args, config.vocab_size))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held, start = torch.cuda.memory_allocated(), time.monotonic()
        trainer.ppo_train(args.algo.kl.init_coef)
        torch.cuda.synchronize()
        seconds = time.monotonic() - start
    tokens = args.train.batch_size * args.data.max_len
    return TrainingStep(layers, whole, held, torch.cuda.max_memory_allocated(), seconds, tokens)


def _rollouts_at_once(args: Any) -> int:
    """The number of longest rollouts in a micro-batch; dynamic batching limits their tokens."""
    if not args.train.dynamic_batch_enable:
        return int(args.train.micro_batch_size)
    return max(1, int(args.train.max_tokens_per_gpu) // int(args.data.max_len))


def few_layers(strategy: Any, config: Any, layers: int) -> Any:
    """The policy with few random layers, made as in trainer/ray/ppo_actor.py from `strategy.args`, with adapters."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    models = cast("Any", AutoModelForCausalLM)
    config.num_hidden_layers = layers
    if isinstance(kinds := getattr(config, "layer_types", None), list):
        config.layer_types = kinds[:layers]
    with tempfile.TemporaryDirectory() as folder:
        with torch.device(torch.cuda.current_device()):
            models.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
        return _policy_in(folder, strategy)


def _policy_in(folder: str, strategy: Any) -> Any:
    from openrlhf.models import Actor  # noqa: PLC0415

    args = strategy.args
    return Actor(
        folder,
        attn_implementation=args.ds.attn_implementation,
        param_dtype=args.ds.param_dtype,
        lora_rank=args.ds.lora.rank,
        lora_alpha=args.ds.lora.alpha,
        target_modules=args.ds.lora.target_modules,
        lora_dropout=args.ds.lora.dropout,
        ds_config=strategy.get_ds_train_config(),
        packing_samples=args.ds.packing_samples,
        temperature=args.rollout.temperature,
        use_liger_kernel=args.ds.use_liger_kernel,
    )


def _experience(args: Any, vocabulary: int) -> Any:
    """Rollouts of the longest length. The response is half of the tokens, or as many as may be new."""
    import torch  # noqa: PLC0415

    rollouts, length = args.train.batch_size, args.data.max_len
    response = min(args.rollout.max_new_tokens or length // 2, length - 1)
    sequences = torch.randint(vocabulary, (rollouts, length))
    mask = torch.zeros(rollouts, length - 1)
    mask[:, -response:] = 1
    zeros = torch.zeros_like(mask)
    info = {name: [torch.tensor(value)] * rollouts for name, value in PAIR.items()}
    return host_step.experience_of(sequences, torch.ones_like(sequences), mask, zeros, zeros, info)


def main(layers: str, *words: str) -> None:
    host_step.prepare_process()
    sys.stdout.write("\n" + dump(asdict(measure(words, int(layers)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
