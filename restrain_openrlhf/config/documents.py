"""Reads YAML documents strictly, by path or as presets, applies `extends` and `--set`, and names wrong keys."""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.method import parse_settings, setting_names

PACKAGE = Path(__file__).parents[1]
# setup.py copies the repository's folders here when it builds a wheel.
IN_A_WHEEL = PACKAGE / "repository"
REPOSITORY = IN_A_WHEEL if IN_A_WHEEL.is_dir() else PACKAGE.parent
CONFIGS = REPOSITORY / "configs"
KUBERNETES = REPOSITORY / "k8s"
# Estimated hours of presets, with a line `NAME,HOURS` for each; docs/reference_pages.py writes them.
HOURS_FILE = CONFIGS / "hours.csv"
# Blocks whose key `name` decides which other keys they have.
PARSED: Mapping[str, Callable[[Mapping[str, Any]], BaseModel]] = {"method": parse_settings, "answers": parse_kind}
FLAGS, MODEL, CHAT_TEMPLATE = "openrlhf", "actor.model_name_or_path", "data.apply_chat_template"
# PyYAML is ten times as fast on thousands of lines where it was built with libyaml.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Numbers such as 1e-5, 1.5e5 and -.5 too, which YAML 1.1, and so PyYAML, reads as texts.
FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+\.\d*|\d+(?=[eE]))(?:[eE][-+]?\d+)?$", re.ASCII)
# pydantic's types of three errors.
UNKNOWN, MISSING, MISSHAPEN = "extra_forbidden", "missing", "string_pattern_mismatch"

Model = TypeVar("Model", bound=BaseModel)


def shipped_yaml(path: Path) -> Any:
    """What a YAML file of this package says. Such files are read whenever a command starts."""
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)


def preset_file(name: str) -> Path | None:
    """The file of the preset with this name, such as `cpu/demo`; None if there is none."""
    file = CONFIGS / f"{name}.yaml"
    return file if file.is_file() and not file.name.startswith("_") else None


def own_path(path: str) -> str:
    """The installed path of `restrain_openrlhf/...`, as presets write it; any other path unchanged."""
    here = PACKAGE.parent / path
    is_ours = path.startswith(f"{PACKAGE.name}/") and here.exists()
    return str(here) if is_ours and not Path(path).exists() else path


