"""Adapts a model to a set of problems: votes, training, votes again, evaluation. A killed adaptation resumes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.model_files import ensure_model
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.run.collapse import read_collapse
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.run.reference_pass import sample_reference
from test_time.accuracy import BASE, BASE_RESPONSES, TEST, Policy, Score, check_gold, gold_of, measure
from test_time.adaptation import VOTE_TEMPERATURE, VOTE_TOP_P, Adaptation, AdaptationFolder
from test_time.outcome import Comparison, Outcome, Prediction, compare, predictions
from test_time.plan import Plan, configure, make_plan
from test_time.problems import load_problems
from test_time.report import write_report
from test_time.training import Trained, train_watched


@dataclass(frozen=True)
class Listener:
    """Callbacks: `phase` gets the name of each phase, `step` each training step and the number of steps in all."""

    phase: Callable[[str], None] = lambda _name: None
    step: Callable[[StepRow, int], None] = lambda _row, _total: None


def adapt(job: Adaptation, listener: Listener = Listener()) -> Outcome:
    """Adapt the model, or resume; all output is written to `job.out`.

    Raises a RestrainError for bad input before a model is loaded. Raises RunError with the last lines of the log if a
    phase fails, and if another process works in the same folder.
    """
    listener.phase("checking the model and the problems")
    problems = load_problems(job.problems)
    check_gold(job, [problem.id for problem in problems])
    configured = configure(job, len(problems))
    # Weights are fetched last: hours for a large model.
    ensure_model(job.model)
    lock = RunFolder(job.out).lock()
    try:
        return _adapt(job, make_plan(job, problems, configured), listener)
    finally:
        os.close(lock)


def _adapt(job: Adaptation, plan: Plan, listener: Listener) -> Outcome:
    folder = AdaptationFolder(job.out)
    listener.phase("the base model votes")
    sample_reference(plan.config, folder.before, n=job.votes)
    before = load_reference(folder.before)
    base = _base_vote(job, plan, before)
    listener.phase("starting Ray and vLLM")
    trained = train_watched(job, plan.config, before, listener.step)
    listener.phase("the adapted model votes")
    after = _vote(job, plan, str(trained.chosen.path) if trained.chosen else job.model, folder.after)
    rows = predictions(base, after, [problem.id for problem in plan.problems])
    write_rows(folder.predictions, rows)
    outcome = _outcome(job, plan, trained, rows, listener)
    outcome.write(folder.result)
    write_report(folder, outcome, rows)
    return outcome


def _vote(job: Adaptation, plan: Plan, model: str, out: Path) -> Reference:
    """The votes of `model` that give answers, in a process of its own (run/processes.py)."""
    sample_reference(plan.config, out, n=job.votes, model=model, temperature=VOTE_TEMPERATURE, top_p=VOTE_TOP_P)
    return load_reference(out)


def _base_vote(job: Adaptation, plan: Plan, before: Reference) -> Reference:
    """What an answer is compared with: only the policy differs, so that a changed one was changed by the training."""
    made = before.provenance
    if (made.temperature, made.top_p) == (VOTE_TEMPERATURE, VOTE_TOP_P):
        return before
    return _vote(job, plan, job.model, AdaptationFolder(job.out).base_vote)


def _outcome(job: Adaptation, plan: Plan, trained: Trained, rows: Sequence[Prediction], listener: Listener) -> Outcome:
    scores = (
        measure(job, plan, _policies(job, trained), lambda name: listener.phase(f"evaluating the {name}"))
        if job.has_gold or job.heldout
        else []
    )
    return Outcome(
        name=job.problems.name,
        model=job.model,
        method=plan.config.method.name,
        configuration=str(plan.source),
        problems=len(rows),
        steps=trained.steps,
        alarm=str(trained.alarm) if trained.alarm else None,
        ended_early=trained.ended_early,
        unwatched=trained.unwatched,
        collapse=read_collapse(AdaptationFolder(job.out).training.path),
        chosen_step=trained.chosen.step if trained.chosen else 0,
        chosen_model=str(trained.chosen.path) if trained.chosen else job.model,
        best_step=trained.best.step if trained.best else 0,
        best_model=str(trained.best.path) if trained.best else job.model,
        votes=job.votes,
        vote_temperature=VOTE_TEMPERATURE,
        vote_top_p=VOTE_TOP_P,
        changed=sum(row.changed for row in rows),
        comparison=_comparison(job, rows, scores) if job.has_gold else None,
        scores=tuple(scores),
        heldout=tuple(source.name for source in job.heldout),
    )


def _comparison(job: Adaptation, rows: Sequence[Prediction], scores: Sequence[Score]) -> Comparison:
    base = next(score for score in scores if (score.benchmark, score.policy) == (TEST, BASE))
    return compare(rows, gold_of(job), base.greedy)


def _policies(job: Adaptation, trained: Trained) -> list[Policy]:
    """The base model, the model whose answers are in predictions.jsonl, and the best by signals without gold."""
    found = [Policy(BASE, job.model, BASE_RESPONSES)]
    if trained.chosen is not None:
        found.append(Policy("adapted model", str(trained.chosen.path)))
    if trained.best is not None and trained.best != trained.chosen:
        found.append(Policy("best by signal", str(trained.best.path)))
    return found
