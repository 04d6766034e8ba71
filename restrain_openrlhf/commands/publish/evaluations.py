"""The accuracies on a card: of the published model, and of the base model beside it, on the same problems."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from restrain_openrlhf.commands.publish.trained_run import TrainedRun
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ReferencePassError, RunError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.reference.artifact import ReferenceProvenance

OWN = "evaluation"


def collect(
    run: TrainedRun, folders: Sequence[Path], base_folders: Sequence[Path]
) -> list[tuple[Result, Result | None]]:
    """What `restrain eval` measured (by default in the run's evaluation/), with the base model's on the same problems.

    Raises RunError for an evaluation of another model, one that is not finished, and a base on other problems.
    """
    own = run.path / OWN
    folders = folders or ([own] if own.is_dir() else [])
    fingerprint = model_fingerprint(str(run.model))
    trained = [_of_model(folder, each, fingerprint) for folder in folders for each in load_results(folder)]
    problems = {each.provenance.problems_digest for each in trained}
    of_base, base = _base_fingerprint(run), dict[str, Result]()
    for folder in base_folders:
        for each in load_results(folder):
            _refuse_other_base(folder, each, fingerprint, of_base)
            if each.provenance.problems_digest not in problems:
                raise RunError(
                    f"--base-evaluation: {each.provenance.benchmark} has other problems than the published model's "
                    "evaluations, so the two cannot stand beside each other. Evaluate both on the same benchmarks."
                )
            base.setdefault(each.provenance.problems_digest, each)
    return [(each, base.get(each.provenance.problems_digest)) for each in trained]


def _of_model(folder: Path, result: Result, fingerprint: str) -> Result:
    how = result.provenance
    if how.model_fingerprint != fingerprint:
        raise RunError(
            f"{folder}: {how.benchmark} is an evaluation of another model ({how.model}). Name the one of the published "
            "model with --evaluation, or run `restrain eval` on it."
        )
    return result


def _refuse_other_base(folder: Path, result: Result, trained: str, base: str | None) -> None:
    how = result.provenance
    if how.model_fingerprint == trained or base not in (None, how.model_fingerprint):
        raise RunError(
            f"{folder}: {how.benchmark} is no evaluation of the base model, but of {how.model}. Name another with "
            "--base-evaluation."
        )


def _base_fingerprint(run: TrainedRun) -> str | None:
    """The model's that made the run's offline pass; None where it has none here."""
    named = run.resolved.get("reference")
    for place in [run.path / Path(named).name, Path(named)] if named else []:
        with suppress(ReferencePassError):
            return ReferenceProvenance.of(place).model_fingerprint
    return None
