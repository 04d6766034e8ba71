"""Peak memory of a configuration's training step: measured with few layers, extrapolated, held against the estimate.

Run as a program with a number of layers and OpenRLHF's flags, it takes training steps of the configuration's model with
so many layers and random weights by the host's own trainer, and prints what the second one took as a JSON line. It
needs CUDA: a CPU does not say what it gave to whom.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from restrain_openrlhf.commands.gpu_check.children import measured
from restrain_openrlhf.commands.gpu_check.host_step import (
    arguments_of,
    experience_of,
    prepare_process,
    strategy_of,
    trainer_of,
)
from restrain_openrlhf.commands.gpu_check.outcome import CheckOutcome, judged, skipped
from restrain_openrlhf.config.host_flags import host_flags, to_arguments
from restrain_openrlhf.config.memory import CONTEXT, GIB, TRAINING, NoEstimateError, estimate, shape_of
from restrain_openrlhf.config.this_machine import on_this_machine, visible_memory
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.launch.train import flags_here
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, POSITIVE

LAYERS = (2, 4)
# A container's limit, or the word `max` (cgroup v2).
CONTAINERS = Path("/sys/fs/cgroup/memory.max")
# What is measured: the policy on one GPU, alone with its states.
ALONE: Mapping[str, object] = {
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 1,
    "train.colocate_all": False,
    "train.colocate_actor_ref": False,
}
# Micro-batches of a step: with a second one, gradients of the first are there while activations are.
MICRO_BATCHES = 2
PAIR = {POSITIVE: 0.5, NEGATIVE: -0.5, KL_WEIGHT: 1.0}


@dataclass(frozen=True)
class TrainingStep:
    """One GPU's bytes at `layers` of the model's `whole` number of layers: between steps, and the step's peak."""

    layers: int
    whole: int
    held: float
    peak: float


def estimated_bytes(flags: Mapping[str, object]) -> tuple[int, int]:
    """Bytes of the training step by `restrain show --memory`: of what is measured, alone, and on CONFIG's GPUs.

    From the host's parsed flags. Raises ConfigError where the model or the layout is not covered.
    """
    shape = shape_of(str(flags["actor.model_name_or_path"]))
    alone, layout = (
        max(found.peak_bytes[phase] for phase in TRAINING)
        for found in (estimate({**flags, **ALONE}, shape), estimate(flags, shape))
    )
    # torch counts nothing of CUDA's own memory.
    return alone - CONTEXT, layout


def extrapolate(few: TrainingStep, more: TrainingStep) -> TrainingStep:
    """The line through two measurements, at all layers: embedding and head count once, each layer the same."""
    steps = (few.whole - few.layers) / (more.layers - few.layers)
    held, peak = few.held + (more.held - few.held) * steps, few.peak + (more.peak - few.peak) * steps
    return TrainingStep(few.whole, few.whole, held, peak)


def check_memory(out: Path, config: RunConfig | None) -> list[CheckOutcome]:
    """Skipped without a configuration or a GPU. Each measurement has a process of its own."""
    name, device = "peak memory", detect()
    if config is None:
        return [skipped(name, "no CONFIG was given")]
    if not device.has_gpus:
        return [skipped(name, "it is a GPU's memory that is measured")]
    words = to_arguments({**device.host_flags, **host_flags(on_this_machine(config))})
    logs = {layers: out / "memory" / f"layers-{layers}.log" for layers in LAYERS}
    few, more = (TrainingStep(**measured(__name__, [layers, *words], log)[0]) for layers, log in logs.items())
    whole = extrapolate(few, more)
    return [report_peak(whole), check_estimate(whole, config), check_host_memory(config, memory_here())]


def report_peak(whole: TrainingStep) -> CheckOutcome:
    """What the step would take on one GPU; sharding divides the states among several."""
    peak, held = whole.peak / GIB, whole.held / GIB
    found = (
        f"{peak:.1f} GiB at {whole.layers} layers by extrapolation, {held:.1f} of them between steps, on one GPU that "
        "shards with no other (reported)"
    )
    return judged("peak memory", True, found, peak_gib=peak, held_gib=held)


def check_estimate(whole: TrainingStep, config: RunConfig) -> CheckOutcome:
    """Skipped where `restrain show --memory` has no estimate."""
    try:
        alone, layout = estimated_bytes(flags_here(config))
    except NoEstimateError as error:
        return skipped("memory estimate", f"`restrain show --memory` has none: {error}")
    return judge_estimate(whole, alone, layout, visible_memory())


