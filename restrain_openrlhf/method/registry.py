"""The registry of methods by name, and the way from a `method:` block to typed settings and their method."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializeAsAny, ValidationError

from restrain_openrlhf.errors import ConfigError, did_you_mean
from restrain_openrlhf.method.composition import Method
from restrain_openrlhf.method.settings import CommonSettings

# The group under which an installed package names its modules of methods; every process loads them, Ray's workers too.
ENTRY_POINT_GROUP = "restrain_openrlhf.methods"

METHODS: dict[str, type[CommonSettings]] = {}

Settings = TypeVar("Settings", bound=CommonSettings)


def register(settings: type[Settings]) -> type[Settings]:
    """Class decorator: make a method known by its settings' `name`, in configurations, commands and training.

    Raises ConfigError where the class states no name, or another method has it.
    """
    field = settings.model_fields["name"]
    if field.is_required():
        raise ConfigError(f"{settings.__name__} has no name. Add the line: name: Literal['my_method'] = 'my_method'.")
    if field.default in METHODS:
        raise ConfigError(f"A method named {field.default!r} is registered already. Choose another name for yours.")
    METHODS[field.default] = settings
    return settings


@cache
def build(settings: CommonSettings) -> Method:
    """The method with these settings: one for all that are equal, so that a process builds its own once."""
    return settings.build()


def parse_settings(block: Mapping[str, Any]) -> CommonSettings:
    """The settings of a `method:` block. Raises ConfigError naming the key, what was found, and the fix."""
    name, settings = _named(block.get("name"))
    for key in block:
        if key not in settings.model_fields:
            known = settings.model_fields
            raise ConfigError(
                f"{key!r} is not a setting of {name}.{did_you_mean(key, known)} Known: {', '.join(known)}."
            )
    try:
        return settings.model_validate(dict(block))
    except ValidationError as error:
        raise ConfigError(_explain(error, block)) from None


def setting_names(name: object) -> tuple[str, ...]:
    """The keys of the method of this name; none where there is no such method."""
    return tuple(METHODS[name].model_fields) if isinstance(name, str) and name in METHODS else ()


def _named(name: object) -> tuple[str, type[CommonSettings]]:
    if name not in tuple(METHODS):
        _load_methods_of_installed_packages()
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(f"name: {name!r} is no method.{did_you_mean(name, METHODS)} Known: {', '.join(METHODS)}.")
    return name, METHODS[name]


def _load_methods_of_installed_packages() -> None:
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plugin.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The entry point {plugin.name!r} of {ENTRY_POINT_GROUP} names {plugin.value!r}, which does not load "
                f"({error}). Fix or uninstall the package that has it."
            ) from error


def _explain(error: ValidationError, block: Mapping[str, Any]) -> str:
    """The first wrong key, everything it could be, and what was given; an error of the whole block as it is."""
    first, *_ = problems = error.errors()
    if not first["loc"]:
        return f"{first['msg']}.".replace("Value error, ", "")
    key = first["loc"][0]
    wanted = dict.fromkeys(problem["msg"] for problem in problems if problem["loc"][:1] == (key,))
    return f"{key}: {' or '.join(wanted)}, but {block.get(str(key))!r} was given.".replace("Value error, ", "")


def _validate(value: object) -> object:
    if isinstance(value, CommonSettings):
        return value
    if not isinstance(value, dict):
        raise ConfigError(f"method: {value!r} is no block of settings. Write for example `method: {{name: restrain}}`.")
    return parse_settings(value)


# A field of this type holds any method's settings, keeps its own keys when written, and is parsed strictly.
MethodSettings = Annotated[SerializeAsAny[CommonSettings], BeforeValidator(_validate)]
