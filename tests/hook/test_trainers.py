"""Both trainers of the host take hooked steps: the synchronous one's, and the loop of the asynchronous one."""

import time
from queue import Queue
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from openrlhf.trainer.ppo_trainer import PPOTrainer
from openrlhf.trainer.ppo_trainer_async import TrainingActor
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController

from restrain_openrlhf.hook.policy.experience import LAST_STEP
from restrain_openrlhf.scoring.wire import NEGATIVE, POSITIVE
from tests.commands.k8s import known_metrics
from tests.conftest import rows_of
from tests.hook.in_process import Letters, Models, column, drawn_by_the_host, host_arguments, maker_of

RESTRAIN = {"name": "restrain", "kappa": 2, "prompt_weight": "none", "delta": 0.5}
SCRIPTS = (
    {"1+1=": [r"\boxed{1}", r"\boxed{2}", r"\boxed{3}"]},
    {"2+2=": [r"\boxed{4}", r"\boxed{4}", r"\boxed{5}"]},
)


def queue_of(*items):
    queue = Queue()
    for item in items:
        queue.put(item)
    return queue


def trainer_of(actor_class, arguments):
    """The host's trainer without its constructor, which loads models."""
    host = actor_class.__ray_metadata__.modified_class
    trainer = host.__new__(host)
    models = Models()
    trainer.args, trainer.tokenizer, trainer.kl_ctl = arguments, Letters(), FixedKLController(0.001)
    trainer.actor_model_group, trainer.critic_model_group, trainer.vllm_engines = models, None, None
    trainer.wandb_logger = trainer.tensorboard_logger = None
    trainer.best_eval_metric_key, trainer._latest_eval_metric_value = "none", None
    trainer.experience_maker = maker_of(arguments, models)
    return trainer


@pytest.mark.parametrize("actor_class", [PPOTrainer, TrainingActor], ids=["synchronous", "asynchronous"])
def test_a_step_sends_the_pair_to_the_policy_and_counts_votes(actor_class, hooked, tmp_path):
    hooked(RESTRAIN, metrics=tmp_path / "metrics.jsonl")
    arguments = host_arguments(1, 3)
    trainer = trainer_of(actor_class, arguments)
    status, step = trainer.train_step(drawn_by_the_host(SCRIPTS[0], [""], arguments), 6)
    sent = trainer.actor_model_group.trained_on
    assert column(sent, POSITIVE) == [0, 0, 0]
    assert column(sent, NEGATIVE) == [-0.5, -0.5, -0.5]
    assert [(each.advantages, each.returns) for each in sent] == [(None, None)], "of both nothing is read"
    numbers = LAST_STEP[trainer.experience_maker].scalars()
    assert (step, status["policy_loss"], numbers["restrain/low_consensus_share"]) == (7, 0.5, 1)
    assert numbers["restrain/logprob_gap"] == 0
    assert not (tmp_path / "metrics.jsonl").exists(), "the host adds the time of generation later"


def synchronous_trainer(script, arguments):
    """It draws one batch of rollouts, which takes some time."""
    trainer = trainer_of(PPOTrainer, arguments)
    trainer.eval_dataloader, trainer.generate_kwargs = None, {}
    trainer.prompts_dataloader = Prompts([0])
    batches = iter([drawn_by_the_host(script, [""], arguments)])

    def generate_samples(**_):
        time.sleep(0.05)
        return next(batches), None, 1, True

    trainer.samples_generator = type("Drawing", (), {"generate_samples": staticmethod(generate_samples)})()
    trainer.broadcast_to_vllm = lambda: None
    return trainer


class Prompts(list):
    """The host's dataloader, as far as its loop asks it."""

    def state_dict(self):
        return {}