def read_yaml(path: Path, above: Mapping[str, object] | None = None, over: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The document, merged block by block over what it `extends`: another file, or a preset, and so on down.

    `above` are flags of OpenRLHF that will be put on top. If they name another model than the document, its yes or no
    to the chat template is left out: it was said of the document's own model. `over` are the files that extend this
    one. Raises ConfigError for a file that extends itself.
    """
    if path.resolve() in over:
        raise ConfigError(f"{path}: extends itself, through {over[-1]}. Take `extends` out of one of the files.")
    document, above = _parse(path), above or {}
    if _is_other_model(flags := _flags(document), above):
        flags.pop(CHAT_TEMPLATE, None)
    if (parent := document.pop("extends", None)) is None:
        return document
    base = read_yaml(_extended(path, str(parent)), {**flags, **above}, (*over, path.resolve()))
    return _merged(base, document)


def _flags(document: Mapping[str, Any]) -> dict[str, Any]:
    return found if isinstance(found := document.get(FLAGS), dict) else {}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, block by block. A block of another `name` replaces the base's, whose keys it lacks."""
    merged = {**base, **over}
    for key, old in base.items():
        new = over.get(key)
        if isinstance(old, dict) and isinstance(new, dict) and not _renamed(old, new):
            merged[key] = {**old, **new}
    return merged


def _renamed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "name" in old and "name" in new and bool(old["name"] != new["name"])


def _is_other_model(flags: Mapping[str, object], above: Mapping[str, object]) -> bool:
    """Whether both name a model, and not the same, which may be named by its hub id or by its folder."""
    names = {Path(str(each[MODEL])).name.lower() for each in (flags, above) if each.get(MODEL)}
    return len(names) > 1


def _extended(path: Path, word: str) -> Path:
    """The file that `path` extends: a path relative to the folder of `path`, or else that of a preset."""
    file = path.parent / word
    found = file if file.exists() else preset_file(word)
    if found is None:
        raise ConfigError(
            f"{path}: extends {word!r}, and there is no file {file} and no preset of this name. Give a path relative "
            "to this file, or a name that `restrain presets` lists."
        )
    return found


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{sorted(twice)[0]!r} appears twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Safe YAML that `parse_yaml` reads as what was written."""


for _each in (_StrictLoader, _Dumper):
    _each.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("+-.0123456789"))


def dump_yaml(value: object, **style: Any) -> str:
    """A YAML text of the value; `style` has keywords of yaml.safe_dump."""
    return str(yaml.dump(value, Dumper=_Dumper, **style))


def parse_yaml(text: str, where: Path | str) -> Any:
    """The value of a YAML text. Raises ConfigError that begins with `where`, and names the line if that is a file."""
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.constructor.ConstructorError as error:
        line = f", line {error.problem_mark.line + 1}" if isinstance(where, Path) and error.problem_mark else ""
        raise ConfigError(f"{where}{line}: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: is not valid YAML: {error}") from None


def _parse(path: Path) -> dict[str, Any]:
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Check the path.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; a YAML file is needed.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not a text in UTF-8: {error}. Save it as UTF-8.") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must hold keys and values at the top level.")
    return document


def override(document: dict[str, Any], overrides: Mapping[str, object], keys: Collection[str]) -> None:
    """Put `--set` into the document, whose keys are `keys`. Raises ConfigError for a key that does not exist."""
    settings: dict[str, dict[str, object]] = {}
    for key, value in overrides.items():
        block, _, name = key.partition(".")
        if block not in keys:
            raise ConfigError(f"--set {key}: there is no such key.{_nearest(key, document, keys)}")
        if name:
            settings.setdefault(block, {})[name] = value
        else:
            document[block] = value
            settings.pop(block, None)
    for block, given in settings.items():
        if not isinstance(document.get(block, {}), dict):
            raise ConfigError(f"--set {block}.{next(iter(given))}: {block} is not a block of keys and values.")
    document.update(_merged(document, settings))
    known = method_keys(document)
    for name in settings.get("method", {}) if known else ():
        if name not in known:
            hint = did_you_mean(name, known, block="method.") or f" Known: {', '.join(known)}."
            raise ConfigError(f"--set method.{name}: {name!r} is not a setting of {document['method']['name']}.{hint}")


def _nearest(key: str, document: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The known key that an unknown one may have meant, in the form that `--set` takes; or else all known ones."""
    flags = _flags(document)
    known = [*keys, *(f"method.{name}" for name in method_keys(document)), *(f"{FLAGS}.{name}" for name in flags)]
    return did_you_mean(key, known) or f" Known: {', '.join(sorted(known))}."


def blocks(document: Mapping[str, Any], path: Path, allowed: Collection[str]) -> dict[str, Any]:
    """The document's blocks, with method and kind of answer parsed.

    Raises ConfigError for a key that is not allowed.
    """
    for key in document:
        if key not in allowed:
            raise ConfigError(f"{path}: unknown key {key!r}.{_nearest(key, document, allowed)}")
    if "method" not in document:
        raise ConfigError(f"{path}: `method:` is missing, for example `method: {{name: restrain}}`.")
    for key in ("method", "answers", FLAGS):
        if not isinstance(document.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} must be a block of keys and values, not {document[key]!r}.")
    return {**document, **{key: _parsed(path, key, document[key]) for key in PARSED if key in document}}


def _parsed(path: Path, key: str, block: dict[str, Any]) -> BaseModel:
    try:
        return PARSED[key](block)
    except ConfigError as error:
        raise ConfigError(f"{path}: {key}: {error}") from None


def method_keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings of the method that the document names, as far as it is known."""
    method = document.get("method")
    return setting_names(method.get("name")) if isinstance(method, dict) else ()


def typed(kind: type[Model], values: Mapping[str, Any], path: Path | str) -> Model:
    """The model of these values. Raises ConfigError naming the file and the key."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        # A typo in a required key is two errors, an unknown key and a missing one. Report the unknown one.
        first = min(error.errors(), key=lambda each: each["type"] != UNKNOWN)
        raise ConfigError(f"{path}: {_what_is_wrong(kind, first)}") from None


def _what_is_wrong(kind: type[BaseModel], error: ErrorDetails) -> str:
    key = ".".join(map(str, error["loc"]))
    found = _without_password(repr(error["input"]))
    *block, name = map(str, error["loc"])
    if error["type"] not in (MISSING, UNKNOWN, MISSHAPEN):
        reason = error["msg"].removeprefix("Value error, ")
        return _without_password(f"{key} is {found}: {reason[:1].lower()}{reason[1:]}.")
    known = _fields_of(kind, block)
    if error["type"] == MISSHAPEN:
        return f"{key} is {found}, which is not in the form that is needed. {_meaning(known[name])}"
    if error["type"] == MISSING:
        return f"{key} is missing. {_meaning(known[name])}"
    hint = did_you_mean(name, known, block=".".join([*block, ""])) or f" Known: {', '.join(known)}."
    return f"unknown key {key!r}.{hint}"


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _fields_of(kind: type[BaseModel], block: Iterable[str]) -> dict[str, FieldInfo]:
    """The keys of a nested block, from the model that is the type of its field."""
    for name in block:
        taken = kind.model_fields[name].annotation
        models = (each for each in (taken, *get_args(taken)) if isinstance(each, type) and issubclass(each, BaseModel))
        kind = next(models)
    return kind.model_fields


def _without_password(text: str) -> str:
    """The text without user and password in addresses, because it is printed and logged."""
    return re.sub(r"://[^/@\s]*@", "://…@", text)
