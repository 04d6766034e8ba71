"""The accuracies on a card: of the published model, and of the base model beside it, on the same problems."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.identity import earlier_fingerprint, model_fingerprint
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.publish.trained_run import AdaptedScore, TrainedRun

OWN = "evaluation"
# The names under which `test-time adapt` keeps scores.
BASE, ADAPTED, TEST = "base model", "adapted model", "test"


@dataclass(frozen=True)
class Numbers:
    """pass@1 in [0, 1] with its 95 % interval, and maj@k of k responses."""

    pass_at_1: float
    low: float
    high: float
    majority: float
    k: int


@dataclass(frozen=True)
class Line:
    """One benchmark. `base` is None where the base model was not evaluated on it."""

    benchmark: str
    problems: int
    how: str
    trained: Numbers
    base: Numbers | None


def collect(
    run: TrainedRun, folders: Sequence[Path], base_folders: Sequence[Path], base_fingerprint: str | None
) -> list[Line]:
    """What `restrain eval` measured (by default in the run's evaluation/), and a test-time run's own scores.

    Raises RunError for an evaluation of another model, one that is not finished, and a base on other problems.
    """
    own = run.path / OWN
    # A test-time run keeps evaluations of several policies there; their numbers are among its scores.
    found = folders or ([own] if own.is_dir() and run.adapted is None else [])
    fingerprint = model_fingerprint(str(run.model))
    trained = [each for folder in found for each in _of_model(folder, fingerprint)]
    base = [each for folder in base_folders for each in _of_base(folder, fingerprint, base_fingerprint)]
    _refuse_unpaired(trained, base)
    return [*(_line(each, base) for each in trained), *_adapted_lines(run)]


def _of_model(folder: Path, fingerprint: str) -> list[Result]:
    results = load_results(folder)
    for each in results:
        if each.provenance.model_fingerprint != fingerprint:
            raise RunError(
                f"{folder}: {each.provenance.benchmark} is an evaluation of another model ({each.provenance.model}). "
                "Name the one of the published model with --evaluation, or run `restrain eval` on it."
                f"{earlier_fingerprint(each.provenance.model_fingerprint)}"
            )
    return results


def _of_base(folder: Path, trained: str, base: str | None) -> list[Result]:
    results = load_results(folder)
    for each in results:
        found = each.provenance.model_fingerprint
        if found == trained or base not in (None, found):
            raise RunError(
                f"{folder}: {each.provenance.benchmark} is no evaluation of the base model, but of "
                f"{each.provenance.model}. Name another with --base-evaluation."
                f"{earlier_fingerprint(found)}"
            )
    return results


def _refuse_unpaired(trained: Sequence[Result], base: Sequence[Result]) -> None:
    known = {each.provenance.problems_digest for each in trained}
    for each in base:
        if each.provenance.problems_digest not in known:
            raise RunError(
                f"--base-evaluation: {each.provenance.benchmark} has other problems than the published model's "
                "evaluations, so the two cannot stand beside each other. Evaluate both on the same benchmarks."
            )


def _line(trained: Result, base: Sequence[Result]) -> Line:
    how = trained.provenance
    beside = next((each for each in base if each.provenance.problems_digest == how.problems_digest), None)
    words = f"T {how.temperature:g}, top-p {how.top_p:g}, n {how.n}, up to {how.max_new_tokens} tokens, {how.template}"
    return Line(how.title, how.problems, words, _numbers(trained), _numbers(beside) if beside else None)


def _numbers(result: Result) -> Numbers:
    scores, n = result.scores, result.provenance.n
    return Numbers(scores.pass_at_1, scores.low, scores.high, scores.maj_at_k[n], n)


def _adapted_lines(run: TrainedRun) -> list[Line]:
    scores = run.adapted.scores if run.adapted else ()
    base = {each.benchmark: _of_score(each) for each in scores if each.policy == BASE}
    name = run.adapted.name if run.adapted else ""
    return [
        Line(
            f"{name} (adapted to, without its answers)" if each.benchmark == TEST else f"{each.benchmark} (held out)",
            each.problems,
            f"T 0.6, top-p 0.95, n {each.n}",
            _of_score(each),
            base.get(each.benchmark),
        )
        for each in scores
        if each.policy == ADAPTED
    ]


def _of_score(score: AdaptedScore) -> Numbers:
    return Numbers(score.pass_at_1, score.low, score.high, score.majority, score.n)
