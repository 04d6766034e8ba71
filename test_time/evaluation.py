"""Accuracies of the base model and of what became of it, on the test set and on held-out problems.

Measured after everything else, by `restrain eval` in processes of their own: greedy, and at T = 0.6 with top-p 0.95.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.firewall import PromptOnly
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.loading import LoadedBenchmark, load_benchmark
from restrain_openrlhf.evaluation.problems import Problem, without_kind
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.run.processes import run_command, run_on_all_gpus
from test_time.comparison import read_gold
from test_time.job import Adaptation, AdaptationFolder
from test_time.problems import Source, boxed, refuse_missing_gold

TEST = "test"
# Of the base model a large vote: adaptation must beat it to be worth anything. Of the others as many as the paper (§3).
BASE_RESPONSES = 64
RESPONSES = 16


@dataclass(frozen=True)
class Policy:
    """A model under the name that tables give it; `responses` per problem of the sampled evaluation."""

    name: str
    model: str
    responses: int = RESPONSES


class Score(BaseModel):
    """One policy on one set, in [0, 1]: `low` and `high` bound pass@1 at 95 %, `majority` is maj@n; n responses."""

    model_config = ConfigDict(frozen=True)

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


def gold_of(job: Adaptation) -> Mapping[str, str]:
    """Answers by id: of the gold file, else of the benchmark. Raises DataError for a damaged file."""
    if job.gold is not None:
        return read_gold(job.gold)
    loaded = load_benchmark(job.problems.word, job.problems.folder)
    return {problem.id: problem.answer for problem in loaded.problems}


def check_gold(job: Adaptation, ids: Sequence[str]) -> None:
    """Raises DataError or ConfigError now for gold or held-out sets of no use in the end. Nothing of them is kept."""
    if job.has_gold:
        refuse_missing_gold(str(job.gold or job.problems.word), ids, gold_of(job))
    for source in job.heldout:
        if [TEST, *(other.name for other in job.heldout)].count(source.name) > 1:
            raise ConfigError(f"--heldout: two sets would be called {source.name!r} in the tables. Rename one file.")
        _heldout(source)


def _heldout(source: Source) -> LoadedBenchmark:
    return load_benchmark(source.word, source.folder)


def evaluate(
    job: Adaptation,
    config: RunConfig,
    policies: Sequence[Policy],
    ask_for_box: bool,
    on_policy: Callable[[str], None] = lambda _name: None,
) -> list[Score]:
    """Every policy on every set; what was measured already is read. Raises RunError with the log's end on failure."""
    sets = _write_sets(job, ask_for_box)
    scores = []
    for policy in policies:
        on_policy(policy.name)
        greedy = _run(job, config, policy, sets, "greedy", 1)
        sampled = _run(job, config, policy, sets, "paper", policy.responses)
        scores += [_score(policy, greedy[name], sampled[name]) for name in sets]
    return scores


def _write_sets(job: Adaptation, ask_for_box: bool) -> dict[str, Path]:
    """Problems worded as the policy was trained on them, with their gold, by the sets' names."""
    folder = AdaptationFolder(job.out).evaluation / "sets"
    found = {}
    if job.has_gold:
        gold = gold_of(job)
        problems = read_rows(AdaptationFolder(job.out).problems, PromptOnly)
        rows = [Problem(id=row.id, problem=row.problem, answer=gold[row.id]) for row in problems]
        found[TEST] = _written(folder / f"{TEST}.jsonl", rows)
    for source in job.heldout:
        rows = [_worded(problem, ask_for_box) for problem in _heldout(source).problems]
        found[source.name] = _written(folder / f"{source.name}.jsonl", rows)
    return found


def _worded(problem: Problem, ask_for_box: bool) -> Problem:
    bare = PromptOnly(id=problem.id, problem=without_kind(problem))
    return problem.model_copy(update={"problem": boxed([bare])[0].problem if ask_for_box else bare.problem})


def _written(path: Path, rows: Sequence[Problem]) -> Path:
    write_rows(path, rows)
    return path


def _run(
    job: Adaptation, config: RunConfig, policy: Policy, sets: Mapping[str, Path], protocol: str, n: int
) -> dict[str, Result]:
    flags = config.openrlhf
    out = AdaptationFolder(job.out).evaluation / f"{policy.name.replace(' ', '-')}-{protocol}"
    words = ["eval", "--model", policy.model, "--out", str(out), "--protocol", protocol, "--n", str(n)]
    words += ["--benchmarks", ",".join(f"{name}={path}" for name, path in sets.items())]
    words += ["--template", "chat" if flags.get("data.apply_chat_template") else "plain"]
    words += ["--max-new-tokens", str(flags["rollout.max_new_tokens"])]
    size = int(flags.get("vllm.tensor_parallel_size") or 1)
    words += ["--tensor-parallel-size", str(size)]
    log = AdaptationFolder(job.out).evaluation / "evaluation.log"
    if run_on_all_gpus(words, log, size) > 1:
        run_command(["regrade", str(out)], log)
    return {result.provenance.benchmark: result for result in load_results(out)}


def _score(policy: Policy, greedy: Result, sampled: Result) -> Score:
    scores, how = sampled.scores, sampled.provenance
    return Score(
        policy=policy.name,
        benchmark=how.benchmark,
        problems=how.problems,
        greedy=greedy.scores.pass_at_1,
        pass_at_1=scores.pass_at_1,
        low=scores.low,
        high=scores.high,
        n=how.n,
        majority=scores.maj_at_k[how.n],
        truncated_share=scores.truncated_share,
    )
