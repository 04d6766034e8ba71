"""The model card: what a reader of the hub needs to know of a run, its base model and its prompts."""

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from restrain_openrlhf.commands.publish.private import HUB_ID, cleaned, without_paths
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.result import Result
from restrain_openrlhf.method import METHODS, build, parse_settings
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import read_held_out

TAGS = ("restrain-openrlhf", "openrlhf", "reinforcement-learning")
CARD = "README.md"
NOTICES = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")


@dataclass(frozen=True)
class BaseModel:
    """`id` on the hub, None where it is not known; `shown` is what the card calls it. `notices` are files.

    `licence` None: nothing here says which one it is. Its link and name are given where the hub has no word for it.
    """

    id: str | None
    shown: str
    licence: str | None
    licence_name: str | None
    licence_link: str | None
    notices: Sequence[Path]


@dataclass(frozen=True)
class DataSet:
    """`name` as a reader may know it, `hub_id` where it is from the hub; None for what nothing here says."""

    name: str
    hub_id: str | None = None
    licence: str | None = None
    count: int | None = None
    digest: str | None = None


def card_text(run: RunFolder, base: BaseModel, evaluations: Sequence[Result], has_adapter: bool) -> str:
    """The whole README.md, with the hub's front matter. `evaluations` are of the published model."""
    environment = Environment(
        loader=PackageLoader("restrain_openrlhf.commands.publish", "."),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    flags, method = run.flags(), run.record()["method"]
    data, name, rows = (
        describe_data(str(flags.get("data.prompt_dataset") or "")),
        method["name"],
        read_held_out(run.path),
    )
    best = max(rows, key=lambda row: row.pass_at_1, default=None)
    held_out = [row for row in rows if row in (rows[0], best, rows[-1])]
    return environment.get_template("card.md.j2").render(
        name=run.path.name,
        flags=flags,
        completion=run.completion(),
        has_adapter=has_adapter,
        base=base,
        data=data,
        front_matter=_front_matter((name, run.kind.name), base, data),
        answers=cleaned(run.kind.identity),
        version=version("restrain-openrlhf"),
        method=cleaned({key: value for key, value in method.items() if value is not None}),
        summary=" ".join((inspect.getdoc(sys.modules[METHODS[name].__module__]) or "").split("\n\n")[0].split()),
        reads_gold=build(parse_settings({"name": name})).reads_gold,
        rows=list(map(_row, evaluations)),
        held_out=", ".join(f"{100 * row.pass_at_1:.1f} at step {row.step}" for row in held_out),
    )


def _front_matter(tags: Sequence[str], base: BaseModel, data: DataSet) -> str:
    """What the hub reads, between its marks."""
    from huggingface_hub import ModelCardData  # noqa: PLC0415 - costs a second

    known: dict[str, Any] = {
        "base_model": base.id,
        "base_model_relation": "finetune" if base.id else None,
        "datasets": [data.hub_id] if data.hub_id else None,
        "license": base.licence or "unknown",
        "license_name": base.licence_name,
        "license_link": base.licence_link,
    }
    front = ModelCardData(
        **{name: value for name, value in known.items() if value},
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[*TAGS, *tags],
    )
    return f"---\n{front.to_yaml()}\n---"


def _row(result: Result) -> list[str]:
    scores, how = result.scores, result.provenance
    accuracy = f"{100 * scores.pass_at_1:.1f} [{100 * scores.low:.1f}, {100 * scores.high:.1f}]"
    words = f"T {how.temperature:g}, top-p {how.top_p:g}, n {how.n}, up to {how.max_new_tokens} tokens, {how.template}"
    words = " ".join(str(cleaned(words)).split()).replace("|", "\\|")
    return [how.title, str(how.problems), accuracy, f"{100 * scores.maj_at_k[how.n]:.1f} (k {how.n})", words]


def describe_base(model: str, hub_id: str | None = None) -> BaseModel:
    """The model that `actor.model_name_or_path` names; `hub_id` is the user's word for which one of the hub it is.

    Raises ConfigError for a `hub_id` that is none.
    """
    if hub_id is not None and not HUB_ID.fullmatch(hub_id):
        raise ConfigError(f"--base-model {hub_id!r}: is no id on the hub. Give OWNER/NAME.")
    local = Path(model) if Path(model).is_dir() else None
    known = hub_id or (model if local is None and HUB_ID.fullmatch(model) else None)
    folder = _from_hub(known) if known and (local is None or not (local / CARD).exists()) else None
    card = _card_data(local) or _card_data(folder)
    licence = card.get("license")
    return BaseModel(
        id=known,
        shown=known or f"a local model called {Path(model).name}",
        licence=licence if isinstance(licence, str) else None,
        licence_name=card.get("license_name"),
        licence_link=card.get("license_link"),
        notices=_notices(local) or _notices(folder),
    )


def _card_data(folder: Path | None) -> dict[str, Any]:
    """The front matter of the model's own card."""
    from huggingface_hub import ModelCard  # noqa: PLC0415 - costs a second

    if folder is None or not (folder / CARD).exists():
        return {}
    return dict(ModelCard.load(folder / CARD, ignore_metadata_errors=True).data.to_dict())


def _notices(folder: Path | None) -> tuple[Path, ...]:
    return tuple(sorted({path for pattern in NOTICES for path in folder.glob(pattern)})) if folder else ()


def _from_hub(hub_id: str) -> Path | None:
    """Its card and notices; None where the hub cannot be asked: then the card says that the licence is unknown."""
    import httpx  # noqa: PLC0415 - see data/model_files.py
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(hub_id, allow_patterns=[CARD, *NOTICES]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError):
        return None


def describe_data(named: str) -> DataSet:
    """From the description that `restrain data prepare` wrote beside the prompts; without one, their name alone."""
    if named and _is_hub_id(named) and not Path(named).exists():
        return DataSet(named, named)
    described = Path(f"{named.removesuffix(Path(named).suffix)}.about.json")
    if not described.is_file():
        return DataSet(without_paths(named))
    try:
        about = Prepared.model_validate_json(described.read_text(encoding="utf-8"))
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise DataError(f"{described}: {why}. Make it again with `restrain data prepare`.") from None
    source = about.source.split(" (")[0].split(",")[0]
    return DataSet(about.name, source if _is_hub_id(source) else None, about.licence, about.count, about.digest)


def _is_hub_id(text: str) -> bool:
    return bool(HUB_ID.fullmatch(text)) and not Path(text).suffix
