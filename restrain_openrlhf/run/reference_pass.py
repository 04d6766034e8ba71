"""The offline pass that a run's own configuration asks for: same model, prompts, template, lengths and sampling."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.offline_engine import Sampling
from restrain_openrlhf.hook.preflight import prompt_source
from restrain_openrlhf.reference.offline_pass import OfflinePass
from restrain_openrlhf.reference.parts import merge
from restrain_openrlhf.run.stack import run_command, run_on_all_gpus
from restrain_openrlhf.sampling_pass import Shard

# OpenRLHF's flags and the options of `restrain reference` that mean the same.
SAME = {
    "data.input_key": "--input-key",
    "data.input_template": "--input-template",
    "rollout.temperature": "--temperature",
    "rollout.top_p": "--top-p",
    "rollout.max_new_tokens": "--max-new-tokens",
    "data.max_len": "--max-len",
    "vllm.tensor_parallel_size": "--tensor-parallel-size",
}


def sample_reference(
    config: RunConfig,
    out: Path,
    n: int | None = None,
    model: str | None = None,
    prompts: str | None = None,
    seed: int | None = None,
) -> None:
    """Sample `n` rollouts of every prompt (as many as the configuration says), on all GPUs that are seen.

    Each engine is in a process of its own. What is there already is kept. Raises RunError with the log's last lines
    where it fails.
    """
    flags = config.openrlhf
    words = ["reference", "--model", model or str(flags["actor.model_name_or_path"]), "--out", str(out)]
    words += ["--prompts", prompts or str(flags["data.prompt_dataset"])]
    words += ["--n", str(n or config.reference_n or flags["rollout.n_samples_per_prompt"])]
    words += [] if seed is None else ["--seed", str(seed)]
    words += _same_options(flags)
    out.parent.mkdir(parents=True, exist_ok=True)
    log = out.parent / "sampling.log"
    if out.exists():
        run_command(words, log)
        return
    count = run_on_all_gpus(words, log, int(flags.get("vllm.tensor_parallel_size") or 1))
    if count > 1:
        merge([Shard(index, count).path(out) for index in range(count)], out)


def _same_options(flags: Mapping[str, Any]) -> list[str]:
    given = {option: flags[name] for name, option in SAME.items() if flags.get(name) is not None}
    words = [str(word) for option, value in given.items() for word in (option, value)]
    return [*words, "--apply-chat-template"] if flags.get("data.apply_chat_template") else words


def offline_pass(config: RunConfig, n: int | None = None, index: int = 0, count: int = 1) -> OfflinePass:
    """Shard `index` of `count` of the pass that the run needs, ready to run in this process.

    Raises ConfigError where the configuration names no reference, model or limit of new tokens; as OfflinePass.prepare.
    """
    flags = vars(parse(to_arguments(host_flags(config))))
    if config.reference is None:
        raise ConfigError("The configuration names no file for the reference. Set `reference:`.")
    for name in ("actor.model_name_or_path", "rollout.max_new_tokens"):
        if not flags[name]:
            raise ConfigError(f"openrlhf: {name} is not set, and the offline pass samples as training will. Set it.")
    sampling = Sampling(
        n=n or config.reference_n or flags["rollout.n_samples_per_prompt"],
        temperature=flags["rollout.temperature"],
        top_p=flags["rollout.top_p"],
        max_new_tokens=flags["rollout.max_new_tokens"],
        max_len=flags["data.max_len"],
        tensor_parallel_size=flags["vllm.tensor_parallel_size"],
    )
    return OfflinePass.prepare(flags["actor.model_name_or_path"], prompt_source(flags), sampling, index, count)
