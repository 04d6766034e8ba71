"""`restrain integrate`: shows an existing training command with RESTRAIN in it, and what to know before using it."""

import difflib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.commands.integrate.changes import CONFIG_FLAG, CommandReview, last_value, own_agent
from restrain_openrlhf.commands.integrate.script import Written
from restrain_openrlhf.commands.options import MethodKeys
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.documents import dump_yaml
from restrain_openrlhf.config.host_flags import RECORD
from restrain_openrlhf.config.yaml_file import HookConfig, load_hook_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import Method, build, parse_settings
from restrain_openrlhf.reference.offline_pass import OfflineOptions

NEW_FILE, NEW_REFERENCE = Path("method.yaml"), Path("/shared/ref.jsonl")
PAGE = "docs/journeys/integration.md"


def integrate(
    command: Annotated[str | None, typer.Option(help="The complete command, as you start it today.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="A shell or Slurm script that contains the command."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Your YAML file with `method:`.", show_default="one made from the options below")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Name of the method.", show_default="restrain")] = None,
    overrides: MethodKeys = None,
) -> None:
    """Show how RESTRAIN is switched on in an existing training command, and what would be refused. Starts nothing.

    OpenRLHF need not be installed. Exits with status 1 if you have to decide something.
    """
    if (command is None) == (file is None):
        raise ConfigError("Give either --command with the command, or --file with a file that contains it, not both.")
    written = Written.of_file(file) if file is not None else Written.of_command(command or "")
    path, ours = _configuration(written, config, method, overrides)
    verdict = CommandReview.of(written, ours)
    typer.echo("\n".join(_report(written, verdict, path, ours)))
    is_lost = ours.agent is None and (agent := own_agent(written)) is not None
    if is_lost:
        typer.echo(
            f"\n{path} has no `agent:`, so that {agent} would no longer draw the rollouts. Write `agent: {agent}` into "
            f"{path}, or remove --train.agent_func_path from your command if rollouts of a single turn are meant."
        )
    if is_lost or any(line.change is None for line in verdict.refused):
        raise typer.Exit(1)


def _configuration(
    written: Written, config: Path | None, method: str | None, overrides: list[str] | None
) -> tuple[Path, HookConfig]:
    """Our configuration: from the file of --config, from the file that the command already names, or a new one."""
    given = parse_overrides(overrides or [], example="kappa=2")
    if config is not None and (given or method):
        raise ConfigError("--config already sets the method. Leave out either --config, or --method and --set.")
    named = last_value(written, CONFIG_FLAG)
    found = config or (Path(named) if named is not None and Path(named).is_file() else None)
    if found is not None:
        return found, load_hook_config(found)
    settings = parse_settings({"name": method or "restrain", **given})
    reference = NEW_REFERENCE if build(settings).needs_reference else None
    return Path(named or NEW_FILE), HookConfig(method=settings, reference=reference, agent=own_agent(written))


def _report(written: Written, verdict: CommandReview, path: Path, ours: HookConfig) -> Iterator[str]:
    method = build(ours.method)
    yield _title("The change")
    before, after = written.text.splitlines(), verdict.changed(written, str(path)).splitlines()
    lines = difflib.unified_diff(before, after, "yours", "with RESTRAIN", lineterm="")
    yield "\n".join(lines) or "Nothing: the command already has RESTRAIN."
    if not path.is_file():
        yield _title(f"{path}, where the command runs; its paths are seen by every node")
        yield _file(ours, own_agent(written))
    yield _title(f"Flags that would be refused ({RECORD.stem}, on record)")
    yield (
        "\n".join(f"- {line.reason}\n  => {line.change or 'for you to decide'}" for line in verdict.refused) or "None."
    )
    if verdict.unknown:
        yield _title("Not checked: only your shell knows the value")
        yield "\n".join(f"--{name} {value}" for name, value in verdict.unknown.items())
    yield _title("Once, before the first run")
    yield "Install the wheel on every node of the Ray cluster (docs/start/install.md#a-wheel)."
    yield from _reference_step(verdict, ours, method)
    yield _title("More")
    yield f"Other ways, what each loses, how to see that RESTRAIN is on, and how to go back: {PAGE}"


def _reference_step(verdict: CommandReview, ours: HookConfig, method: Method) -> Iterator[str]:
    if not method.needs_reference:
        return
    yield "The frozen model votes on every prompt, into a file that the method reads:"
    if not verdict.flags["rollout.max_new_tokens"] and "rollout.max_new_tokens" not in verdict.unknown:
        yield "rollout.max_new_tokens is not set, and these rollouts are drawn as training's. Set it, and ask again."
        return
    out, answers = ours.reference or NEW_REFERENCE, None if ours.answers == MATHEMATICS else ours.answers
    given = {"out": out, "n": ours.reference_n, "answers": answers, "agent": ours.agent}
    try:
        options = OfflineOptions.from_flags(verdict.flags, **given)
    except ConfigError as error:
        yield str(error)
    else:
        yield " \\\n    ".join(["restrain reference", *_quoted_words(options, verdict.unknown)])


def _quoted_words(options: OfflineOptions, unknown: Mapping[str, str]) -> list[str]:
    """The words of `restrain reference`. A value that is a variable of the shell stays one."""
    of_flag = {options.flag(name): f"--{name.replace('_', '-')}" for name in type(options).model_fields}
    filled = {of_flag[flag]: value for flag, value in unknown.items() if flag in of_flag}
    known = [shlex.quote(word) for word in options.words() if word.partition("=")[0] not in filled]
    return [*(f'{option}="{value}"' for option, value in filled.items()), *known]


def _file(ours: HookConfig, agent: str | None) -> str:
    """The text of our new file, without settings that are at their defaults."""
    settings = {"name": ours.method.name, **ours.method.model_dump(mode="json", exclude_defaults=True)}
    reference = {} if ours.reference is None else {"reference": str(ours.reference)}
    agents = {} if agent is None else {"agent": agent}
    return dump_yaml({"method": settings, **reference, **agents}, sort_keys=False).strip()


def _title(text: str) -> str:
    return f"\n== {text}"
