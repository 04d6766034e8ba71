"""From a `method:` block to typed settings; a wrong key is an error that names it, what was found, and the fix."""

import difflib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, ValidationError

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method.settings import SETTINGS, CommonSettings

# How a package makes its methods known in every process, Ray's workers included.
ENTRY_POINT_GROUP = "restrain_openrlhf.methods"


def parse_settings(block: Mapping[str, Any]) -> CommonSettings:
    """The settings of a `method:` block. Raises ConfigError naming the key, what was found, and the fix."""
    name, settings = _named(block.get("name"))
    for key in block:
        if key not in settings.model_fields:
            known = settings.model_fields
            raise ConfigError(
                f"{key!r} is not a setting of {name}.{_suggest(str(key), known)} Known: {', '.join(known)}."
            )
    try:
        return settings.model_validate(dict(block))
    except ValidationError as error:
        raise ConfigError(_explain(error, block)) from None


def _named(name: object) -> tuple[str, type[CommonSettings]]:
    if name not in tuple(SETTINGS):
        _load_methods_of_others()
    if not isinstance(name, str) or name not in SETTINGS:
        raise ConfigError(f"name: {name!r} is no method.{_suggest(str(name), SETTINGS)} Known: {', '.join(SETTINGS)}.")
    return name, SETTINGS[name]


def _load_methods_of_others() -> None:
    """Import what installed packages register under the entry point group; each module calls `register`."""
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plugin.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The entry point {plugin.name!r} of {ENTRY_POINT_GROUP} names {plugin.value!r}, which does not load "
                f"({error}). Fix or uninstall the package that has it."
            ) from error


def _explain(error: ValidationError, block: Mapping[str, Any]) -> str:
    """The first wrong key, all that would be right for it, and what was given; a whole block's error as it is."""
    first, *_ = problems = error.errors()
    if not first["loc"]:
        return f"{first['msg']}.".replace("Value error, ", "")
    key = first["loc"][0]
    wanted = dict.fromkeys(problem["msg"] for problem in problems if problem["loc"][:1] == (key,))
    return f"{key}: {' or '.join(wanted)}, but {block.get(str(key))!r} was given.".replace("Value error, ", "")


def _suggest(word: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _validate(value: object) -> object:
    if isinstance(value, CommonSettings):
        return value
    if not isinstance(value, dict):
        raise ConfigError(f"method: {value!r} is no block of settings. Write for example `method: {{name: restrain}}`.")
    return parse_settings(value)


# A field of this type holds any method's settings, keeps its own keys when written, and is parsed strictly.
MethodSettings = Annotated[SerializeAsAny[CommonSettings], BeforeValidator(_validate)]
