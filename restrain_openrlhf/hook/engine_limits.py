"""How much each rollout engine works on at a time, from the run's own sizes where the configuration does not say."""

from restrain_openrlhf.config.engine import EngineLimits
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.hook.device import Device
from restrain_openrlhf.hook.layout import Flags
from restrain_openrlhf.method import build

# vLLM's own for an engine in another process (config/scheduler.py), where OpenRLHF sets none.
LEAST_ROLLOUTS = 128
# vLLM captures CUDA graphs for batches of up to so many (config/vllm.py), and every rollout's logits are in memory.
MOST_ROLLOUTS = 512
# vLLM's for offline sampling (engine/arg_utils.py, get_batch_defaults); 2,048 would draw out the prompts' prefill.
BATCHED_TOKENS = 8192


def limits_of_run(config: HookConfig, flags: Flags, device: Device) -> EngineLimits:
    """The configuration's limits, and what follows from the run (flags under dotted names) for those it leaves out.

    Without GPUs vLLM's own stay: its CPU engine plans its memory by them.
    """
    stated = config.engine
    if not device.has_gpus:
        return stated
    seqs = stated.max_num_seqs or min(max(rollouts_in_flight(config, flags), LEAST_ROLLOUTS), MOST_ROLLOUTS)
    tokens = stated.max_num_batched_tokens or max(BATCHED_TOKENS, seqs)
    return EngineLimits(max_num_seqs=min(seqs, tokens), max_num_batched_tokens=tokens)


def rollouts_in_flight(config: HookConfig, flags: Flags) -> int:
    """Rollouts that one engine gets at once, those that only vote included; the host spreads prompts evenly."""
    plan = build(config.method).rollouts
    voters: int = plan.voters if plan else flags["rollout.n_samples_per_prompt"]
    prompts: int = flags["rollout.vllm_generate_batch_size"] or flags["rollout.batch_size"]
    engines: int = flags["vllm.num_engines"]
    return -(-prompts // engines) * voters
