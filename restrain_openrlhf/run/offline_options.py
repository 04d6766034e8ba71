"""The options of the offline pass: the command, a run's own pass and the manifests are made from this one list."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from typer import Option

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.offline_engine import Sampling
from restrain_openrlhf.hook.prompts import PromptSource


@dataclass(frozen=True)
class HostFlag:
    """OpenRLHF's flag of the same meaning: a run's own pass samples as its training will."""

    name: str


class OfflineOptions(BaseModel):
    """The options of `restrain reference`: each field is one, with its default, help, limits and OpenRLHF's flag."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[
        str, Option(help="Frozen base model: a hub id or a local folder."), HostFlag("actor.model_name_or_path")
    ]
    prompts: Annotated[
        str, Option(help="Prompts: JSONL, CSV, Parquet, or a hub data set."), HostFlag("data.prompt_dataset")
    ]
    out: Annotated[Path, Option(help="The reference file (JSON Lines). Its provenance is written beside it.")]
    n: Annotated[int, Option(min=1, help="Rollouts per prompt."), HostFlag("rollout.n_samples_per_prompt")] = 16
    input_key: Annotated[str, Option(help="Column of the prompt (data.input_key)."), HostFlag("data.input_key")] = (
        "problem"
    )
    input_template: Annotated[
        str | None, Option(help="Prompt template; {} stands for the prompt."), HostFlag("data.input_template")
    ] = None
    temperature: Annotated[
        float, Option(min=0.0, help="Sampling temperature, as in training."), HostFlag("rollout.temperature")
    ] = 1.0
    top_p: Annotated[
        float, Option(min=0.0, max=1.0, help="Top-p of nucleus sampling, as in training."), HostFlag("rollout.top_p")
    ] = 1.0
    max_new_tokens: Annotated[
        int, Option(min=1, help="Longest rollout, in tokens."), HostFlag("rollout.max_new_tokens")
    ] = 4096
    max_len: Annotated[int, Option(min=2, help="Longest prompt with rollout, in tokens."), HostFlag("data.max_len")] = (
        8192
    )
    seed: Annotated[int, Option(help="The same seed gives the same rollouts, sharded or not.")] = 42
    tensor_parallel_size: Annotated[
        int, Option(min=1, help="GPUs per vLLM engine."), HostFlag("vllm.tensor_parallel_size")
    ] = 1
    shard: Annotated[str, Option(metavar="I/K", help="Sample only shard I of K, counted from 0.")] = "0/1"
    apply_chat_template: Annotated[
        bool, Option(help="Render prompts with the tokenizer's chat template."), HostFlag("data.apply_chat_template")
    ] = False

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], **given: object) -> Self:
        """From OpenRLHF's flags under their dotted names, where `given` has no value of its own (None counts as none).

        Raises ConfigError for a value that the option does not take.
        """
        same = {name: flags.get(flag) for name, flag in HOST_FLAGS.items()}
        chosen = {name: value for values in (same, given) for name, value in values.items() if value is not None}
        try:
            return cls(**chosen)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise ConfigError(
                f"{HOST_FLAGS.get(name, name)} is {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}."
            ) from None

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


HOST_FLAGS = {
    name: mark.name
    for name, field in OfflineOptions.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, HostFlag)
}
