"""Measures the accuracy of each policy with gold answers, after training.

Each policy answers the test set and the held-out sets twice: greedily, and at T = 0.6 with top-p 0.95.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.config.command_line import kind_word
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.data.gold import ProblemIdentity, PromptOnly, load_gold
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import Evaluation, ProtocolName, Request
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.machine.processes import run_command
from test_time.adaptation import Adaptation, Plan
from test_time.problems import instructed, load_problems, refuse_missing_gold, without_answers

TEST = "test"
BASE = "base model"
# The base model gets a large vote, which an adaptation has to beat. Others get as many responses as in the paper (§3).
BASE_RESPONSES = 64
RESPONSES = 16


@dataclass(frozen=True)
class Policy:
    """A model by its name in tables; `responses` is the number per problem of the sampled evaluation."""

    name: str
    model: str
    responses: int = RESPONSES


@dataclass(frozen=True)
class EvaluationSet:
    """The file with the problems of a set, and their kind of answer."""

    path: Path
    kind: AnswerKind


class Score(BaseModel, frozen=True):
    """One policy on one set, all in [0, 1]. `majority` is maj@n of n responses; the bounds are those of `Scores`."""

    policy: str
    benchmark: str
    problems: int
    greedy: float
    pass_at_1: float
    low: float
    high: float
    n: int
    majority: float
    truncated_share: float | None
    samples_low: float | None = None
    samples_high: float | None = None


def gold_of(job: Adaptation) -> Mapping[str, str]:
    """Gold answers by the problem's id, from the gold file or else from the benchmark.

    Raises DataError for a file that is damaged, or answers other problems.
    """
    if job.gold is None:
        return {problem.id: problem.answer for problem in job.problems.load().problems}
    kind = job.kind or MATHEMATICS
    problems = load_problems(job.problems, kind)
    asked = [ProblemIdentity.of(row.id, row.text, kind.row(row.text, row.row)) for row in problems]
    answers = load_gold(job.gold, kind).answers(job.problems.word, asked)
    return {str(each.id): answers[each.problem] for each in asked if each.problem in answers}


def graded_problems(job: Adaptation, plan: Plan) -> list[PromptOnly]:
    """The plan's problems with the columns that belong to gold, which training never reads."""
    golden = {each.id: each.row for each in load_problems(job.problems, plan.config.answers, graded=True)}
    return [each.model_copy(update={"row": {**golden[each.id], **each.row}}) for each in plan.problems]


def check_gold(job: Adaptation, ids: Sequence[str]) -> None:
    """Raises DataError or ConfigError for unusable gold or held-out sets, before training.

    Nothing of them is stored.
    """
    if job.has_gold:
        refuse_missing_gold(str(job.gold or job.problems.word), ids, gold_of(job))
    for source in job.heldout:
        if [TEST, *(other.name for other in job.heldout)].count(source.name) > 1:
            raise ConfigError(f"--heldout: two sets would be called {source.name!r} in the tables. Rename one file.")
        held = source.load()
        held.kind.check(held.kind.graded_row(each.text, each.row) for each in held.problems)


def measure(job: Adaptation, plan: Plan, policies: Sequence[Policy], on_policy: Callable[[str], None]) -> list[Score]:
    """Evaluate every policy on every set. Stored responses are not drawn again. Raises RunError with the log's end."""
    sets = _write_sets(job, plan)
    scores = []
    for policy in policies:
        on_policy(policy.name)
        greedy = _results(job, plan, policy, sets, "greedy", 1)
        sampled = _results(job, plan, policy, sets, "paper", policy.responses)
        scores += [_score(policy, greedy[name], sampled[name]) for name in sets]
    return scores


def _write_sets(job: Adaptation, plan: Plan) -> dict[str, EvaluationSet]:
    """Write each set with gold, its problems worded as in training. Returns the sets by name."""
    sets: dict[str, EvaluationSet] = {}
    if job.has_gold:
        gold = gold_of(job)
        rows = [
            Problem(id=row.id, problem=row.problem, answer=gold[row.id], row=row.row)
            for row in graded_problems(job, plan)
        ]
        sets[TEST] = _write_set(job, TEST, plan.config.answers, rows)
    for source in job.heldout:
        loaded = source.load()
        plain = without_answers(loaded.problems, loaded.kind)
        worded = instructed(plain, loaded.kind) if plan.boxed else plain
        pairs = zip(loaded.problems, worded, strict=True)
        rows = [problem.model_copy(update={"problem": one.problem}) for problem, one in pairs]
        sets[source.name] = _write_set(job, source.name, loaded.kind, rows)
    return sets


def _write_set(job: Adaptation, name: str, kind: AnswerKind, rows: Sequence[Problem]) -> EvaluationSet:
    path = job.out / "evaluation" / "sets" / f"{name}.jsonl"
    write_rows(path, rows)
    return EvaluationSet(path, kind)


def _results(
    job: Adaptation, plan: Plan, policy: Policy, sets: Mapping[str, EvaluationSet], protocol: ProtocolName, n: int
) -> dict[str, Result]:
    """The results by set. A process of `restrain eval` for each kind of answer draws and grades the responses."""
    flags, out = plan.config.openrlhf, job.out / "evaluation" / f"{policy.name.replace(' ', '-')}-{protocol}"
    for kind in {kind_word(each.kind): each.kind for each in sets.values()}.values():
        alike = {name: each.path for name, each in sets.items() if each.kind == kind}
        request = Request(
            model=policy.model,
            out=out,
            benchmarks=tuple(f"{name}={path}" for name, path in alike.items()),
            answers=kind,
            protocol=protocol,
            n=n,
            max_new_tokens=int(flags["rollout.max_new_tokens"]),
            template="chat" if flags.get(CHAT_TEMPLATE) else "plain",
            tensor_parallel_size=int(flags.get("vllm.tensor_parallel_size") or 1),
        )
        if not Evaluation(request).is_finished():
            run_command(request.words(), job.out / "evaluation" / "evaluation.log")
    return {result.provenance.benchmark: result for result in load_results(out)}


def _score(policy: Policy, greedy: Result, sampled: Result) -> Score:
    scores, how = sampled.scores, sampled.provenance
    return Score(
        policy=policy.name,
        benchmark=how.benchmark,
        problems=how.problems,
        greedy=greedy.scores.pass_at_1,
        n=how.n,
        majority=scores.maj_at_k[how.n],
        **scores.model_dump(include=set(Score.model_fields)),
    )
