"""Whatever is called accuracy has one grader: `restrain eval`'s, also where two answers are no equal votes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from restrain_openrlhf.answers import MATHEMATICS, canonical_key, extract
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.evaluation.result import BenchmarkFolder, accuracy, grade_folder
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.sampling_pass import SamplingPass
from restrain_openrlhf.scoring import GroupScorer
from test_time.outcome import compare, predictions
from tests.evaluation.conftest import provenance

PROBLEM = Prompt("p", "How much?", r"How much? Put it in \boxed{}.", "here")
# Right in evaluation, and yet another vote than gold.
LENIENT = [
    (r"so \boxed{50\%}", "0.5"),
    (r"so \boxed{0.33333}", r"\frac{1}{3}"),
    (r"so \boxed{[1, 2]}", "(1, 2)"),
    (r"the answer is choice C", "C"),
]
RIGHT = [(r"so \boxed{1/2}", "0.5"), ("So the answer is 5", "5")]
WRONG = [(r"so \boxed{7}", "8"), ("I do not know.", "8"), (r"so \boxed{A}", "C")]
CASES = [
    *[(response, gold, 1.0) for response, gold in (*LENIENT, *RIGHT)],
    *[(response, gold, 0.0) for response, gold in WRONG],
]


def restrain_eval(response: str, gold: str, tmp_path: Path) -> float:
    """As `restrain eval` grades what an engine drew."""

    class Engine:
        def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
            return [[Rollout(response, 1, truncated=False)]]

    folder = BenchmarkFolder(tmp_path / "toy")
    folder.path.mkdir()
    folder.keep_problems([Problem(id="p", problem=PROBLEM.problem, answer=gold)])
    SamplingPass((PROBLEM,), provenance(1, n=1), folder.path / "responses.jsonl", ResponseRow, ResponseRow.of).run(
        Engine
    )
    return grade_folder(folder).scores.pass_at_1


def in_training(response: str, gold: str, tmp_path: Path) -> float:
    """As the agent evaluates a rollout during training."""
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    from restrain_openrlhf.machine.devices import detect

    detect().install()
    from tests.hook.in_process import evaluated

    return evaluated(PROBLEM.text, response, gold)


def study(response: str, gold: str, tmp_path: Path) -> float:
    """What a study reads off a run: the host's own pass@1 of our rewards, kept by the hook."""
    torch = pytest.importorskip("torch", reason="needs the training stack")
    pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
    from restrain_openrlhf.machine.devices import detect

    detect().install()
    from openrlhf.trainer.ppo_trainer import compute_eval_metrics
    from openrlhf.trainer.ppo_utils.experience import Experience

    from restrain_openrlhf.config.yaml_file import HookConfig
    from restrain_openrlhf.hook.run_log import keep_evaluation
    from restrain_openrlhf.records.metrics import read_held_out

    reward = in_training(response, gold, tmp_path)
    sample = Experience(prompts=[PROBLEM.text], labels=[gold], rewards=torch.tensor([reward]), info={})
    metrics = compute_eval_metrics([(["held-out"], [PROBLEM.text], [gold], [None])], [sample], 1)
    settings = HookConfig(method=parse_settings({"name": "ttrl"}), metrics=tmp_path / "metrics.jsonl")
    keep_evaluation(settings, 5, metrics)
    (found,) = read_held_out(tmp_path)
    return found.pass_at_1


def votes(response: str):
    return ReferenceRow.of_answers(PROBLEM, [extract(response)] * 4)


def adaptation_report(response: str, gold: str, tmp_path: Path) -> float:
    none, given = (SimpleNamespace(rows=[votes(text)]) for text in ("none", response))
    found = compare(predictions(none, given, ["p"], MATHEMATICS), {"p": gold}, 0.0, MATHEMATICS, {"p": {}})
    assert found.solved == (("p",) if found.right else ())
    return found.right


def demo(response: str, gold: str, tmp_path: Path) -> float:
    found = accuracy([votes(response)], {text_hash(PROBLEM.problem): gold})
    assert found.pass_at_1 == found.maj_at_n
    return found.pass_at_1


def gold_reward(response: str, gold: str, tmp_path: Path) -> float:
    scorer = GroupScorer(build(parse_settings({"name": "grpo_gold"})))
    score = scorer.score("p", [extract(response), "-1"], gold)
    return float(score.rewards[0])


MEASURES = [restrain_eval, in_training, study, adaptation_report, demo, gold_reward]


def test_the_lenient_cases_are_no_equal_votes():
    for response, gold in LENIENT:
        assert canonical_key(extract(response) or "") != canonical_key(gold), (response, gold)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("response", "gold", "right"), CASES)
def test_every_accuracy_is_that_of_restrain_eval(
    measure: Callable[[str, str, Path], float], response: str, gold: str, right: float, tmp_path: Path
):
    assert measure(response, gold, tmp_path) == right


def test_gold_grpo_rewards_every_right_answer_alike_however_it_is_written():
    scorer = GroupScorer(build(parse_settings({"name": "grpo_gold"})))
    answers = [r"50\%", "0.5", r"\frac{1}{2}", "0.4", None, "0.4"]
    score = scorer.score("p", answers, "0.5")
    assert score.rewards.tolist() == [1, 1, 1, 0, 0, 0]
    same = scorer.score("p", ["0.5", "0.5", "0.5", "0.4", None, "0.4"], "0.5")
    assert score.pair.net.tolist() == same.pair.net.tolist()
