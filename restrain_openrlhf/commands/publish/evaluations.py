"""The accuracies on a card: of the published model, and of the base model beside it, on the same problems."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.commands.publish.trained_run import Accuracy, Adapted, TrainedRun
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ReferencePassError, RunError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.reference.artifact import ReferenceProvenance

OWN = "evaluation"
# The names under which `test-time adapt` keeps scores.
BASE, ADAPTED, TEST = "base model", "adapted model", "test"


@dataclass(frozen=True)
class AccuracyLine:
    """One benchmark. `base` is None where the base model was not evaluated on it."""

    benchmark: str
    problems: int
    how: str
    trained: Accuracy
    base: Accuracy | None


def collect(run: TrainedRun, folders: Sequence[Path], base_folders: Sequence[Path]) -> list[AccuracyLine]:
    """What `restrain eval` measured (by default in the run's evaluation/), and a test-time run's own scores.

    Raises RunError for an evaluation of another model, one that is not finished, and a base on other problems.
    """
    own = run.path / OWN
    # A test-time run keeps evaluations of several policies there; their numbers are among its scores.
    folders = folders or ([own] if own.is_dir() and run.adapted is None else [])
    trained = [(folder, each) for folder in folders for each in load_results(folder)]
    base = [(folder, each) for folder in base_folders for each in load_results(folder)]
    fingerprint, of_base = model_fingerprint(str(run.model)), _base_fingerprint(run)
    for folder, each in trained:
        if (found := each.provenance.model_fingerprint) != fingerprint:
            raise RunError(
                f"{folder}: {each.provenance.benchmark} is an evaluation of another model ({each.provenance.model}). "
                "Name the one of the published model with --evaluation, or run `restrain eval` on it."
            )
    known = {each.provenance.problems_digest for _, each in trained}
    for folder, each in base:
        found = each.provenance.model_fingerprint
        if found == fingerprint or of_base not in (None, found):
            raise RunError(
                f"{folder}: {each.provenance.benchmark} is no evaluation of the base model, but of "
                f"{each.provenance.model}. Name another with --base-evaluation."
            )
        if each.provenance.problems_digest not in known:
            raise RunError(
                f"--base-evaluation: {each.provenance.benchmark} has other problems than the published model's "
                "evaluations, so the two cannot stand beside each other. Evaluate both on the same benchmarks."
            )
    beside = [each for _, each in base]
    return [*(_line(each, beside) for _, each in trained), *(_adapted_lines(run.adapted) if run.adapted else ())]


def _base_fingerprint(run: TrainedRun) -> str | None:
    """The model's that made the run's offline pass; None where it has none here."""
    named = run.resolved.get("reference")
    for place in [run.path / Path(named).name, Path(named)] if named else []:
        with suppress(ReferencePassError):
            return ReferenceProvenance.of(place).model_fingerprint
    return None


def _line(trained: Result, base: Sequence[Result]) -> AccuracyLine:
    how = trained.provenance
    beside = next((each for each in base if each.provenance.problems_digest == how.problems_digest), None)
    words = f"T {how.temperature:g}, top-p {how.top_p:g}, n {how.n}, up to {how.max_new_tokens} tokens, {how.template}"
    return AccuracyLine(how.title, how.problems, words, _accuracy(trained), _accuracy(beside) if beside else None)


def _accuracy(result: Result) -> Accuracy:
    scores, n = result.scores, result.provenance.n
    return Accuracy(pass_at_1=scores.pass_at_1, low=scores.low, high=scores.high, majority=scores.maj_at_k[n], n=n)


def _adapted_lines(adapted: Adapted) -> Iterator[AccuracyLine]:
    base = {each.benchmark: each for each in adapted.scores if each.policy == BASE}
    for each in adapted.scores:
        if each.policy == ADAPTED:
            of_test = f"{adapted.name} (adapted to, without its answers)"
            name = of_test if each.benchmark == TEST else f"{each.benchmark} (held out)"
            yield AccuracyLine(name, each.problems, f"T 0.6, top-p 0.95, n {each.n}", each, base.get(each.benchmark))
