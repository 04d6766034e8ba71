"""Configuration files: YAML to typed objects, with at most one level of `extends`."""

import re
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError, field_validator
from pydantic_core import ErrorDetails

from restrain_openrlhf.config.engine import EngineLimits
from restrain_openrlhf.config.kept_rollouts import KeepRollouts
from restrain_openrlhf.config.mlflow import MlflowSettings
from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.method import MethodSettings, parse_settings, setting_names
from restrain_openrlhf.shipped import own_path

# Far beyond what rounding gives in bf16, a collapsing policy's included (docs/operations/running.md).
LOGPROB_GAP_LIMIT = 0.5

# pydantic's names of two kinds of errors.
UNKNOWN, MISSING = "extra_forbidden", "missing"

Config = TypeVar("Config", bound="HookConfig")


class Key(Enum):
    """What is known of a key beside its type, as part of the field's annotation."""

    # The agent reads it too, where OpenRLHF runs without our entry point.
    AGENT = auto()
    # Changes nothing that a run computes, so a run may be continued with another value.
    CHANGEABLE = auto()


class EvaluationDraws(BaseModel):
    """How an OpenRLHF without our entry point draws evaluation's rollouts, which is all that tells them apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    temperature: Annotated[float, Field(ge=0, strict=True)] = Field(description="OpenRLHF's eval.temperature.")
    n: Annotated[StrictInt, Field(ge=1)] = Field(description="OpenRLHF's eval.n_samples_per_prompt.")


class HookConfig(BaseModel):
    """What the hook needs of a configuration, in each of a run's processes."""

    model_config = ConfigDict(frozen=True)

    method: Annotated[MethodSettings, Key.AGENT] = Field(description="The method's name and its settings.")
    reference: Annotated[Path | None, Key.AGENT] = Field(
        default=None, description="The reference file of the offline pass, for a method that reads one."
    )
    reference_n: Annotated[Annotated[StrictInt, Field(ge=1)] | None, Key.AGENT] = Field(
        default=None, description="Rollouts per prompt in the reference; null: as many as in training."
    )
    reference_sampling: Annotated[Literal["same", "any"], Key.AGENT] = Field(
        default="same",
        description="same: the reference must be sampled as the run draws (temperature, top_p, new tokens); any: not.",
    )
    metrics: Path | None = Field(
        default=None, description="File for one JSON line per step. `restrain train` sets it itself."
    )
    steps: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="End after so many steps (rollout batches), though the episodes would give more."
    )
    seeded_rollouts: StrictBool = Field(
        default=False, description="Give every rollout a seed: a resumed run on the same machine has the same rollouts."
    )
    evaluate_first: StrictBool = Field(
        default=False, description="Evaluate the base model before the first step, where eval.dataset is set."
    )
    fill_last_batch: StrictBool = Field(
        default=True,
        description="Repeat a few prompts so that an episode is whole rollout batches; OpenRLHF drops what is left.",
    )
    service: Annotated[str | None, Key.AGENT, Key.CHANGEABLE] = Field(
        default=None, description="Address of the service that scores the groups; null: the rollout actors score them."
    )
    evaluation: Annotated[EvaluationDraws | None, Key.AGENT] = Field(
        default=None,
        description="For the agent alone: how evaluation draws; its rows are graded. null: no label is ever read.",
    )
    logprob_gap_limit: Annotated[Annotated[float, Field(gt=0)] | None, Key.CHANGEABLE] = Field(
        default=LOGPROB_GAP_LIMIT,
        description="Stop where vLLM's log-probabilities differ from the policy's by a larger share; null: never.",
    )

    engine: Annotated[EngineLimits, Key.CHANGEABLE] = Field(
        default=EngineLimits(), description="How much each vLLM engine works on at a time."
    )
    rollouts: Annotated[KeepRollouts, Key.CHANGEABLE] = Field(
        default=KeepRollouts(), description="Which groups are kept, to be looked at; training is the same."
    )
    mlflow: Annotated[MlflowSettings | None, Key.CHANGEABLE] = Field(
        default=None, description="An MLflow server that gets every step's numbers too; null: none."
    )

    @classmethod
    def keys(cls, kind: Key) -> frozenset[str]:
        """The keys of this kind."""
        return frozenset(name for name, field in cls.model_fields.items() if kind in field.metadata)

    @property
    def keeps_rollouts(self) -> bool:
        """Whether a run keeps any: beside its metrics, so that one without metrics keeps none."""
        return self.metrics is not None and self.rollouts.keep != "none"

    def written(self) -> dict[str, Any]:
        """What the hook needs, as YAML and JSON have it: the whole method, and what is not at its default."""
        changed = self.model_dump(mode="json", include=set(HookConfig.model_fields), exclude_defaults=True)
        return {**changed, "method": self.method.model_dump(mode="json")}

    @field_validator("service")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
            raise ValueError(
                "must be an address such as http://reward:8000, without a path and without a token (that is read from "
                "RESTRAIN_TOKEN, or from the file that RESTRAIN_TOKEN_FILE names)"
            )
        return url.rstrip("/")

    @field_validator("reference", "metrics")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path else None


