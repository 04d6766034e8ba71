"""A prompt's votes in earlier steps: the host's own trainer and generator, step by step, from any checkpoint."""

from itertools import chain
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from openrlhf.trainer.ppo_trainer import BasePPOTrainer, PPOTrainer
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.hook.agent import AgentExecutor
from restrain_openrlhf.hook.rollout.training_data import TrainingRow
from restrain_openrlhf.hook.run_log import init_checkpoint_states
from tests.conftest import rows_of
from tests.hook.in_process import LENGTHS, Handle, Letters, ScriptedActor, host_arguments
from tests.hook.test_methods_in_the_host import boxed
from tests.hook.test_trainers import trainer_of

GUARD, N, PROMPT = {"name": "ttrl_guard"}, 4, "1+1="
# 2, the same in another spelling, 3, no answer twice, and 3 again.
STEPS = (
    boxed("2", "2", "2", "3"),
    boxed("3", "4/2", "4/2", "4/2"),
    boxed("3", "3", "2", None),
    boxed(None, None, None, None),
    boxed(None, None, None, None),
    boxed("3", "3", "3", "3"),
)
SHARES, FLIPS = [0.75, 0.75, 0.5, 0, 0, 1], [False, False, True, True, False, True]
# lambda1 = .5 at each flip, and lambda2 = .3 where the new majority has all votes.
WEIGHTS = [1, 1, 0.5, 0.5, 1, 0.35]


@pytest.fixture
def begin(hooked, tmp_path, monkeypatch):
    """Starts a run with `batch` prompts a step, from its beginning or from the checkpoint of a step."""

    def begin(script, batch=1, after=0, method=GUARD):
        hooked(method, metrics=tmp_path / "metrics.jsonl")
        states = {"episode": 0, "global_step": after, "total_consumed_prompts": 0, "data_loader_state_dict": {}}
        monkeypatch.setattr(BasePPOTrainer, "init_checkpoint_states", lambda self: states)
        arguments = host_arguments(batch, N)
        trainer, actor = trainer_of(PPOTrainer, arguments), ScriptedActor(dict(script))
        rows = [("train", [prompt], [TrainingRow()], [None]) for prompt, _ in script]
        strategy, trainer.eval_dataloader = SimpleNamespace(args=arguments), None
        trainer.samples_generator = SamplesGenerator(strategy, rows, None, Letters(), [Handle(actor)])
        init_checkpoint_states(trainer)
        return trainer

    return begin


def take(trainer, *steps):
    for step in steps:
        samples = []
        while not samples:
            # At the end of the prompts the host gives none, and then begins again.
            samples, *_ = trainer.samples_generator.generate_samples(**LENGTHS)
        status, _ = trainer.train_step(samples, step - 1)
        trainer.wandb_logger.log_train(step, status)


def weights(folder):
    return [row["votes"]["prompt_weight_mean"] for row in rows_of(folder / "metrics.jsonl")]


def written(folder):
    return [(row["step"], row["votes"]) for row in rows_of(folder / "votes.jsonl")]


def test_episode_after_episode_a_prompt_is_scored_by_its_steps_before(begin, tmp_path):
    take(begin([(PROMPT, [*chain(*STEPS)])]), *range(1, 7))
    assert weights(tmp_path) == pytest.approx(WEIGHTS)
    assert [step for step, _ in written(tmp_path)] == [1, 2, 3, 4, 5, 6]
    (votes,) = zip(*(votes for _, votes in written(tmp_path)), strict=True)
    assert [vote["share"] for vote in votes] == SHARES
    assert [vote["flipped"] for vote in votes] == FLIPS
    assert [vote["majority"] for vote in votes] == ["2", "4/2", "3", None, None, "3"]
    assert {vote["prompt"] for vote in votes} == {text_hash(PROMPT)}


@pytest.mark.parametrize("after", range(6))
def test_a_run_that_was_killed_goes_on_after_any_checkpoint_with_the_votes_of_its_steps_alone(begin, tmp_path, after):
    """Two steps came after the checkpoint, and in the last of them the process was killed as it wrote."""
    ahead = min(after + 2, 6)
    take(begin([(PROMPT, [*chain(*STEPS[:after])] + boxed(*"7654") * 2)]), *range(1, ahead + 1))
    with (tmp_path / "votes.jsonl").open("a") as file:
        file.write('{"step": 9, "vot')
    take(begin([(PROMPT, [*chain(*STEPS[after:])])], after=after), *range(after + 1, 7))
    assert weights(tmp_path) == pytest.approx(WEIGHTS)
    assert [(step, vote["flipped"]) for step, (vote,) in written(tmp_path)] == [*enumerate(FLIPS, 1)]


def test_a_run_whose_votes_are_gone_does_not_go_on(begin, tmp_path):
    take(begin([(PROMPT, [*chain(*STEPS)])]), 1, 2)
    with pytest.raises(RunError, match=r"votes.jsonl: has no step 3, after which the run goes on"):
        begin([(PROMPT, [])], after=3)
    (tmp_path / "votes.jsonl").unlink()
    with pytest.raises(RunError, match=r"has no step 2"):
        begin([(PROMPT, [])], after=2)


def test_prompts_have_votes_of_their_own_and_one_for_each_step(begin, tmp_path):
    """The first prompt is in each step twice: both its groups flip against its first group of the step before."""
    script = {PROMPT: [*STEPS[0], *STEPS[2], *STEPS[2], *STEPS[2]], "2+2=": [*boxed(*"4444"), *boxed(*"4445")]}
    trainer = begin([*script.items(), (PROMPT, script[PROMPT])], batch=3)
    take(trainer, 1, 2)
    first, second = (votes for _, votes in written(tmp_path))
    assert [(vote["majority"], vote["share"], vote["flipped"]) for vote in first] == [("2", 0.75, 0), ("4", 1, 0)]
    assert [(vote["majority"], vote["share"], vote["flipped"]) for vote in second] == [("3", 0.5, 1), ("4", 0.75, 0)]
    assert weights(tmp_path) == pytest.approx([1, (0.5 + 1 + 0.5) / 3])


def test_a_method_that_does_not_read_votes_gets_none_and_none_are_written(begin, tmp_path):
    trainer, sent = begin([(PROMPT, STEPS[0] + STEPS[2])], method={"name": "ttrl"}), []
    (handle,) = trainer.samples_generator.vllm_engines
    draw = handle.generate_responses.remote
    handle.generate_responses.remote = lambda **asked: sent.append(asked["label"]) or draw(**asked)
    take(trainer, 1, 2)
    assert [label.past for label in sent] == [(), ()]
    assert not (tmp_path / "votes.jsonl").exists()
    assert trainer.wandb_logger._keeping.stopped is None


def test_the_agent_without_the_hook_refuses_it(agent_alone):
    agent_alone("method: {name: ttrl_guard}")
    with pytest.raises(ConfigError, match="the method 'ttrl_guard' reads votes of earlier steps"):
        AgentExecutor()
