"""`restrain publish`: a complete folder for the hub with a run's model and card, without private data."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.commands.publish import private
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.data.model_files import ADAPTER, ADAPTER_CONFIG, PATTERNS, refuse_incomplete
from restrain_openrlhf.data.outputs import output_folder, write_whole
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.records.folder import VOTES_BEFORE, RunFolder

# A folder with this file was written by this command, and may be replaced.
CONFIGURATION = "restrain.json"
# Weights are linked rather than copied, because they are large and are not changed here.
LINKED_SUFFIXES = (".safetensors", ".bin")


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain train`.")],
    out: Annotated[Path | None, to_folder("Folder to write.", show_default="RUN/hub")] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of `restrain eval` for this model. Repeatable.", show_default="RUN/evaluation, if it exists"
        ),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Hub id of the base model, if training read it from a folder."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="What the model will be called on the hub.", show_default="OWNER/RUN"),
    ] = None,
) -> None:
    """Write a run's model and its card into a folder for the Hugging Face hub. Push it with `hf upload`."""
    found = finished_run(run)
    if name is not None and not private.HUB_ID.fullmatch(name):
        raise ConfigError(f"--name {name!r}: is not a valid model name on the hub. Give OWNER/NAME.")
    folder, called = output_folder(out or found.path / "hub"), name or f"OWNER/{found.path.name}"
    write_folder(found, folder, called, base_model, evaluation or ())
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"folder: {folder}\nRead it, then push it: hf upload {called} {folder}")


def finished_run(path: Path) -> RunFolder:
    """The finished run in a folder of `restrain train`.

    Raises RunError for another folder, for a run that has not ended, and for a run of `test-time adapt`, whose last
    model is not always the one that gave its answers. Raises ConfigError for incomplete weights.
    """
    run = RunFolder(path.absolute())
    adaptation = run.path.parent if run.path.name == "train" else run.path
    if (adaptation / VOTES_BEFORE).exists():
        raise RunError(
            f"{path}: was written by `test-time adapt`. The model that gave its answers is `chosen_model` in "
            "result.json; push that folder with `hf upload`."
        )
    if not run.resolved.exists():
        raise RunError(f"{path}: holds no run. Give the folder of `restrain train`.")
    if not run.completed.exists():
        raise RunError(f"{path}: the run has not ended. Run its command again to finish it, then publish it.")
    if not run.model.is_dir():
        raise RunError(
            f"{run.model}: no such folder: the run has not saved a model. Train it to its end, then publish it."
        )
    refuse_incomplete(run.model)
    return run


def write_folder(run: RunFolder, out: Path, name: str, base_model: str | None, evaluations: Sequence[Path]) -> None:
    """Write the whole folder, replacing an earlier one. `base_model` is the hub id of the base model.

    Raises ConfigError if `out` is another kind of folder, and RunError for evaluations of other models and for private
    words in the files to publish.
    """
    from restrain_openrlhf.commands.publish.card import card_text, describe_base  # noqa: PLC0415 - keeps `--help` quick

    if out.exists() and not (out / CONFIGURATION).exists():
        raise ConfigError(f"--out {out}: exists, and was not written by `restrain publish`. Name another folder.")
    base_name = str(run.flags().get("actor.model_name_or_path") or "")
    base, measured = describe_base(base_name, base_model), measured_accuracies(run, evaluations)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # A model with merged LoRA weights keeps its adapter in a folder beside them.
    folders = ["", *([ADAPTER] if (run.model / ADAPTER / ADAPTER_CONFIG).exists() else [])]
    for folder in folders:
        _copy_files(run.model / folder, partial / folder, {base_name: base.shown})
    for path in base.notices:
        shutil.copyfile(path, partial / path.name)
    configuration = private.published_configuration(run.record(), base.shown)
    write_whole(partial / CONFIGURATION, json.dumps(configuration, indent=2) + "\n")
    write_whole(partial / "README.md", card_text(run, name, base, measured, ADAPTER in folders))
    private.refuse_private(partial, run.path)
    refuse_incomplete(partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def measured_accuracies(run: RunFolder, folders: Sequence[Path]) -> list[Result]:
    """Results of `restrain eval` for the run's model.

    Raises RunError for those of another model or an unfinished one.
    """
    own = run.path / "evaluation"
    fingerprint, found = model_fingerprint(str(run.model)), list[Result]()
    for folder in folders or ([own] if own.is_dir() else []):
        for result in load_results(folder):
            how = result.provenance
            if how.model_fingerprint != fingerprint:
                raise RunError(
                    f"{folder}: {how.benchmark} evaluates another model ({how.model}). Give the published model's "
                    "evaluation with --evaluation, or run `restrain eval` on it."
                )
            found.append(result)
    return found


def _copy_files(source: Path, out: Path, replaced: dict[str, str]) -> None:
    """Copy a model's files. Weights are linked if the file system can do that; JSON files lose local paths."""
    out.mkdir(parents=True)
    patterns = PATTERNS if any(source.glob("*.safetensors")) else (*PATTERNS, "*.bin")
    for path in sorted({path for pattern in patterns for path in source.glob(pattern) if path.is_file()}):
        copy = out / path.name
        try:
            (os.link if path.suffix in LINKED_SUFFIXES else shutil.copyfile)(path.resolve(), copy)
        except OSError:
            shutil.copyfile(path, copy)
        if path.suffix == ".json" and path.name not in private.VOCABULARIES:
            private.clean_json(copy, replaced)
