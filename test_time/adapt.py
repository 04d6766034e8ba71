"""Adapts a model to a set of problems: votes, training, votes again, evaluation. A killed adaptation resumes."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.model_files import ensure_model
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.run.collapse import read_collapse
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.run.reference_pass import sample_reference
from test_time.accuracy import BASE_RESPONSES, Policy, check_gold, compare, gold_of, measure
from test_time.adaptation import Adaptation, AdaptationFolder
from test_time.outcome import Outcome, predictions
from test_time.plan import Plan, make_plan
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
    ensure_model(job.model)
    problems = load_problems(job.problems)
    check_gold(job, [problem.id for problem in problems])
    lock = RunFolder(job.out).lock()
    try:
        return _adapt(job, make_plan(job, problems), listener)
    finally:
        os.close(lock)


def _adapt(job: Adaptation, plan: Plan, listener: Listener) -> Outcome:
    folder = AdaptationFolder(job.out)
    listener.phase("the base model votes")
    before = _vote(job, plan.config, job.model, folder.before)
    listener.phase("starting Ray and vLLM")
    trained = train_watched(job, plan.config, before, listener.step)
    listener.phase("the adapted model votes")
    after = _vote(job, plan.config, str(trained.chosen.path) if trained.chosen else job.model, folder.after)
    rows = predictions(before, after, [problem.id for problem in plan.problems])
    write_rows(folder.predictions, rows)
    outcome = _outcome(job, plan, trained, (before, after), sum(row.changed for row in rows), listener)
    outcome.write(folder.result)
    write_report(folder, outcome, rows)
    return outcome


def _vote(job: Adaptation, config: RunConfig, model: str, out: Path) -> Reference:
    """The votes of `model`, sampled as in training, in a process of its own (run/processes.py)."""
    sample_reference(config, out, n=job.votes, model=model)
    return load_reference(out)


def _outcome(
    job: Adaptation, plan: Plan, trained: Trained, votes: tuple[Reference, Reference], changed: int, listener: Listener
) -> Outcome:
    before, after = votes
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
        problems=len(before.rows),
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
        changed=changed,
        comparison=compare(before.rows, after.rows, gold_of(job)) if job.has_gold else None,
        scores=tuple(scores),
        heldout=tuple(source.name for source in job.heldout),
    )


def _policies(job: Adaptation, trained: Trained) -> list[Policy]:
    """The base model, the model whose answers are in predictions.jsonl, and the best by signals without gold."""
    found = [Policy("base model", job.model, BASE_RESPONSES)]
    if trained.chosen is not None:
        found.append(Policy("adapted model", str(trained.chosen.path)))
    if trained.best is not None and trained.best != trained.chosen:
        found.append(Policy("best by signal", str(trained.best.path)))
    return found