class RunConfig(HookConfig):
    """A whole run: the method, a folder for everything it writes, and OpenRLHF's flags under their dotted names."""

    run_dir: Path = Field(description="Folder for checkpoints, metrics, logs and the trained model.")
    share_gpus: StrictBool = Field(
        default=False,
        description="Where this machine has fewer GPUs than the layout asks for, put all models on the same ones.",
    )
    deadline_days: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Kubernetes ends the training job after so many days, restarts included; null: after 14.",
    )
    pass_n: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None,
        description="Rollouts per prompt of the pass that `restrain k8s render` makes, where the reference is cut from "
        "a larger pass that other runs share; null: as many as the reference has.",
    )
    openrlhf: Mapping[str, Any] = Field(
        default_factory=dict, description="OpenRLHF's own flags under their dotted names, such as actor.adam.lr."
    )

    @field_validator("run_dir")
    @classmethod
    def _absolute_run_dir(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @field_validator("openrlhf")
    @classmethod
    def _own_model(cls, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        model = flags.get("actor.model_name_or_path")
        return {**flags, "actor.model_name_or_path": own_path(model)} if isinstance(model, str) else flags


def load_hook_config(path: Path) -> HookConfig:
    """A file with the keys of HookConfig. Raises ConfigError naming the file and the key."""
    return _typed(HookConfig, blocks(read_yaml(path), path, HookConfig.model_fields), path)


def load_run_config(path: Path, overrides: Mapping[str, object] | None = None) -> RunConfig:
    """A run's file, with `--set` overrides on top (`method.kappa`, `openrlhf.actor.adam.lr`, `run_dir`).

    `metrics` defaults to metrics.jsonl in the run's folder. Raises ConfigError naming the file and the key.
    """
    document = read_yaml(path)
    for key, value in (overrides or {}).items():
        _override(document, key, value)
    _refuse_unknown_overrides(document, overrides or {})
    found = blocks(document, path, [key for key in RunConfig.model_fields if key != "metrics"])
    if "run_dir" not in found:
        raise ConfigError(f"{path}: run_dir is missing. Name the folder for checkpoints, metrics and the model.")
    config = _typed(RunConfig, found, path)
    return config.model_copy(update={"metrics": config.run_dir / "metrics.jsonl"})


def read_yaml(path: Path, may_extend: bool = True) -> dict[str, Any]:
    """The document as a mapping, merged over the one it `extends` (one level), block by block."""
    document = _parse(path)
    parent = document.pop("extends", None)
    if parent is None:
        return document
    if not may_extend:
        raise ConfigError(f"{path}: extends {parent!r}, but is itself extended. One level is allowed.")
    base = read_yaml(path.parent / str(parent), may_extend=False)
    for key, value in document.items():
        both_mappings = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = {**base[key], **value} if both_mappings else value
    return base


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{sorted(twice)[0]!r} appears twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _parse(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Check the path.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; a YAML file is needed.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must hold keys and values at the top level.")
    return document


def blocks(document: Mapping[str, Any], path: Path, allowed: Iterable[str]) -> dict[str, Any]:
    """The document's blocks, the method parsed. Raises ConfigError for a key that is not allowed."""
    allowed = tuple(allowed)
    for key in document:
        if key not in allowed:
            settings = [f"method.{name}" for name in _setting_names(document)]
            hint = did_you_mean(key, [*allowed, *settings]) or f" Allowed here: {', '.join(allowed)}."
            raise ConfigError(f"{path}: unknown key {key!r}.{hint}")
    if "method" not in document:
        raise ConfigError(f"{path}: `method:` is missing, for example `method: {{name: restrain}}`.")
    for key in ("method", "openrlhf"):
        if not isinstance(document.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} must be a block of keys and values, not {document[key]!r}.")
    try:
        return {**document, "method": parse_settings(document["method"])}
    except ConfigError as error:
        raise ConfigError(f"{path}: method: {error}") from None


def _setting_names(document: Mapping[str, Any]) -> tuple[str, ...]:
    method = document.get("method")
    return setting_names(method.get("name")) if isinstance(method, dict) else ()


def _refuse_unknown_overrides(document: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raises ConfigError for a key of `--set` that there is not, with the nearest one as `--set` takes it.

    A setting that a later `--set method={...}` replaced, with the whole block, is not looked at.
    """
    flags = document.get("openrlhf")
    known = {name for name in RunConfig.model_fields if name != "metrics"}
    known |= {f"method.{name}" for name in _setting_names(document)}
    known |= {f"openrlhf.{name}" for name in (flags if isinstance(flags, dict) else ())}
    for key in keys:
        block, _, name = key.partition(".")
        settings = _setting_names(document)
        if block == "method" and settings and name in document["method"] and name not in settings:
            what = f"{name!r} is not a setting of {document['method']['name']}."
            hint = did_you_mean(name, settings, block="method.") or f" Known: {', '.join(settings)}."
            raise ConfigError(f"--set {key}: {what}{hint}")
        if key not in known and block not in RunConfig.model_fields:
            hint = did_you_mean(key, sorted(known)) or f" Known: {', '.join(sorted(known))}."
            raise ConfigError(f"--set {key}: there is no such key.{hint}")


def _typed(kind: type[Config], values: Mapping[str, Any], path: Path) -> Config:
    try:
        return kind(**values)
    except ValidationError as error:
        # A typo is also a missing key where that one is needed: the key that was typed is named.
        first = min(error.errors(), key=lambda each: each["type"] != UNKNOWN)
        raise ConfigError(f"{path}: {_what_is_wrong(kind, first)}") from None


def _what_is_wrong(kind: type[BaseModel], error: ErrorDetails) -> str:
    key, found = ".".join(map(str, error["loc"])), _without_password(repr(error["input"]))
    if error["type"] == MISSING:
        return f"{key} is missing."
    if error["type"] != UNKNOWN:
        return f"{key} is {found}: {error['msg'][:1].lower()}{error['msg'][1:]}."
    *block, name = map(str, error["loc"])
    known = _keys_of(kind, block)
    hint = did_you_mean(name, known, block=".".join([*block, ""])) or f" Known: {', '.join(known)}."
    return f"unknown key {key!r}.{hint}"


def _keys_of(kind: type[BaseModel], block: Iterable[str]) -> list[str]:
    """The keys of a block within a block, by the model that its field takes."""
    for name in block:
        taken = kind.model_fields[name].annotation
        models = (each for each in (taken, *get_args(taken)) if isinstance(each, type) and issubclass(each, BaseModel))
        kind = next(models)
    return list(kind.model_fields)


def _without_password(text: str) -> str:
    """An address with a user in it is refused, and the refusal is printed and logged."""
    return re.sub(r"://[^/@\s]*@", "://…@", text)


def _override(document: dict[str, Any], key: str, value: object) -> None:
    block, _, name = key.partition(".")
    if not name:
        document[block] = value
        return
    existing = document.setdefault(block, {})
    if not isinstance(existing, dict):
        raise ConfigError(f"--set {key}: {block} is not a block of keys and values.")
    existing[name] = value
