"""What a run was made from: its base model, with the licence and the notices that go with it, and its prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from restrain_openrlhf.commands.publish.private import HUB_ID, without_paths
from restrain_openrlhf.commands.publish.trained_run import TrainedRun
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.errors import ConfigError, DataError

CARD = "README.md"
NOTICES = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")


@dataclass(frozen=True)
class BaseModel:
    """`id` on the hub, None where it is not known; `shown` is what the card calls it. `notices` are files.

    `licence` None: nothing here says which one it is. Its link and name are given where the hub has no word for it.
    """

    id: str | None
    shown: str
    licence: str | None = None
    licence_name: str | None = None
    licence_link: str | None = None
    notices: Sequence[Path] = ()


@dataclass(frozen=True)
class DataSet:
    """`name` as a reader may know it, `hub_id` where it is from the hub; None for what nothing here says."""

    name: str
    hub_id: str | None = None
    licence: str | None = None
    count: int | None = None
    digest: str | None = None


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
    name = card.get("license")
    return BaseModel(
        id=known,
        shown=known or f"a local model called {Path(model).name}",
        licence=name if isinstance(name, str) else None,
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


def describe_data(run: TrainedRun) -> DataSet:
    """From the description that `restrain data prepare` wrote beside the prompts; without one, their name alone."""
    named = str(run.flag("data.prompt_dataset") or "")
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
