"""`restrain premise`: whether label-free training can work on these prompts with this base model."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.commands.options import GOLD, AnswersOption, MethodKeys, split_answers
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.method import build, parse_settings

if TYPE_CHECKING:
    from restrain_openrlhf.commands.premise.diagnosis import Premise
    from restrain_openrlhf.commands.premise.report import PremiseFinding
    from restrain_openrlhf.config.yaml_file import RunConfig

N_SAMPLES = "rollout.n_samples_per_prompt"


def premise(
    reference: Annotated[Path | None, typer.Option(help="Reference file of the offline pass.")] = None,
    rollouts: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --reference: rows {id, problem, responses, answer?, truncated?} (JSONL, JSON, Parquet), "
            "or CSV as for `restrain score`."
        ),
    ] = None,
    gold: Annotated[Path | None, typer.Option(help=f"{GOLD} Of all or some of the prompts.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            parser=find_config, metavar="CONFIG", help="A YAML file or preset that gives the method and the group size."
        ),
    ] = None,
    answers: AnswersOption = None,
    overrides: MethodKeys = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 2 if there is a warning.")] = False,
) -> None:
    """Tell from the frozen model's rollouts whether training without labels can work.

    Exits with status 0 even if there are warnings, unless --strict is given.

    Without --config the method is RESTRAIN with the paper's settings. If --config is given alone,
    the reference that it names is read.
    """
    from restrain_openrlhf.commands.premise.diagnosis import diagnose  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.commands.premise.frozen import from_reference, from_rollouts  # noqa: PLC0415
    from restrain_openrlhf.commands.premise.report import findings  # noqa: PLC0415
    from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: PLC0415

    given, kind = split_answers(parse_overrides(overrides or [], example="kappa=2"), answers)
    run = load_run_config(config, {f"method.{key}": value for key, value in given.items()}) if config else None
    reference = reference or (run.reference if run and not rollouts else None)
    path = _only_file(reference, rollouts)
    if reference and kind:
        raise ConfigError("--answers belongs to --rollouts only: a reference file already names its kind of answer.")
    settings = run.method if run else parse_settings({"name": "restrain", **given})
    kind = kind or (run.answers if run else MATHEMATICS)
    read = from_reference if reference else partial(from_rollouts, kind=kind)
    found = diagnose(read(path, gold, _group_size(run) if run else None), settings)
    listed = findings(found)
    if as_json:
        typer.echo(_json(found, listed))
    else:
        _print(found, listed)
    if strict and any(finding.level == "warning" for finding in listed):
        raise DataError(
            "restrain premise warns, and --strict was given. Fix the cause of each warning "
            "(docs/concepts/premise.md), or leave out --strict to train in spite of them."
        )


def _only_file(reference: Path | None, rollouts: Path | None) -> Path:
    if (path := reference or rollouts) is None or (reference and rollouts):
        raise ConfigError(
            "Give one file to read: --reference REF.jsonl, or --rollouts ROLLOUTS.jsonl; or --config CONFIG, whose "
            "`reference:` is read."
        )
    return path


def _group_size(run: "RunConfig") -> int | None:
    """How many rollouts a group has in training; None if the configuration does not say, for all that were sampled."""
    plan = build(run.method).rollouts
    size = plan.voters if plan else run.openrlhf.get(N_SAMPLES)
    if size is not None and not isinstance(size, int):
        raise ConfigError(f"--config: {N_SAMPLES} is {size!r}: a whole number is needed.")
    return size


def _print(found: "Premise", listed: Sequence["PremiseFinding"]) -> None:
    from restrain_openrlhf.commands.premise.report import tables  # noqa: PLC0415

    console = Console(highlight=False)
    for table in tables(found):
        console.print(table)
    for finding in listed:
        console.print(f"[bold{' red' if finding.level == 'warning' else ''}]{finding.level}:[/] ", end="")
        console.print(finding.text, markup=False)
    warnings = sum(finding.level == "warning" for finding in listed)
    console.print(f"{warnings} warning{'s' * (warnings != 1)}. What they mean: docs/concepts/premise.md.")


def _json(found: "Premise", listed: Sequence["PremiseFinding"]) -> str:
    from pydantic import TypeAdapter  # noqa: PLC0415

    numbers = TypeAdapter(type(found)).dump_python(found, mode="json")
    return json.dumps({**numbers, "findings": [vars(each) for each in listed]}, ensure_ascii=False, indent=2)
