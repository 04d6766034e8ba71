"""Writes the folder: the model's files, notices, pictures, the configuration and the card."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.model_files import ADAPTER, PATTERNS, refuse_incomplete
from restrain_openrlhf.publish.base_model import BaseModel, describe_base
from restrain_openrlhf.publish.card import Card, Picture
from restrain_openrlhf.publish.data_set import describe_data, offline_provenance
from restrain_openrlhf.publish.evaluations import collect
from restrain_openrlhf.publish.private import clean_json, published_configuration, refuse_private
from restrain_openrlhf.publish.trained_run import TrainedRun
from restrain_openrlhf.report.curves import TRAINING, VOTES, RunCurves, draw_majority_sizes, draw_panels
from restrain_openrlhf.run.collapse import read_collapse
from restrain_openrlhf.run.metrics import read_steps

# By this file a folder, or a repository, is known to be one of ours.
CONFIGURATION = "restrain.json"
FIGURES = "figures"
# Weights are as large as a disk allows, and are not changed here.
LINKED = (".safetensors", ".bin")


@dataclass(frozen=True)
class Wishes:
    """What the user chose: where it will be called what, evaluations, and which model of the hub the base is."""

    repository: str | None = None
    base_model: str | None = None
    evaluations: Sequence[Path] = ()
    base_evaluations: Sequence[Path] = ()


def write_folder(run: TrainedRun, out: Path, wishes: Wishes) -> None:
    """Write it whole, in the place of an earlier one.

    Raises ConfigError where `out` is something else, RunError for evaluations of other models and for private words in
    what would be published.
    """
    out = output_folder(out)
    _refuse_other(out)
    base_name = str(run.flag("actor.model_name_or_path") or "")
    base = describe_base(base_name, wishes.base_model)
    passed = offline_provenance(run)
    lines = collect(
        run, wishes.evaluations, wishes.base_evaluations, passed.model_fingerprint if passed is not None else None
    )
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _copy_model(run, partial, {base_name: base.shown})
    _copy_notices(base, partial)
    configuration = published_configuration(run.resolved)
    configuration["openrlhf"]["actor.model_name_or_path"] = base.shown
    (partial / CONFIGURATION).write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")
    name = wishes.repository or run.name
    card = Card(run, base, describe_data(run), lines, _draw(run, name, partial / FIGURES), name)
    (partial / "README.md").write_text(card.text(), encoding="utf-8")
    refuse_private(partial, run.path)
    refuse_incomplete(partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def _refuse_other(out: Path) -> None:
    if out.exists() and not (out / CONFIGURATION).exists():
        raise ConfigError(f"--out {out}: is there, and was not written by `restrain publish`. Name another folder.")


def _copy_model(run: TrainedRun, out: Path, replaced: dict[str, str]) -> None:
    """Weights are linked where the file system can; a whole model has its adapter in a folder beside it."""
    _copy_files(run.model, out, replaced)
    if run.has_adapter:
        (out / ADAPTER).mkdir()
        _copy_files(run.model / ADAPTER, out / ADAPTER, replaced)


def _copy_files(source: Path, out: Path, replaced: dict[str, str]) -> None:
    patterns = PATTERNS if any(source.glob("*.safetensors")) else (*PATTERNS, "*.bin")
    for path in sorted({path for pattern in patterns for path in source.glob(pattern) if path.is_file()}):
        target = out / path.name
        if path.suffix in LINKED:
            _link(path, target)
        else:
            shutil.copyfile(path, target)
        if path.suffix == ".json" and not path.name.startswith("tokenizer.") and not path.name.endswith(".index.json"):
            clean_json(target, replaced)


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path.resolve(), target)
    except OSError:
        shutil.copyfile(path, target)


def _copy_notices(base: BaseModel, out: Path) -> None:
    for path in base.notices:
        shutil.copyfile(path, out / path.name)


def _draw(run: TrainedRun, name: str, folder: Path) -> list[Picture]:
    """The curves of metrics.jsonl; none where the run has left none."""
    rows = read_steps(run.training.metrics)
    if not rows:
        return []
    folder.mkdir()
    curves = RunCurves(name.rpartition("/")[2], rows, read_collapse(run.training.path))
    figures = {
        "Training": draw_panels([curves], TRAINING),
        "Votes": draw_panels([curves], VOTES),
        "Majority": draw_majority_sizes(curves),
    }
    pictures = [Picture(title, f"{FIGURES}/{title.lower()}.png") for title in figures]
    for picture, figure in zip(pictures, figures.values(), strict=True):
        figure.savefig(folder.parent / picture.path, dpi=100)
    return pictures
