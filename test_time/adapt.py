"""Adapts a model to a set of problems: votes, training, votes again, evaluation; a killed adaptation goes on."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.gold_split import PromptOnly
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.model_files import ensure_model
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.metrics import StepRow
from restrain_openrlhf.run.reference_pass import sample_reference
from test_time.comparison import compare
from test_time.evaluation import BASE_RESPONSES, Policy, check_gold, evaluate, gold_of
from test_time.job import Adaptation, AdaptationFolder
from test_time.outcome import Outcome
from test_time.plan import Plan, make_plan
from test_time.predictions import predictions
from test_time.problems import load_problems
from test_time.report import write_report
from test_time.training import Trained, train_watched


@dataclass(frozen=True)
class Listener:
    """Whom an adaptation tells what it is doing: a phase's name, and each training step with the number of steps."""

    phase: Callable[[str], None] = lambda _name: None
    step: Callable[[StepRow, int], None] = lambda _row, _total: None


def adapt(job: Adaptation, listener: Listener = Listener()) -> Outcome:
    """Adapt the model, or go on where it was stopped; all that is written lies under `job.out`.

    Raises a RestrainError for bad input before anything heavy starts, RunError with the log's end if a part fails, or
    where another process works in the same folder.
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
    _vote(job, plan.config, job.model, folder.before)
    listener.phase("starting Ray and vLLM")
    trained = train_watched(job, plan.config, listener.step)
    listener.phase("the adapted model votes")
    _vote(job, plan.config, str(trained.chosen.path) if trained.chosen else job.model, folder.after)
    ids = [problem.id for problem in read_rows(folder.problems, PromptOnly)]
    rows = predictions(load_reference(folder.before), load_reference(folder.after), ids)
    write_rows(folder.predictions, rows)
    outcome = _outcome(job, plan, trained, sum(row.changed for row in rows), listener)
    outcome.write(folder.result)
    write_report(folder, outcome)
    return outcome


def _vote(job: Adaptation, config: RunConfig, model: str, out: Path) -> None:
    """One vote per problem, sampled as in training, in a process of its own."""
    sample_reference(config, out, n=job.votes, model=model)


def _outcome(job: Adaptation, plan: Plan, trained: Trained, changed: int, listener: Listener) -> Outcome:
    folder = AdaptationFolder(job.out)
    before, after = load_reference(folder.before), load_reference(folder.after)
    policies = _policies(job, trained)
    evaluated = job.has_gold or job.heldout
    scores = (
        evaluate(job, plan.config, policies, plan.boxed, lambda name: listener.phase(f"evaluating the {name}"))
        if evaluated
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
    """The base model, the model whose answers are handed back, and the best by signals without gold."""
    found = [Policy("base model", job.model, BASE_RESPONSES)]
    if trained.chosen is not None:
        found.append(Policy("adapted model", str(trained.chosen.path)))
    if trained.best is not None and trained.best != trained.chosen:
        found.append(Policy("best by signal", str(trained.best.path)))
    return found
