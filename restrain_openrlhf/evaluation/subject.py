"""What was evaluated, in the paper's terms: which model, trained by which method, on what."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.catalogue import TRAINING_SETS
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation.published import BASE, TEST_TIME, models
from restrain_openrlhf.evaluation.responses import EvaluationProvenance
from restrain_openrlhf.method import METHODS, parse_settings
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.shipped import CONFIGS

ABLATIONS = CONFIGS / "ablations"
# The presets with the paper's own settings: of its sweeps the values it chose, and its 3 of 16 as 6 of 32 rollouts.
PAPERS_SETTINGS = (
    CONFIGS / "dapo14k" / "qwen3-4b-base" / "restrain.yaml",
    *(ABLATIONS / f"{name}.yaml" for name in ("sigma-0.5", "delta-1", "kappa-3")),
    CONFIGS / "test_time" / "llama3.1-8b-instruct" / "aime24" / "ttrl_protocol" / "restrain.yaml",
)
# The vote before an adaptation, which is its reference: `test-time adapt` and its presets call it so.
BEFORE = "before.jsonl"
# The presets' files of prompts that are not called as their sets.
PROMPT_FILES = {"s1k": "synthetic-s1k"}
# A trained model lies in <run>/model, <run>/checkpoints/<one>, or in an adaptation's <out>/train/ below them.
LEVELS = 3


@dataclass(frozen=True)
class Said:
    """What a user says of the evaluated models, which nothing else tells; None: as labels and run folders have it."""

    base: str | None = None
    method: str | None = None
    data: str | None = None


@dataclass(frozen=True)
class Subject:
    """`base` is the model that training began from. None where it is not known.

    `ablation` is the preset in configs/ablations with these settings of RESTRAIN. `own_settings`: they are neither the
    paper's nor an ablation's.
    """

    base: str | None
    method: str | None
    training: str | None
    ablation: str | None = None
    own_settings: bool = False


NOTHING = Subject(None, None, None)


def subject_of(how: EvaluationProvenance, said: Said) -> Subject:
    """From what the user says, else the labels base, method and data of the evaluation, else the model's run folder.

    Labels are free: one that names no method is a method that the paper lacks. Raises ConfigError for a `said` method
    that there is none of, RunError for a run folder that cannot be read.
    """
    labels = how.labels
    found = NOTHING
    if None in (said.base, said.method, said.data):
        found = _of_run(Path(how.model)) or _of_hub_id(how.model)
    method = _known_method(said.method) or labels.get("method") or found.method
    same = method == found.method
    return Subject(
        base=said.base or labels.get("base") or found.base,
        method=method,
        training=said.data or labels.get("data") or found.training,
        ablation=_labelled_ablation(labels) or (found.ablation if same else None),
        own_settings=found.own_settings if same else False,
    )


def _known_method(name: str | None) -> str | None:
    if name is not None and name != BASE and name not in METHODS:
        raise ConfigError(f"--method {name!r}: is no method. Known: {BASE} (no training), {', '.join(METHODS)}.")
    return name


def _labelled_ablation(labels: Mapping[str, str]) -> str | None:
    """`sigma=0.1` as the preset of that name; a value that the paper did not sweep is none."""
    names = (f"{key}-{labels[key]}" for key in ("sigma", "delta", "kappa") if key in labels)
    return next(
        (path.stem for path in map(_ablation_file, names) if path.is_file() and path not in PAPERS_SETTINGS), None
    )


def _ablation_file(name: str) -> Path:
    return ABLATIONS / f"{name}.yaml"


def _of_hub_id(model: str) -> Subject:
    """A hub id is that model untrained; of a folder outside a run nothing is known."""
    is_hub_id = model in models() or (model.count("/") == 1 and not model.startswith(".") and not Path(model).exists())
    return Subject(model, BASE, None) if is_hub_id else NOTHING


def _of_run(model: Path) -> Subject | None:
    """By the nearest run.json above a model's folder."""
    places = [folder / "run.json" for folder in model.absolute().parents[:LEVELS]]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return None
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        flags, settings = run["openrlhf"], parse_settings(run["method"])
        base = str(flags["actor.model_name_or_path"])
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise RunError(
            f"{path}: cannot be read as a run's ({error}). Say what was evaluated with --base, --method and --data, or "
            "move the model out of that folder."
        ) from None
    ablation, own = _ablation(settings)
    return Subject(base, settings.name, _training(run, flags), ablation, own)


def _ablation(settings: CommonSettings) -> tuple[str | None, bool]:
    """RESTRAIN's ablation with these settings, and whether they are neither one's nor the paper's."""
    papers = [_method_of(path) for path in PAPERS_SETTINGS]
    if settings in papers or type(settings) is not type(papers[0]):
        return None, False
    name = next((path.stem for path in sorted(ABLATIONS.glob("*.yaml")) if _method_of(path) == settings), None)
    return name, name is None


@cache
def _method_of(preset: Path) -> CommonSettings:
    return load_run_config(preset).method


def _training(run: Mapping[str, Any], flags: Mapping[str, Any]) -> str | None:
    if Path(str(run.get("reference") or "")).name == BEFORE:
        return TEST_TIME
    prompts = Path(str(flags.get("data.prompt_dataset") or ""))
    about = prompts.with_name(f"{prompts.stem}.about.json")
    if about.is_file():
        return str(json.loads(about.read_text(encoding="utf-8")).get("name"))
    stem = prompts.name.partition(".")[0]
    name = PROMPT_FILES.get(stem, stem)
    return name if name in TRAINING_SETS else None
