"""Adapts a model to one set of problems or several: votes, training, votes again, evaluation. A killed one resumes."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.model_files import ensure_model
from restrain_openrlhf.errors import ConfigError, RestrainError, RunError
from restrain_openrlhf.records.collapse import read_collapse
from restrain_openrlhf.records.folder import VOTES_BEFORE, RunFolder
from restrain_openrlhf.records.metrics import StepRow
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.reference.offline_pass import sample_reference
from test_time.accuracy import BASE, BASE_RESPONSES, TEST, Policy, check_gold, gold_of, measure
from test_time.adaptation import (
    PREDICTIONS,
    VOTE_TEMPERATURE,
    VOTE_TOP_P,
    Adaptation,
    Plan,
    make_plan,
    write_prompts,
)
from test_time.outcome import Outcome, Prediction, compare, predictions
from test_time.problems import load_problems
from test_time.report import write_report, write_sweep
from test_time.training import Trained, train_watched


@dataclass(frozen=True)
class AdaptListener:
    """Callbacks: `phase` gets the name of each phase, `step` each training step and the number of steps in all."""

    phase: Callable[[str], None] = lambda _name: None
    step: Callable[[StepRow, int], None] = lambda _row, _total: None


def adapt(job: Adaptation, listener: AdaptListener = AdaptListener()) -> Outcome:
    """Adapt the model, or resume; all output is written to `job.out`.

    Raises a RestrainError for bad input before a model is loaded. Raises RunError with the last lines of the log if a
    phase fails, and if another process works in the same folder.
    """
    listener.phase("checking the model and the problems")
    problems = load_problems(job.problems)
    check_gold(job, [problem.id for problem in problems])
    plan = make_plan(job, problems)
    # Weights are fetched last: hours for a large model.
    ensure_model(job.model)
    lock = RunFolder(job.out).lock()
    try:
        write_prompts(job, plan)
        return _adapt(job, plan, listener)
    finally:
        os.close(lock)


def sweep(
    jobs: Sequence[Adaptation], out: Path, listening: Callable[[str], AbstractContextManager[AdaptListener]]
) -> list[Outcome]:
    """Adapt to each set in turn; a set that fails does not stop the others. Writes sweep.html and sweep.csv.

    `listening` opens the listener of one set. Raises ConfigError for two sets of one name, RunError in the end naming
    those that failed.
    """
    names = [job.problems.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two of the sets are called {name!r}, and would share a folder. Rename one file.")
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for job in jobs:
        try:
            with listening(job.problems.name) as listener:
                outcomes.append(adapt(job, listener))
        except RestrainError as error:
            failed.append(f"{job.problems.name}: {error}")
        write_sweep(out, outcomes)
    if failed:
        words = "\n".join(failed)
        raise RunError(f"{len(failed)} of {len(jobs)} sets failed; the others are in {out / 'sweep.html'}.\n{words}")
    return outcomes


def _adapt(job: Adaptation, plan: Plan, listener: AdaptListener) -> Outcome:
    listener.phase("the base model votes")
    sample_reference(plan.config, job.out / VOTES_BEFORE, n=job.votes)
    before = load_reference(job.out / VOTES_BEFORE)
    # What an answer is compared with: only the policy differs, so that a changed one was changed by the training.
    as_answers = (before.provenance.temperature, before.provenance.top_p) == (VOTE_TEMPERATURE, VOTE_TOP_P)
    base = before if as_answers else _vote(job, plan, job.model, "base_vote.jsonl")
    listener.phase("starting Ray and vLLM")
    trained = train_watched(plan.config, job.stop, before, listener.step)
    listener.phase("the adapted model votes")
    after = _vote(job, plan, str(trained.chosen.path) if trained.chosen else job.model, "after.jsonl")
    rows = predictions(base, after, [problem.id for problem in plan.problems])
    write_rows(job.out / PREDICTIONS, rows)
    outcome = _outcome(job, plan, trained, rows, listener)
    outcome.write(job.out / "result.json")
    write_report(job, outcome, rows)
    return outcome


def _vote(job: Adaptation, plan: Plan, model: str, name: str) -> Reference:
    """The votes of `model` that give answers, in a process of its own (machine/processes.py)."""
    out = job.out / name
    sample_reference(plan.config, out, n=job.votes, model=model, temperature=VOTE_TEMPERATURE, top_p=VOTE_TOP_P)
    return load_reference(out)


def _outcome(
    job: Adaptation, plan: Plan, trained: Trained, rows: Sequence[Prediction], listener: AdaptListener
) -> Outcome:
    """Evaluated where there is gold of any set."""
    evaluated = job.has_gold or bool(job.heldout)
    policies = _policies(job, trained) if evaluated else []
    scores = measure(job, plan, policies, lambda name: listener.phase(f"evaluating the {name}")) if evaluated else []
    greedy = next((score.greedy for score in scores if (score.benchmark, score.policy) == (TEST, BASE)), None)
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
        collapse=read_collapse(job.training.path),
        chosen_step=trained.chosen.step if trained.chosen else 0,
        chosen_model=str(trained.chosen.path) if trained.chosen else job.model,
        best_step=trained.best.step if trained.best else 0,
        best_model=str(trained.best.path) if trained.best else job.model,
        votes=job.votes,
        vote_temperature=VOTE_TEMPERATURE,
        vote_top_p=VOTE_TOP_P,
        changed=sum(row.changed for row in rows),
        comparison=None if greedy is None else compare(rows, gold_of(job), greedy),
        scores=tuple(scores),
        heldout=tuple(source.name for source in job.heldout),
    )


def _policies(job: Adaptation, trained: Trained) -> list[Policy]:
    """The base model, the model whose answers are in predictions.jsonl, and the best by signals without gold."""
    found = [Policy(BASE, job.model, BASE_RESPONSES)]
    if trained.chosen is not None:
        found.append(Policy("adapted model", str(trained.chosen.path)))
    if trained.best is not None and trained.best != trained.chosen:
        found.append(Policy("best by signal", str(trained.best.path)))
    return found
