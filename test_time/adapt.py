"""Adapts a model to a set of problems: votes, training, votes again, evaluation. A killed adaptation can be resumed."""

import os
from collections.abc import Mapping, Sequence

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.data.identity import ensure_model
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.hook.launch.progress import OnPhase, OnStep, numbered
from restrain_openrlhf.hook.launch.stop_rules import saved_models
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.records.folder import VOTES_BEFORE, Completion, RunFolder
from restrain_openrlhf.records.metrics import read_steps
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.reference.offline_pass import OnProgress, sample_reference
from test_time.adaptation import (
    PREDICTIONS,
    VOTE_TEMPERATURE,
    VOTE_TOP_P,
    Adaptation,
    Plan,
    make_plan,
    write_prompts,
)
from test_time.outcome import (
    ADAPTED,
    BASE,
    Outcome,
    Prediction,
    compare,
    gold_of,
    graded_rows,
    predictions,
    worth,
)
from test_time.problems import load_problems
from test_time.report import write_report

TAKES_TEMPLATE = (
    "Prompts go through the chat template of the model's tokenizer, because the configuration does not say whether to "
    f"use it. --set openrlhf.{CHAT_TEMPLATE}=true or =false says so."
)


def adapt(
    job: Adaptation,
    on_phase: OnPhase = lambda _name: None,
    on_step: OnStep = lambda _row, _of: None,
    say: OnPhase = lambda _text: None,
) -> Outcome:
    """Adapt the model, or resume the adaptation. All output is written to `job.out`.

    `on_phase` gets the name of each phase, `on_step` each training step with the total number of steps, and `say` what
    a user should know at once, such as what was read as problems. Raises a RestrainError for bad input before a model
    is loaded, ReferencePassError if most of the base model's rollouts have no answer, and RunError if a phase fails
    (with the log's last lines) or another process works in the same folder.
    """
    on_phase = numbered(on_phase, 4 + 2 * job.has_gold)
    on_phase("checking the model and the problems")
    reader = job.problems.reader()
    problems = load_problems(job.problems, job.kind or MATHEMATICS, reader=reader)
    if not job.problems.is_benchmark:
        say(reader.summary())
    gold = gold_of(job, problems) if job.has_gold else None
    make_plan(job, problems)
    # Weights are downloaded last, because that can take hours for a large model.
    ensure_model(job.model)
    # Only now it is sure whether the model has a chat template.
    plan = make_plan(job, problems)
    if plan.takes_template:
        say(TAKES_TEMPLATE)
    lock = RunFolder(job.out).lock()
    try:
        write_prompts(job, plan)
        return _adapt(job, plan, gold, on_phase, on_step, say)
    finally:
        os.close(lock)


def _adapt(
    job: Adaptation, plan: Plan, gold: Mapping[str, str] | None, on_phase: OnPhase, on_step: OnStep, say: OnPhase
) -> Outcome:
    on_phase("the base model votes")
    sample_reference(
        plan.config, job.out / VOTES_BEFORE, _progress(say, f"{job.votes} rollouts of the base model"), n=job.votes
    )
    before = load_reference(job.out / VOTES_BEFORE)
    before.refuse_missing(plan.config.missing_limit)
    # The base model's answers are sampled like the adapted model's, so that an answer that changes was changed by
    # training.
    as_answers = (before.provenance.temperature, before.provenance.top_p) == (VOTE_TEMPERATURE, VOTE_TOP_P)
    base = before if as_answers else _vote(job, plan, job.model, "base_vote.jsonl", say)
    base.refuse_missing(plan.config.missing_limit)
    on_phase("training, beginning with Ray and vLLM")
    ended = train(plan.config, on_step).completion()
    assert ended is not None, "train returns completed runs"
    chosen = ended.chosen_model
    assert chosen is not None, "a plan has stop rules, by which train judges the run"
    if ended.ending:
        say(f"{ended.ending} Its votes are the answers.")
    on_phase("the adapted model votes")
    after = _vote(job, plan, chosen, "after.jsonl", say)
    last_step, last = _last_vote(job, plan, ended, say)
    answers = predictions(base, after, [problem.id for problem in plan.problems], plan.config.answers, last)
    write_rows(job.out / PREDICTIONS, answers)
    outcome = _outcome(job, plan, ended, answers, last_step)
    if gold is not None:
        outcome = _with_worth(job, plan, outcome, answers, gold, {BASE: base, ADAPTED: after}, on_phase, say)
    write_whole(job.out / "result.json", outcome.model_dump_json(indent=2) + "\n")
    write_report(job, outcome, answers)
    return outcome


def _progress(say: OnPhase, what: str) -> OnProgress:
    return lambda done, total: say(f"{what}: {done} of {total} problems")


def _vote(job: Adaptation, plan: Plan, model: str, name: str, say: OnPhase, **drawn: float) -> Reference:
    """The votes of `model` that give answers, drawn in a process of their own; `drawn` is other than theirs."""
    how = {"n": job.votes, "temperature": VOTE_TEMPERATURE, "top_p": VOTE_TOP_P, **drawn}
    what = f"{how['n']} rollout{'s' if how['n'] > 1 else ''} of {'the base model' if model == job.model else model}"
    sample_reference(plan.config, job.out / name, _progress(say, what), model=model, **how)
    return load_reference(job.out / name)


def _last_vote(job: Adaptation, plan: Plan, ended: Completion, say: OnPhase) -> tuple[int | None, Reference | None]:
    """The step and the votes of the newest model, if the answers are those of an earlier one."""
    models = saved_models(job.training, read_steps(job.training.metrics), ended)
    newest = max(models, default=0)
    if newest <= (ended.chosen_step or 0):
        return None, None
    return newest, _vote(job, plan, str(models[newest]), "last.jsonl", say)


def _outcome(
    job: Adaptation, plan: Plan, ended: Completion, answers: Sequence[Prediction], last_step: int | None
) -> Outcome:
    return Outcome(
        **ended.model_dump(),
        last_step=last_step,
        last_differs=sum(row.last_differs for row in answers),
        name=job.problems.name,
        model=job.model,
        method=plan.config.method.name,
        configuration=str(plan.source),
        problems=len(answers),
        votes=job.votes,
        vote_temperature=VOTE_TEMPERATURE,
        vote_top_p=VOTE_TOP_P,
        changed=sum(row.changed for row in answers),
    )


def _with_worth(
    job: Adaptation,
    plan: Plan,
    outcome: Outcome,
    answers: Sequence[Prediction],
    gold: Mapping[str, str],
    votes: Mapping[str, Reference],
    on_phase: OnPhase,
    say: OnPhase,
) -> Outcome:
    """The outcome with what the answers, the base model and the model that gave the answers are worth."""
    rows, scores = graded_rows(job, plan), []
    models = {BASE: job.model, **({ADAPTED: str(outcome.chosen_model)} if outcome.chosen_step else {})}
    for name, model in models.items():
        on_phase(f"evaluating the {name}")
        greedy = _vote(job, plan, model, f"greedy_{name.split()[0]}.jsonl", say, n=1, temperature=0.0, top_p=1.0)
        scores.append(worth(name, votes[name], greedy, gold, rows))
    comparison = compare(answers, gold, scores[0].greedy, plan.config.answers, rows)
    return outcome.model_copy(update={"scores": tuple(scores), "comparison": comparison})
