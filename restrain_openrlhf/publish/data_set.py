"""The prompts of a run: their set, how many, and their digest, from what lies beside them."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.data.identity import set_digest
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.publish.private import HUB_ID, without_paths
from restrain_openrlhf.publish.trained_run import TrainedRun
from restrain_openrlhf.reference.artifact import ReferenceProvenance


@dataclass(frozen=True)
class DataSet:
    """`name` as a reader may know it, `hub_id` where it is from the hub. None: the files are not here any more."""

    name: str
    hub_id: str | None
    licence: str | None
    count: int | None
    digest: str | None


class _AnyRow(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


def describe_data(run: TrainedRun) -> DataSet:
    """From the description that `restrain data prepare` wrote, else the prompts themselves, else the offline pass."""
    named = str(run.flag("data.prompt_dataset") or "")
    if named and HUB_ID.fullmatch(named) and not Path(named).exists() and not Path(named).suffix:
        return DataSet(named, named, None, *_of_the_pass(run))
    path = _found(run, Path(named))
    about = _prepared(path)
    if about is not None:
        hub_id = about.source.split(" (")[0].split(",")[0]
        is_hub = bool(HUB_ID.fullmatch(hub_id)) and not Path(hub_id).suffix
        return DataSet(about.name, hub_id if is_hub else None, about.licence, about.count, about.digest)
    name = run.adapted.name if run.adapted else without_paths(named)
    return DataSet(
        name, None, None, *(_of_the_prompts(path, str(run.flag("data.input_key") or "problem")) or _of_the_pass(run))
    )


def _found(run: TrainedRun, path: Path) -> Path:
    """The prompts of a test-time run lie in its folder, wherever that is now."""
    inside = run.path / "prompts.jsonl"
    return inside if run.adapted and inside.exists() else path


def _prepared(path: Path) -> Prepared | None:
    about = path.with_name(f"{path.stem}.about.json") if path.name else path
    if not about.is_file():
        return None
    try:
        return Prepared.model_validate_json(about.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise DataError(f"{about}: {error.errors()[0]['msg']}. Make it again with `restrain data prepare`.") from None


def _of_the_prompts(path: Path, column: str) -> tuple[int, str] | None:
    """None where they are not here, or in another form than ours."""
    if not path.is_file():
        return None
    try:
        found = [(row.model_extra or {})[column] for row in read_rows(path, _AnyRow)]
    except (DataError, KeyError):
        return None
    return len(found), set_digest(map(str, found))


def _of_the_pass(run: TrainedRun) -> tuple[int | None, str | None]:
    """How many, where an offline pass was made; its own hash is of prompts in their template."""
    provenance = offline_provenance(run)
    return (provenance.prompt_count if provenance else None, None)


def offline_provenance(run: TrainedRun) -> ReferenceProvenance | None:
    """What the run's offline pass was made with; None where it has none here."""
    named = run.resolved.get("reference")
    places = [run.path / Path(named).name, Path(named)] if named else []
    for place in places:
        try:
            return ReferenceProvenance.of(place)
        except ReferencePassError:
            continue
    return None
