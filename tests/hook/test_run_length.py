"""`steps` ends a run early: the host's own fit loop over a generator that would go on, also from a checkpoint."""

from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from openrlhf.trainer.ppo_trainer import BasePPOTrainer, PPOTrainer  # noqa: E402

from restrain_openrlhf.config.this_machine import HostRun  # noqa: E402
from restrain_openrlhf.config.yaml_file import HookConfig, RunConfig  # noqa: E402
from restrain_openrlhf.hook.install.environment import to_environment  # noqa: E402
from restrain_openrlhf.hook.install.instrument import steps_to_plan  # noqa: E402
from restrain_openrlhf.hook.launch.train import total_steps  # noqa: E402
from restrain_openrlhf.hook.logging import trainer  # noqa: E402
from restrain_openrlhf.hook.rollout import samples  # noqa: E402
from restrain_openrlhf.method import parse_settings  # noqa: E402

HOST = PPOTrainer.__ray_metadata__.modified_class
TTRL = parse_settings({"name": "ttrl"})
EPISODES, BATCHES = 3, 2


class Generator:
    """Every episode has two batches of eight prompts; the host learns of its end with an empty third."""

    def __init__(self):
        self.drawn = 0
        self.batches = [["rollout"], ["rollout"], []] * EPISODES

    def generate_samples(self, **kwargs):
        return samples.generate_samples(self.host_generate_samples, self, (), kwargs)

    def host_generate_samples(self):
        samples = self.batches.pop(0)
        self.drawn += bool(samples)
        return samples, None, 8 * len(samples), not samples


class Trainer(HOST):
    """The host's trainer with nothing but its loop."""

    def __init__(self, checkpoint):
        batch = SimpleNamespace(batch_size=8, n_samples_per_prompt=4)
        episodes = SimpleNamespace(num_episodes=EPISODES, batch_size=16, max_epochs=2)
        nothing = SimpleNamespace(dynamic_filtering_enable=False, steps=100)
        logger = SimpleNamespace(logging_steps=1)
        self.args = SimpleNamespace(rollout=batch, train=episodes, algo=nothing, eval=nothing, logger=logger)
        self.prompts_dataloader = Dataloader()
        self.eval_dataloader = self.wandb_logger = self.tensorboard_logger = None
        self.generate_kwargs, self.experience_maker = {}, SimpleNamespace(initial_model_group=None)
        self.samples_generator = Generator()
        self.checkpoint = checkpoint
        self.trained = []

    def init_checkpoint_states(self):
        return trainer.init_checkpoint_states(self)

    def states(self):
        return {
            "episode": self.checkpoint // BATCHES,
            "global_step": self.checkpoint,
            "total_consumed_prompts": 8 * self.checkpoint,
            "data_loader_state_dict": {},
        }

    def broadcast_to_vllm(self):
        pass

    def train_step(self, _samples, global_step):
        self.trained.append(global_step + 1)
        return {}, global_step + 1

    def save_logs_and_checkpoints(self, *_):
        pass


class Dataloader(list):
    def state_dict(self):
        return {}


@pytest.fixture
def fit(monkeypatch):
    def fit(steps, checkpoint=0):
        for name, value in to_environment(HookConfig(method=TTRL, steps=steps)).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(BasePPOTrainer, "init_checkpoint_states", Trainer.states)
        made = Trainer(checkpoint)
        made.fit()
        return made

    return fit


@pytest.mark.parametrize(
    ("steps", "trained"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (6, [1, 2, 3, 4, 5, 6]), (9, [1, 2, 3, 4, 5, 6]), (None, [*range(1, 7)])],
)
def test_a_run_takes_so_many_steps_or_as_many_as_its_episodes_give(fit, steps, trained):
    made = fit(steps)
    assert made.trained == trained
    assert made.samples_generator.drawn == len(trained), "rollouts were drawn for nothing"


@pytest.mark.parametrize(("checkpoint", "trained"), [(1, [2, 3]), (2, [3]), (3, [])])
def test_a_resumed_run_counts_the_steps_before_its_checkpoint(fit, checkpoint, trained):
    assert fit(3, checkpoint).trained == trained


@pytest.mark.parametrize(("steps", "planned"), [(None, 24), (2, 8), (6, 24), (9, 24)])
def test_the_learning_rate_is_planned_for_the_steps_that_are_taken(fit, steps, planned):
    strategy = SimpleNamespace(args=fit(steps).args)
    every = EPISODES * BATCHES * 8 * 4 // 16 * 2
    assert steps_to_plan(strategy, [every, "engines"]) == [planned, "engines"]
    assert steps_to_plan(strategy, []) == [], "the reference policy learns nothing"


@pytest.mark.parametrize(("steps", "total"), [(None, 6), (2, 2), (7, 6)])
def test_the_progress_bar_ends_where_the_run_does(tmp_path, steps, total):
    flags = {"rollout.batch_size": 8, "train.num_episodes": 3}
    config = RunConfig(run_dir=tmp_path, method=TTRL, steps=steps, openrlhf=flags)
    assert total_steps(HostRun.of(config), prompts=12) == total
