"""The base model of a run: its name on the hub, its licence, and the notices that go with it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.publish.private import HUB_ID

# As huggingface_hub names a model's folder in its cache.
IN_CACHE = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
NOTICES = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")
ON_HUB = ("LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt", "USE_POLICY.md")


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


def describe_base(model: str, hub_id: str | None = None) -> BaseModel:
    """The model that `actor.model_name_or_path` names; `hub_id` is the user's word for which one of the hub it is.

    Raises ConfigError for a `hub_id` that is none.
    """
    if hub_id is not None and not HUB_ID.fullmatch(hub_id):
        raise ConfigError(f"--base-model {hub_id!r}: is no id on the hub. Give OWNER/NAME.")
    folder = Path(model) if Path(model).is_dir() else None
    known = hub_id or _id_of(model, folder)
    card = _card_data(folder, known)
    name = card.get("license")
    return BaseModel(
        id=known,
        shown=known or f"a local model called {Path(model).name}",
        licence=name if isinstance(name, str) else None,
        licence_name=card.get("license_name"),
        licence_link=card.get("license_link"),
        notices=_notices(folder, known if card else None),
    )


def _id_of(model: str, folder: Path | None) -> str | None:
    cached = IN_CACHE.search(model)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    if folder is None:
        return model if HUB_ID.fullmatch(model) else None
    named = _config(folder).get("_name_or_path", "")
    return named if isinstance(named, str) and HUB_ID.fullmatch(named) and not Path(named).exists() else None


def _card_data(folder: Path | None, hub_id: str | None) -> dict[str, Any]:
    """The front matter of the base's card: of its folder or of the hub; else config.json's licence."""
    from huggingface_hub import ModelCard  # noqa: PLC0415 - costs a second

    if folder is not None and (folder / "README.md").exists():
        return _front_matter(ModelCard.load(folder / "README.md", ignore_metadata_errors=True))
    if folder is not None and "license" in _config(folder):
        return {"license": _config(folder)["license"]}
    path = _from_hub(hub_id, "README.md") if hub_id else None
    return _front_matter(ModelCard.load(path, ignore_metadata_errors=True)) if path else {}


def _front_matter(card: Any) -> dict[str, Any]:
    found: dict[str, Any] = card.data.to_dict()
    return found


def _notices(folder: Path | None, hub_id: str | None) -> tuple[Path, ...]:
    """Of the folder; of the hub where it has answered before."""
    if folder is not None:
        return tuple(sorted({path for pattern in NOTICES for path in folder.glob(pattern)}))
    found = (_from_hub(hub_id, name) for name in ON_HUB) if hub_id else ()
    return tuple(path for path in found if path is not None)


def _from_hub(hub_id: str, name: str) -> Path | None:
    """None where there is no such file, or the hub cannot be asked: then the card says that the licence is unknown."""
    import httpx  # noqa: PLC0415 - see model_files.py
    from huggingface_hub import hf_hub_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(hf_hub_download(hub_id, name))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError):
        return None


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
