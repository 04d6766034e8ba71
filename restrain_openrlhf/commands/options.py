"""Options that several commands share, and the decorator that makes a model's fields a command's options."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, Signature, isclass, signature
from pathlib import Path
from typing import Annotated, Any, NewType, TypeVar, get_args

import typer
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.progress import Progress
from typer.models import OptionInfo

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.config.command_line import ANSWERS, choose_kind, find_config
from restrain_openrlhf.config.documents import typed
from restrain_openrlhf.data.outputs import output_file, output_folder
from restrain_openrlhf.errors import DataError

Options = TypeVar("Options", bound=BaseModel)
# The options that the user typed, by the name of the model's field that each sets.
Typed = NewType("Typed", dict[str, Any])

ConfigFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", parser=find_config, help="A YAML file, or a preset's name (`restrain presets`)."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, such as method.kappa=2. Repeatable."),
]
MethodKeys = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a method key, such as kappa=2. Repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors. A run's numbers are in its folder.")]
AnswersOption = Annotated[str | None, typer.Option("--answers", metavar="KIND", help=ANSWERS)]
GOLD = "Gold answers, JSON Lines or CSV: rows {problem, answer} or {id, answer}, or a .gold.jsonl file."
ShardOption = Annotated[str, typer.Option("--shard", metavar="I/K", help="Run only shard I of K, counted from 0.")]
BenchmarkDir = Annotated[
    Path | None, typer.Option(help="Folder with local copies, NAME.jsonl, instead of the hub.", show_default="the hub")
]


def to_file(help_text: str, *names: str, **more: Any) -> Any:
    """An option for an output file. It is checked as the arguments are read, before anything is computed."""
    return typer.Option(*names, help=help_text, callback=_checked(_not_parquet), **more)


def to_folder(help_text: str, *names: str, **more: Any) -> Any:
    """An option for an output folder, checked as `to_file` does."""
    return typer.Option(*names, help=help_text, callback=_checked(output_folder), **more)


def _not_parquet(path: Path) -> Path:
    """The output file. Raises DataError for a name that says Parquet, because rows are written as JSON Lines."""
    if path.suffix.lower() == ".parquet":
        raise DataError(f"{path}: rows are written as JSON Lines, and not as Parquet. Name a .jsonl file.")
    return output_file(path)


def _checked(check: Callable[[Path], Path]) -> Callable[[Path | None], Path | None]:
    """A callback of Typer that checks a path and returns it unchanged, with its links."""
    return lambda path: path if path is None or check(path) else None


def split_answers(given: Mapping[str, object], answers: str | None) -> tuple[dict[str, object], AnswerKind | None]:
    """The keys of `--set` without answers.KEY, and the kind of answer; None if neither option names a kind.

    Raises ConfigError if there is no such kind, or it has no such setting.
    """
    own = {key.removeprefix("answers."): value for key, value in given.items() if key.startswith("answers.")}
    rest = {key: value for key, value in given.items() if not key.startswith("answers.")}
    named = answers is not None or bool(own)
    return rest, choose_kind(str(own.pop("name", "math")) if answers is None else answers, own) if named else None


def wide_console() -> Console:
    """A console for tables: as wide as the terminal, or 160 columns if there is no terminal."""
    return Console(width=None if Console().is_terminal else 160)


def sampling_progress(console: Console) -> Progress:
    """A progress bar, if there is a terminal.

    There vLLM prints only errors, so that its messages do not break the bar.
    """
    if console.is_terminal:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    return Progress(console=console, disable=not console.is_terminal)


def with_options(
    model: type[Options], default_text: str = "{}", **more: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function with a parameter of this model into a command with an option for each field of the model.

    A field's option is its typer.Option, or else is made from its description, limits and default, and from `more`,
    which are keywords of typer.Option. The command raises ConfigError for values that the model refuses.

    With a parameter of type `Typed` instead, no option is required, and the function gets only those that the user
    typed. The help then shows the model's defaults in the form of `default_text`.
    """

    def as_command(function: Callable[..., None]) -> Callable[..., None]:
        own = signature(function).parameters.values()
        place, wanted = next((each.name, each.annotation) for each in own if each.annotation in (model, Typed))
        make = partial(_parameter, more) if wanted is model else partial(_optional, more, default_text)
        options = [make(name, field) for name, field in model.model_fields.items()]

        def command(**values: Any) -> None:
            chosen = {name: values.pop(name) for name in model.model_fields}
            given = {name: value for name, value in chosen.items() if value is not None}
            function(**values, **{place: typed(model, chosen, "options") if wanted is model else given})

        parameters = [
            each
            for parameter in own
            for each in (options if parameter.name == place else [parameter.replace(kind=Parameter.KEYWORD_ONLY)])
        ]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return as_command


def _asked(field: FieldInfo) -> Any:
    """The type in which a field is typed: a kind, an agent or what the model reads of a word is a word."""
    if any(isinstance(each, BeforeValidator) for each in field.metadata):
        return str
    parts = get_args(field.annotation) or (field.annotation,)
    # `__origin__` is the type in an Annotated, of which get_origin gives Annotated itself.
    types = [getattr(part, "__origin__", part) for part in parts]
    return str | None if any(isclass(each) and issubclass(each, BaseModel) for each in types) else field.annotation


def _parameter(more: Mapping[str, Any], name: str, field: FieldInfo) -> Parameter:
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if field.is_required() else field.default,
        annotation=Annotated[_asked(field), _option(field, more)],
    )


def _optional(more: Mapping[str, Any], default_text: str, name: str, field: FieldInfo) -> Parameter:
    default = field.default.name if isinstance(field.default, AnswerKind) else field.default
    shown = None if field.is_required() or default is None else default_text.format(default)
    kind: Any = _asked(field)
    option = _option(field, {**more, "show_default": shown or False})
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _option(field: FieldInfo, more: Mapping[str, Any]) -> Any:
    if declared := [each for each in field.metadata if isinstance(each, OptionInfo)]:
        return declared[0]
    limits = {name: getattr(limit, name) for limit in field.metadata for name in ("ge", "le") if hasattr(limit, name)}
    return typer.Option(help=field.description, min=limits.get("ge"), max=limits.get("le"), **more)
