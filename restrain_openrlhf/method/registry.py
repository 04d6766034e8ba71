"""Choices that a configuration makes by name, and to which installed packages may add: registered, found and parsed."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from restrain_openrlhf.errors import ConfigError, did_you_mean

Choice = TypeVar("Choice", bound=BaseModel)
Registered = TypeVar("Registered", bound=BaseModel)


@dataclass(frozen=True, eq=False)
class Registry(dict[str, type[Choice]], Generic[Choice]):
    """Settings classes, each registered under the default of its field `name`.

    `block` is the configuration's key that chooses one, and `noun` what messages call it. `group` is the group of entry
    points in which an installed package names its modules; every process loads these, Ray's workers included. `example`
    is the name that an error suggests.
    """

    block: str
    noun: str
    group: str
    example: str

    def register(self, chosen: type[Registered]) -> type[Registered]:
        """Register a settings class; a decorator. Raises ConfigError if it has no name, or one that is taken."""
        name = chosen.model_fields["name"]
        if name.is_required():
            raise ConfigError(
                f"{chosen.__name__} has no name. Add the line: name: Literal['{self.example}'] = '{self.example}'."
            )
        if name.default in self:
            raise ConfigError(
                f"A {self.noun} named {name.default!r} is registered already. Choose another name for yours."
            )
        self[name.default] = chosen  # type: ignore[assignment]  # `Registered` is a `Choice` where it is used
        return chosen

    def parse(self, block: Mapping[str, Any]) -> Choice:
        """The settings that a block gives. Raises ConfigError naming the key, what was found, and the fix."""
        if not isinstance(block, Mapping):
            first = next(iter(self))
            raise ConfigError(
                f"{self.block}: {block!r} is not a block of settings. Write for example `{self.block}: {{name: "
                f"{first}}}`, in Python {{'name': '{first}'}}."
            )
        name, chosen = self._named(block.get("name"))
        known = chosen.model_fields
        for key in (key for key in block if key not in known):
            raise ConfigError(
                f"{key!r} is not a setting of {name}.{did_you_mean(key, known)} Known: {', '.join(known)}."
            )
        try:
            return chosen.model_validate(dict(block))
        except ValidationError as error:
            raise ConfigError(_explain(error, block)) from None

    def setting_names(self, name: object) -> tuple[str, ...]:
        """The settings of the choice of this name; none if there is no such choice."""
        return tuple(self[name].model_fields) if isinstance(name, str) and name in self else ()

    def of_field(self, value: Any) -> Any:
        """The settings for a pydantic field: those that are settings already stay, and a block is parsed."""
        return value if isinstance(value, BaseModel) else self.parse(value)

    def _named(self, name: object) -> tuple[str, type[Choice]]:
        if name not in tuple(self):
            self.load_installed_packages()
        if not isinstance(name, str) or name not in self:
            raise ConfigError(
                f"name: {name!r} is not a {self.noun}.{did_you_mean(name, self)} Known: {', '.join(self)}."
            )
        return name, self[name]

    def load_installed_packages(self) -> None:
        """Import the modules that entry points name; they register their choices.

        Raises ConfigError naming one that fails.
        """
        for plugin in entry_points(group=self.group):
            try:
                plugin.load()
            except (ImportError, AttributeError) as error:
                raise ConfigError(
                    f"The entry point {plugin.name!r} of {self.group} names {plugin.value!r}, which cannot be loaded "
                    f"({error}). Fix or uninstall the package that registers it."
                ) from error


def _explain(error: ValidationError, block: Mapping[str, Any]) -> str:
    """What is wrong with the first wrong key, everything it could be, and what was given.

    An error that names no key is about the whole block.
    """
    first, *_ = problems = error.errors()
    if not first["loc"]:
        return f"{first['msg']}.".replace("Value error, ", "")
    key = first["loc"][0]
    if first["type"] == "missing":
        needed = dict.fromkeys(str(problem["loc"][0]) for problem in problems if problem["type"] == "missing")
        return f"{block['name']} needs {' and '.join(needed)}, for which there is no default. Add them to its block."
    wanted = dict.fromkeys(problem["msg"] for problem in problems if problem["loc"][:1] == (key,))
    return f"{key}: {' or '.join(wanted)}, but {block.get(str(key))!r} was given.".replace("Value error, ", "")