def judge_estimate(whole: TrainingStep, alone: int, layout: int, gpu_bytes: int | None) -> CheckOutcome:
    """Failed where CONFIG's layout, its estimate put right by the measurement, needs more than a GPU has.

    What was measured beyond the estimate is taken as there on each GPU: batches and buckets are not sharded, and what
    is, the states, is exact.
    """
    needed = layout + whole.peak - alone
    ratio = whole.peak / alone
    size = "a GPU's, whose size is not known here" if gpu_bytes is None else f"{gpu_bytes / GIB:.1f}"
    found = (
        f"measured {ratio:.2f} of the estimate for that one GPU ({alone / GIB:.1f} GiB); put right by it, "
        f"CONFIG's training step needs {needed / GIB:.1f} GiB of {size}"
    )
    fits = gpu_bytes is None or needed <= gpu_bytes
    return judged("memory estimate", fits, found, ratio=ratio, needed_gib=needed / GIB)


def check_host_memory(config: RunConfig, here: int) -> CheckOutcome:
    """Failed where a node of CONFIG's layout keeps more in main memory, by estimate, than this machine has."""
    name, flags = "host memory", flags_here(config)
    try:
        lines = estimate(flags, shape_of(str(flags["actor.model_name_or_path"]))).host
    except NoEstimateError as error:
        return skipped(name, f"`restrain show --memory` has none: {error}")
    needed = sum(line.bytes for line in lines)
    what = ", ".join(f"{line.name} {line.bytes / GIB:.1f}" for line in lines)
    found = f"{needed / GIB:.1f} GiB are estimated beside the processes' own{f' ({what})' if what else ''}, "
    return judged(name, needed <= here, f"{found}of this machine's {here / GIB:.1f}", needed_gib=needed / GIB)


def memory_here() -> int:
    """Bytes of the machine, or of the container that this is."""
    import psutil  # noqa: PLC0415 - the training stack has it

    whole: int = psutil.virtual_memory().total
    limit = CONTAINERS.read_text(encoding="ascii").strip() if CONTAINERS.exists() else ""
    return min(int(limit), whole) if limit.isdigit() else whole


def measure(words: Sequence[str], layers: int) -> TrainingStep:
    """A first step, which makes the optimizer's states, and a second one that is measured. `words` are the host's."""
    import torch  # noqa: PLC0415 - after the device is prepared
    from transformers import AutoConfig  # noqa: PLC0415

    args = arguments_of(words)
    config = AutoConfig.from_pretrained(args.actor.model_name_or_path, trust_remote_code=True)
    whole = config.num_hidden_layers
    micro_batch = args.train.micro_batch_size = _rollouts_at_once(args)
    args.train.batch_size = micro_batch * MICRO_BATCHES
    args.rollout.batch_size, args.rollout.n_samples_per_prompt = MICRO_BATCHES, micro_batch
    strategy = strategy_of(args)
    trainer = trainer_of(strategy, few_layers(strategy, config, layers), args)
    for _ in range(2):
        trainer.replay_buffer.clear()
        trainer.replay_buffer.append(_experience(args, config.vocab_size))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        trainer.ppo_train(args.algo.kl.init_coef)
        torch.cuda.synchronize()
    return TrainingStep(layers, whole, held, torch.cuda.max_memory_allocated())


def _rollouts_at_once(args: Any) -> int:
    """Rollouts of the longest length in a micro-batch; dynamic batching bounds their tokens."""
    if not args.train.dynamic_batch_enable:
        return int(args.train.micro_batch_size)
    return max(1, int(args.train.max_tokens_per_gpu) // int(args.data.max_len))


def few_layers(strategy: Any, config: Any, layers: int) -> Any:
    """The policy that trainer/ray/ppo_actor.py makes of `strategy.args`, adapters included, of few random layers."""
    import torch  # noqa: PLC0415
    from openrlhf.models import Actor  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    args, models = strategy.args, cast("Any", AutoModelForCausalLM)
    config.num_hidden_layers = layers
    if isinstance(kinds := getattr(config, "layer_types", None), list):
        config.layer_types = kinds[:layers]
    with tempfile.TemporaryDirectory() as folder:
        with torch.device(torch.cuda.current_device()):
            models.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
        policy = Actor(
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
    if args.actor.gradient_checkpointing_enable:
        reentrant = args.actor.gradient_checkpointing_reentrant
        policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return policy


def _experience(args: Any, vocabulary: int) -> Any:
    """Rollouts of the longest length: half of the tokens are the response, or as many as may be new."""
    import torch  # noqa: PLC0415

    rollouts, length = args.train.batch_size, args.data.max_len
    response = min(args.rollout.max_new_tokens or length // 2, length - 1)
    sequences = torch.randint(vocabulary, (rollouts, length))
    mask = torch.zeros(rollouts, length - 1)
    mask[:, -response:] = 1
    zeros = torch.zeros_like(mask)
    info = {name: [torch.tensor(value)] * rollouts for name, value in PAIR.items()}
    return experience_of(sequences, torch.ones_like(sequences), mask, zeros, zeros, info)


def main(layers: str, *words: str) -> None:
    """Print what one step with so many layers took."""
    prepare_process()
    sys.stdout.write("\n" + dump(asdict(measure(words, int(layers)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
