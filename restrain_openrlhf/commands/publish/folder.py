"""Writes the folder: the model's files, notices, the configuration and the card."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from restrain_openrlhf.commands.publish.card import card_text
from restrain_openrlhf.commands.publish.evaluations import collect
from restrain_openrlhf.commands.publish.origin import describe_base, describe_data
from restrain_openrlhf.commands.publish.private import clean_json, published_configuration, refuse_private
from restrain_openrlhf.commands.publish.trained_run import TrainedRun
from restrain_openrlhf.data.model_files import ADAPTER, PATTERNS, refuse_incomplete
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError

# By this file a folder, or a repository, is known to be one of ours.
CONFIGURATION = "restrain.json"
# Weights are as large as a disk allows, and are not changed here.
LINKED = (".safetensors", ".bin")


def write_folder(
    run: TrainedRun,
    out: Path,
    repository: str | None = None,
    base_model: str | None = None,
    evaluations: Sequence[Path] = (),
    base_evaluations: Sequence[Path] = (),
) -> None:
    """Write it whole, in the place of an earlier one. `base_model` says which model of the hub the base is.

    Raises ConfigError where `out` is something else, RunError for evaluations of other models and for private words in
    what would be published.
    """
    out = output_folder(out)
    if out.exists() and not (out / CONFIGURATION).exists():
        raise ConfigError(f"--out {out}: is there, and was not written by `restrain publish`. Name another folder.")
    base_name = str(run.flag("actor.model_name_or_path") or "")
    base = describe_base(base_name, base_model)
    lines = collect(run, evaluations, base_evaluations)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    # A whole model has its adapter in a folder beside it.
    for source, place in ((run.model, partial), (run.model / ADAPTER, partial / ADAPTER)):
        if place == partial or run.has_adapter:
            place.mkdir(exist_ok=True)
            _copy_files(source, place, {base_name: base.shown})
    for path in base.notices:
        shutil.copyfile(path, partial / path.name)
    configuration = published_configuration(run.resolved)
    configuration["openrlhf"]["actor.model_name_or_path"] = base.shown
    (partial / CONFIGURATION).write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")
    card = card_text(run, base, describe_data(run), lines, repository or run.path.name)
    (partial / "README.md").write_text(card, encoding="utf-8")
    refuse_private(partial, run.path)
    refuse_incomplete(partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def _copy_files(source: Path, out: Path, replaced: dict[str, str]) -> None:
    """Weights are linked where the file system can."""
    patterns = PATTERNS if any(source.glob("*.safetensors")) else (*PATTERNS, "*.bin")
    for path in sorted({path for pattern in patterns for path in source.glob(pattern) if path.is_file()}):
        try:
            copy = os.link if path.suffix in LINKED else shutil.copyfile
            copy(path.resolve(), out / path.name)
        except OSError:
            shutil.copyfile(path, out / path.name)
        if path.suffix == ".json" and not path.name.startswith("tokenizer.") and not path.name.endswith(".index.json"):
            clean_json(out / path.name, replaced)