def test_a_row_has_the_times_of_all_phases_and_the_speed(hooked, tmp_path):
    hooked(RESTRAIN, metrics=tmp_path / "metrics.jsonl")
    arguments = host_arguments(1, 3, **{"ckpt.save_steps": 100})
    trainer = synchronous_trainer(SCRIPTS[0], arguments)
    trainer.fit(6)
    (row,) = rows_of(tmp_path / "metrics.jsonl")
    assert (row["step"], row["rollout/num_samples"], row["votes"]["voters"]) == (7, 3, 3)
    phases = [row[f"timing/{phase}"] for phase in ("generation", "make_experience", "ppo_train", "broadcast")]
    assert row["timing/step_total"] == pytest.approx(sum(phases))
    # Three responses of nine letters and the end of text.
    assert row["restrain/generated_tokens"] == 30
    assert row["restrain/generated_tokens_per_second"] == 30 / row["timing/generation"] < 30 / 0.05
    assert row["restrain/trained_tokens_per_second"] == 30 / row["timing/ppo_train"]
    assert known_metrics.of_the_trainer() <= set(row), "alerts and dashboards ask for these"
    assert row["restrain/logprob_gap"] == 0


class Tracker:
    """A tracker of the host's; it says what it was given."""

    def __init__(self):
        self.steps, self.evaluations, self.closed = {}, {}, False

    def log_train(self, step, numbers):
        self.steps[step] = dict(numbers)

    def log_eval(self, step, numbers):
        self.evaluations[step] = numbers

    def close(self):
        self.closed = True


def test_the_asynchronous_loop_keeps_every_row_and_hands_trackers_theirs_as_often_as_asked(hooked, tmp_path):
    hooked(RESTRAIN, metrics=tmp_path / "metrics.jsonl")
    flags = {"train.async_enable": True, "ckpt.save_steps": 100, "logger.logging_steps": 2}
    arguments = host_arguments(1, 3, **flags)
    trainer = trainer_of(TrainingActor, arguments)
    wandb, tensorboard = trainer.wandb_logger, trainer.tensorboard_logger = Tracker(), Tracker()
    steps = [(drawn_by_the_host(script, [""], arguments), {}, None, 0.25) for script in SCRIPTS]
    trainer.rollout_queue = queue_of(steps[0], ("eval", 1, {"eval_default_pass1": 0.75}), steps[1], "done")
    trainer.rollout_slots = Queue()
    trainer.init_checkpoint_states()
    trainer.init_checkpoint_states()
    trainer.fit()
    rows = rows_of(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["votes"]["majority_share_mean"]) for row in rows] == [(1, 1 / 3), (2, 2 / 3)]
    assert [row["timing/generation"] for row in rows] == [0.25, 0.25]
    (evaluation,) = rows_of(tmp_path / "evaluations.jsonl")
    assert (evaluation["step"], evaluation["eval_default_pass1"]) == (1, 0.75)
    assert [*trainer.rollout_slots.queue] == [0, 1, 1]
    assert column(trainer.actor_model_group.trained_on[1:], POSITIVE)[0] > 0
    for tracker in (wandb, tensorboard):
        assert list(tracker.steps) == [2]
        assert tracker.steps[2]["restrain/majority_share_mean"] == 2 / 3
        assert tracker.evaluations == {1: {"eval_default_pass1": 0.75}}
        assert tracker.closed


@pytest.mark.parametrize(("rank", "asked"), [(8, "policy"), (0, "reference")])
def test_a_lora_runs_reference_policy_is_its_policy_from_its_begin_on(hooked, rank, asked):
    hooked(RESTRAIN)
    arguments = host_arguments(1, 3, **{"train.async_enable": True, "ds.lora.rank": rank})
    trainer = trainer_of(TrainingActor, arguments)
    maker = trainer.experience_maker
    policy = SimpleNamespace(__ray_call__=SimpleNamespace(remote=print), empty_cache="policy")
    maker.actor_model_group._actor_handlers = [policy]
    maker.initial_model_group = SimpleNamespace(_actor_handlers=["reference"])
    trainer.init_checkpoint_states()
    (process,) = maker.initial_model_group._actor_handlers
    assert getattr(process, "empty_cache", process) == asked
    assert maker.actor_model_group._actor_handlers == [policy]
