"""The offline pass of a run and its options: the command, a run's own pass and the manifests are made from one list."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from restrain_openrlhf.config.host_flags import check_version, flags_of
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.machine.processes import run_command
from restrain_openrlhf.reference.offline_engine import Sampling
from restrain_openrlhf.reference.offline_pass import OfflinePass
from restrain_openrlhf.reference.prompts import PromptSource, prompt_source


class OfflineOptions(BaseModel):
    """The options of `restrain reference`. An alias is OpenRLHF's flag of the same meaning."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: str = Field(alias="actor.model_name_or_path", description="Frozen base model: a hub id or a local folder.")
    prompts: str = Field(alias="data.prompt_dataset", description="Prompts: JSONL, CSV, Parquet, or a hub data set.")
    out: Path = Field(description="The reference file (JSON Lines). Its provenance is written beside it.")
    n: int = Field(16, alias="rollout.n_samples_per_prompt", ge=1, description="Rollouts per prompt.")
    input_key: str = Field("problem", alias="data.input_key", description="Column of the prompt.")
    input_template: str | None = Field(
        None, alias="data.input_template", description="Prompt template; {} stands for the prompt."
    )
    temperature: float = Field(1.0, alias="rollout.temperature", ge=0, description="Sampling temperature.")
    top_p: float = Field(1.0, alias="rollout.top_p", ge=0, le=1, description="Top-p of nucleus sampling.")
    max_new_tokens: int = Field(4096, alias="rollout.max_new_tokens", ge=1, description="Longest rollout, in tokens.")
    max_len: int = Field(8192, alias="data.max_len", ge=2, description="Longest prompt with rollout, in tokens.")
    seed: int = Field(42, description="The same seed gives the same rollouts, sharded or not.")
    tensor_parallel_size: int = Field(1, alias="vllm.tensor_parallel_size", ge=1, description="GPUs per vLLM engine.")
    max_num_seqs: int | None = Field(None, ge=1, description="Rollouts that an engine works on at a time.")
    max_num_batched_tokens: int | None = Field(None, ge=1, description="Tokens of one step of an engine.")
    shard: str = Field("0/1", description="I/K: sample only shard I of K, counted from 0.")
    apply_chat_template: bool = Field(
        False, alias="data.apply_chat_template", description="Render prompts with the tokenizer's chat template."
    )

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], **given: object) -> Self:
        """From `given` options, and OpenRLHF's flags (dotted names) for the others; None counts as not given.

        Raises ConfigError for a value that the option does not take.
        """
        names = {name: field.alias or name for name, field in cls.model_fields.items()}
        chosen = {flag: flags.get(flag) if given.get(name) is None else given[name] for name, flag in names.items()}
        try:
            return cls.model_validate({flag: value for flag, value in chosen.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            name, why = first["loc"][0], f"{first['msg'][:1].lower()}{first['msg'][1:]}"
            raise ConfigError(f"openrlhf: {name} is {first['input']!r}: {why}.") from None

    def words(self) -> list[str]:
        """The command's words for the options that were given; the rest keep the command's defaults."""
        given = {f"--{name.replace('_', '-')}": value for name, value in self if name in self.model_fields_set}
        valued = [
            f"{word}={value}" for word, value in given.items() if value is not None and not isinstance(value, bool)
        ]
        return [*valued, *(word for word, value in given.items() if value is True)]

    def sampling(self) -> Sampling:
        """How the rollouts are drawn."""
        shared = {field.name for field in fields(Sampling)} & set(type(self).model_fields)
        return Sampling(**{name: getattr(self, name) for name in shared})

    def source(self) -> PromptSource:
        """Where the prompts come from."""
        return PromptSource(self.prompts, self.input_key, self.input_template, self.apply_chat_template)


def sample_reference(config: RunConfig, out: Path, n: int | None = None, **given: str | float | None) -> None:
    """Sample `n` rollouts of every prompt, on all visible GPUs; what is not `given` is as the configuration says.

    `restrain reference` does so in a process of its own. Existing rollouts are kept. Raises RunError with the log's
    last lines where it fails, ConfigError where the configuration names no model or limit of new tokens.
    """
    check_version()
    options = _options(config, flags_of(config), out, n, **given)
    out.parent.mkdir(parents=True, exist_ok=True)
    run_command(["reference", *options.words()], out.parent / "sampling.log")


def offline_pass(config: RunConfig, n: int | None = None, index: int = 0, count: int = 1) -> OfflinePass:
    """Shard `index` of `count` of the pass that the run needs, ready to run in this process.

    Raises ConfigError where the configuration names no reference, model or limit of new tokens; as OfflinePass.prepare.
    """
    if config.reference is None:
        raise ConfigError("The configuration names no file for the reference. Set `reference:`.")
    check_version()
    flags = flags_of(config)
    options = _options(config, flags, config.reference, n)
    return OfflinePass.prepare(options.model, prompt_source(flags), options.sampling(), index, count)


def _options(
    config: RunConfig, flags: dict[str, Any], out: Path, n: int | None, **given: str | float | None
) -> OfflineOptions:
    for name in ("actor.model_name_or_path", "rollout.max_new_tokens"):
        if not flags[name]:
            raise ConfigError(f"openrlhf: {name} is not set, and the offline pass samples as training will. Set it.")
    limits = config.engine.options()
    return OfflineOptions.from_flags(flags, out=out, n=n or config.reference_n, **limits, **given)
