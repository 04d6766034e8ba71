"""The model card: what a reader on the hub needs to know about a run, its base model and its prompts."""

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from restrain_openrlhf.commands.publish.private import HUB_ID, cleaned, is_hub_id, without_paths
from restrain_openrlhf.data.demo_tasks.tasks import MODELS
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.result import Result
from restrain_openrlhf.method import METHODS, build, parse_settings
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import read_held_out

TAGS = ("restrain-openrlhf", "openrlhf", "reinforcement-learning")
CARD, PACKAGE = "README.md", "restrain-openrlhf"
NOTICES = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")


@dataclass(frozen=True)
class BaseModel:
    """`id` on the hub, or None if unknown; `shown` is its name in the card. `notices` are files of its licence.

    `licence` has the keys license, license_name and license_link of the hub's cards. It is empty if no card is found.
    """

    id: str | None
    shown: str
    licence: dict[str, str]
    notices: Sequence[Path]


def card_text(run: RunFolder, name: str, base: BaseModel, evaluations: Sequence[Result], has_adapter: bool) -> str:
    """The README.md with the hub's front matter. `evaluations` are results of the published model."""
    environment = Environment(
        loader=PackageLoader("restrain_openrlhf.commands.publish", "."),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    method, prompts = run.record()["method"], str(run.flags().get("data.prompt_dataset") or "")
    about = describe_prompts(prompts)
    source = about.source.split(" (")[0].split(",")[0] if about else prompts
    return environment.get_template("card.md.j2").render(
        name=name,
        flags=run.flags(),
        completion=run.completion(),
        has_adapter=has_adapter,
        base=base,
        about=about,
        prompts=about.name if about else without_paths(prompts),
        front=_front_matter(name, (method["name"], run.kind.name), base, source, evaluations),
        answers=_in_a_cell(cleaned(run.kind.identity)),
        reads=_in_a_cell(run.kind.reads),
        columns=", ".join(f"`{name}`" for name in sorted(run.kind.row_columns())),
        version=version(PACKAGE),
        method=cleaned({key: value for key, value in method.items() if value is not None}),
        summary=_summary_of(method["name"]),
        reads_gold=build(parse_settings({"name": method["name"]})).reads_gold,
        rows=list(map(_row, evaluations)),
        held_out=_held_out(run.path),
    )


def _summary_of(method: str) -> str:
    """The first paragraph of the docstring of the method's module."""
    text = inspect.getdoc(sys.modules[METHODS[method].__module__]) or ""
    return " ".join(text.split("\n\n")[0].split())


def _held_out(folder: Path) -> str:
    """Held-out accuracy at the first, the best and the last evaluation of a run; empty without evaluations."""
    rows = read_held_out(folder)
    best = max(rows, key=lambda row: row.pass_at_1, default=None)
    shown = [row for row in rows if row in (rows[0], best, rows[-1])]
    return ", ".join(f"{100 * row.pass_at_1:.1f} at step {row.step}" for row in shown)


def _front_matter(name: str, tags: Sequence[str], base: BaseModel, source: str, evaluations: Sequence[Result]) -> str:
    """The metadata that the hub reads, with the evaluations as its model-index."""
    from huggingface_hub import EvalResult, ModelCardData  # noqa: PLC0415 - costs a second

    measured = [
        EvalResult("text-generation", how.benchmark, how.title, metric, round(100 * value, 1))
        for how, scores in ((each.provenance, each.scores) for each in evaluations)
        for metric, value in (("pass@1", scores.pass_at_1), (f"maj@{how.n}", scores.maj_at_k[how.n]))
    ]
    known: dict[str, Any] = {
        "base_model": base.id,
        "base_model_relation": "finetune" if base.id else None,
        "datasets": [source] if is_hub_id(source) else None,
        **(base.licence or {"license": "unknown"}),
    }
    front = ModelCardData(
        **{key: value for key, value in known.items() if value},
        model_name=name,
        eval_results=measured or None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[*TAGS, *tags],
    )
    return front.to_yaml()


def _row(result: Result) -> list[str]:
    scores, how = result.scores, result.provenance
    accuracy = f"{100 * scores.pass_at_1:.1f} [{100 * scores.low:.1f}, {100 * scores.high:.1f}]"
    words = f"T {how.temperature:g}, top-p {how.top_p:g}, n {how.n}, up to {how.max_new_tokens} tokens, {how.template}"
    majority = f"{100 * scores.maj_at_k[how.n]:.1f} (k {how.n})"
    return [how.title, str(how.problems), accuracy, majority, _in_a_cell(cleaned(words))]


def _in_a_cell(text: Any) -> str:
    """The text on one line for a Markdown table, with its | and < escaped: <answer> would be taken for HTML."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def describe_base(model: str, hub_id: str | None = None) -> BaseModel:
    """The model that `actor.model_name_or_path` names. `hub_id` is the user's statement of its id on the hub.

    Raises ConfigError for a `hub_id` that is not of the form OWNER/NAME.
    """
    if hub_id is not None and not HUB_ID.fullmatch(hub_id):
        raise ConfigError(f"--base-model {hub_id!r}: is not an id on the hub. Give OWNER/NAME.")
    local = Path(model) if Path(model).is_dir() else None
    known = hub_id or (model if local is None and HUB_ID.fullmatch(model) else None)
    shown = known or f"a local model called {Path(model).name}"
    if local is not None and local.absolute().is_relative_to(MODELS):
        return BaseModel(known, shown, {"license": str(metadata(PACKAGE)["License-Expression"]).lower()}, ())
    has_card = local is not None and (local / CARD).exists()
    folders = list(filter(None, (local, None if has_card or known is None else _from_hub(known))))
    licence = next(filter(None, map(_licence, folders)), {})
    return BaseModel(known, shown, licence, next(filter(None, map(_notices, folders)), []))


def _licence(folder: Path) -> dict[str, str]:
    """The licence in the front matter of the model's own card; empty without one."""
    from huggingface_hub import ModelCard  # noqa: PLC0415 - costs a second

    if not (folder / CARD).exists():
        return {}
    found = ModelCard.load(folder / CARD, ignore_metadata_errors=True).data.to_dict()
    return {key: str(found[key]) for key in ("license", "license_name", "license_link") if found.get(key)}


def _notices(folder: Path) -> list[Path]:
    return sorted({path for pattern in NOTICES for path in folder.glob(pattern)})


def _from_hub(hub_id: str) -> Path | None:
    """A folder with the model's card and notices. None if the hub does not answer; the licence is then unknown."""
    import httpx  # noqa: PLC0415 - see data/model_files.py
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(hub_id, allow_patterns=[CARD, *NOTICES]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError):
        return None


def describe_prompts(named: str) -> Prepared | None:
    """The description that `restrain data prepare` wrote beside the prompts; None if there is no such file."""
    described = Path(f"{named.removesuffix(Path(named).suffix)}.about.json")
    if not named or is_hub_id(named) or not described.is_file():
        return None
    try:
        return Prepared.model_validate_json(described.read_bytes())
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise DataError(f"{described}: {why}. Make it again with `restrain data prepare`.") from None
