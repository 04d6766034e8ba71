"""The offline pass that a run's own configuration asks for: same model, prompts, template, lengths and sampling."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.run.stack import run_command

# OpenRLHF's flags and the options of `restrain reference` that mean the same.
SAME = {
    "data.input_key": "--input-key",
    "data.input_template": "--input-template",
    "rollout.temperature": "--temperature",
    "rollout.top_p": "--top-p",
    "rollout.max_new_tokens": "--max-new-tokens",
    "data.max_len": "--max-len",
}


def sample_reference(
    config: RunConfig,
    out: Path,
    n: int | None = None,
    model: str | None = None,
    prompts: str | None = None,
    seed: int | None = None,
) -> None:
    """Sample `n` rollouts of every prompt (as many as in training, unless said), in a process of its own.

    What `out` holds already is kept. Raises RunError with the log's last lines where it fails.
    """
    flags = config.openrlhf
    words = ["reference", "--model", model or str(flags["actor.model_name_or_path"]), "--out", str(out)]
    words += ["--prompts", prompts or str(flags["data.prompt_dataset"])]
    words += ["--n", str(n or flags["rollout.n_samples_per_prompt"])]
    words += [] if seed is None else ["--seed", str(seed)]
    words += _same_options(flags)
    out.parent.mkdir(parents=True, exist_ok=True)
    run_command(words, out.parent / "sampling.log")


def _same_options(flags: Mapping[str, Any]) -> list[str]:
    given = {option: flags[name] for name, option in SAME.items() if flags.get(name) is not None}
    words = [str(word) for option, value in given.items() for word in (option, value)]
    return [*words, "--apply-chat-template"] if flags.get("data.apply_chat_template") else words
