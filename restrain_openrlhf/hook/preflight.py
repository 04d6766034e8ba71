"""Everything that can be checked before Ray, vLLM or a model starts."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.kept_rollouts import KeepRollouts
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.compatibility import refuse_settings, refuse_unsupported
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.offline_engine import Sampling, refuse_long_prompts
from restrain_openrlhf.hook.prompts import Prompt, PromptSource, load_prompts, refuse_lost_mark, template_identity
from restrain_openrlhf.kept.schema import arrow
from restrain_openrlhf.memory.fit import refuse_what_cannot_fit
from restrain_openrlhf.memory.gpu import visible_memory
from restrain_openrlhf.method import Method, build
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.reference.checks import NeededReference, refuse_mismatch, refuse_missing, selected
from restrain_openrlhf.scoring import GroupScorer
from restrain_openrlhf.tracking.mlflow_run import refuse_unusable


def check_run(config: HookConfig, arguments: argparse.Namespace) -> None:
    """Raises a RestrainError for wrong flags, an impossible layout, a missing model, bad prompts, another reference."""
    method = build(config.method)
    flags = vars(arguments)
    refuse_untracked(config)
    refuse_settings(config, flags)
    refuse_unsupported(detect(), flags)
    check_keeping(config)
    inputs = check_inputs(flags)
    texts = [prompt.text for prompt in inputs.prompts]
    needed = needed_reference(config, flags, inputs)
    if config.service is not None:
        from restrain_openrlhf.hook.group_scoring import try_service  # noqa: PLC0415 - needs aiohttp, as OpenRLHF does

        try_service(config, config.service, texts[0], flags["rollout.n_samples_per_prompt"], needed)
        if method.selection is None:
            # The service has the reference; only choosing the prompts needs it here.
            return
    reference = load_reference(config.reference) if config.reference else None
    GroupScorer(method, reference)
    if reference is not None:
        refuse_mismatch(reference, needed)
        refuse_missing(reference, inputs.prompts)
        trained_on(method, reference, texts)


def check_keeping(config: HookConfig) -> None:
    """Raises ConfigError where rollouts have no place to be kept in, DataError where they cannot be written."""
    if config.metrics is None and config.rollouts != KeepRollouts():
        raise ConfigError(
            "rollouts is set and metrics is not: rollouts are kept in the folder of the metrics. Set metrics to a file."
        )
    if config.keeps_rollouts:
        arrow()


def refuse_untracked(config: HookConfig) -> None:
    """Raises ConfigError where the run should write to MLflow and cannot."""
    if config.mlflow is None:
        return
    if config.metrics is None:
        raise ConfigError(
            "mlflow: is set without `metrics:`, the file whose rows it gets and beside which its run is kept. Set "
            "both, or use `restrain train`."
        )
    refuse_unusable(config.mlflow, config.metrics.parent)


@dataclass(frozen=True)
class Inputs:
    """What a run is made from: the model's identity, the prompts' template (its identity), the prompts."""

    fingerprint: str
    template: str
    prompts: Sequence[Prompt]


def needed_reference(config: HookConfig, flags: dict[str, Any], inputs: Inputs) -> NeededReference:
    """What the run's reference must be made with; of one that the method does not read, the model and the template."""
    if not build(config.method).needs_reference:
        return NeededReference(model_fingerprint=inputs.fingerprint, template=inputs.template)
    return NeededReference.by(
        config,
        flags["rollout.n_samples_per_prompt"],
        flags["rollout.temperature"],
        flags["rollout.top_p"],
        flags["rollout.max_new_tokens"] or flags["data.max_len"],
        inputs.fingerprint,
        inputs.template,
    )


def check_inputs(flags: dict[str, Any]) -> Inputs:
    """The model and the prompts that the host's flags name; weights stay where they are.

    Raises ConfigError for a missing model and for one that cannot fit, DataError for bad prompts and ones too long.
    """
    model = flags["actor.model_name_or_path"]
    if not model:
        raise ConfigError("actor.model_name_or_path is not set. Name the model to train.")
    refuse_what_cannot_fit(flags, visible_memory())
    fingerprint = model_fingerprint(model)
    source = prompt_source(flags)
    tokenizer = load_tokenizer(model)
    prompts = load_prompts(source, tokenizer)
    if not source.apply_chat_template:
        refuse_lost_mark(prompts[0].text, tokenizer)
    refuse_long_prompts(prompts, tokenizer, room_of_training(flags))
    return Inputs(fingerprint, template_identity(source, tokenizer), prompts)


def room_of_training(flags: dict[str, Any]) -> Sampling:
    """How long rollouts may be. Without rollout.max_new_tokens the host leaves one token (utils/agent.py)."""
    return Sampling(max_len=flags["data.max_len"], max_new_tokens=flags["rollout.max_new_tokens"] or 1)


def prompt_source(flags: dict[str, Any]) -> PromptSource:
    """The host's `data.*` flags. Raises ConfigError where no training file, or a blend of several, is named."""
    dataset = flags["data.prompt_dataset"]
    if not dataset:
        raise ConfigError("data.prompt_dataset is not set. Name the training file or data set.")
    if "," in dataset and not Path(dataset).exists():
        raise ConfigError(
            f"data.prompt_dataset names several data sets ({dataset}). Votes and prompt weights need one set without "
            "duplicates: join them into one file."
        )
    return PromptSource(
        dataset=dataset,
        input_key=flags["data.input_key"],
        input_template=flags["data.input_template"],
        apply_chat_template=flags["data.apply_chat_template"],
        split=flags["data.prompt_split"],
        max_samples=flags["data.max_samples"],
    )


def load_tokenizer(model: str) -> Any:
    """The model's tokenizer, as the host loads it (openrlhf/utils/utils.py)."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

    return AutoTokenizer.from_pretrained(model, trust_remote_code=True)


def prompt_count(config: HookConfig, flags: dict[str, Any]) -> int:
    """How many prompts an episode has: those of the training file that the method trains on."""
    source = prompt_source(flags)
    model = flags["actor.model_name_or_path"]
    prompts = load_prompts(source, load_tokenizer(model) if source.apply_chat_template else None)
    reference = load_reference(config.reference) if config.reference else None
    return trained_on(build(config.method), reference, [prompt.text for prompt in prompts])


def trained_on(method: Method, reference: Reference | None, prompts: Sequence[str]) -> int:
    """How many of the prompts the method keeps. Raises ReferencePassError where it keeps none."""
    if method.selection is None or reference is None:
        return len(prompts)
    return len(selected(method.selection, reference, prompts))
