"""`restrain premise`: whether label-free training can work on these prompts with this base model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import GOLD, to_folder
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.method.settings import CommonSettings

if TYPE_CHECKING:
    from restrain_openrlhf.premise.diagnosis import Premise

N_SAMPLES = "rollout.n_samples_per_prompt"


def premise(
    reference: Annotated[Path | None, typer.Option(help="Reference file of the offline pass.")] = None,
    rollouts: Annotated[
        Path | None, typer.Option(help="In its place, rows {id, problem, responses, answer?} of the base model.")
    ] = None,
    gold: Annotated[Path | None, typer.Option(help=f"{GOLD} Of all or some of the prompts.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            parser=find_config, metavar="CONFIG", help="A YAML file or preset, for its method and group size."
        ),
    ] = None,
    kappa: Annotated[float | None, typer.Option(help="The method's kappa.", show_default="CONFIG's, or 3")] = None,
    sigma: Annotated[float | None, typer.Option(help="The method's sigma.", show_default="CONFIG's, or 0.5")] = None,
    delta: Annotated[float | None, typer.Option(help="The method's delta.", show_default="CONFIG's, or 1")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
    out: Annotated[Path | None, to_folder("Folder for pictures and premise.json.", show_default="none")] = None,
) -> None:
    """Tell from the frozen model's rollouts whether training without labels can work. Warnings leave the status at 0.

    Without --config the method is RESTRAIN with the paper's settings.
    """
    from restrain_openrlhf.premise import diagnose, from_reference, from_rollouts  # noqa: PLC0415 - keeps `--help` quick

    if (path := reference or rollouts) is None or (reference and rollouts):
        raise ConfigError("Give one file to read: --reference REF.jsonl, or --rollouts ROLLOUTS.jsonl.")
    given = {"kappa": kappa, "sigma": sigma, "delta": delta}
    settings, group_size = _method(config, {key: value for key, value in given.items() if value is not None})
    read = from_reference if reference else from_rollouts
    found = diagnose(read(path, gold, group_size), settings)
    _print(found, as_json)
    for written in _save(found, out) if out else ():
        Console(stderr=True).print(written, soft_wrap=True)


def _method(config: Path | None, given: dict[str, float]) -> tuple[CommonSettings, int | None]:
    """The method, and how many rollouts a group has in training; None: as many as were sampled."""
    from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: PLC0415

    if config is None:
        return parse_settings({"name": "restrain", **given}), None
    run = load_run_config(config, {f"method.{key}": value for key, value in given.items()})
    plan = build(run.method).rollouts
    size = plan.voters if plan else run.openrlhf.get(N_SAMPLES)
    if size is not None and not isinstance(size, int):
        raise ConfigError(f"{config}: {N_SAMPLES} is {size!r}: a whole number is needed.")
    return run.method, size


def _print(found: "Premise", as_json: bool) -> None:
    from restrain_openrlhf.premise.tables import tables  # noqa: PLC0415

    if as_json:
        typer.echo(_json(found))
        return
    console = Console(highlight=False)
    for table in tables(found):
        console.print(table)
    _print_findings(found, console)


def _print_findings(found: "Premise", console: Console) -> None:
    from restrain_openrlhf.premise.findings import Level, findings  # noqa: PLC0415

    styles = {Level.WARNING: "bold red", Level.NOTE: "bold"}
    listed = findings(found)
    for finding in listed:
        console.print(f"[{styles[finding.level]}]{finding.level.value}:[/] ", end="")
        console.print(finding.text, markup=False)
    warnings = sum(finding.level is Level.WARNING for finding in listed)
    console.print(f"{warnings} warning{'s' * (warnings != 1)}. What they mean: docs/concepts/premise.md.")


def _json(found: "Premise") -> str:
    import json  # noqa: PLC0415

    from restrain_openrlhf.premise.findings import findings  # noqa: PLC0415

    said = [{"level": finding.level.value, "text": finding.text} for finding in findings(found)]
    return json.dumps({**found.json(), "findings": said}, ensure_ascii=False, indent=2)


def _save(found: "Premise", out: Path) -> Sequence[Path]:
    from restrain_openrlhf.report.premise_figures import save_premise_figures  # noqa: PLC0415 - imports matplotlib

    pictures = save_premise_figures(found, out)
    document = out / "premise.json"
    document.write_text(_json(found) + "\n", encoding="utf-8")
    return [*pictures, document]
