"""A run that is resumed at any step takes the steps that are left: the host's own loop, generator and data loader."""

import pickle
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the training stack: make install")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

from openrlhf.trainer.ppo_trainer import PPOTrainer  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy  # noqa: E402

from tests.hook.in_process import Models, host_arguments  # noqa: E402

HOST = PPOTrainer.__ray_metadata__.modified_class
EPISODES = 3


class Generator(SamplesGenerator):
    """The host's, of prompts whose rollouts are the prompts themselves."""

    def _dispatch_prompts_to_vllm(self, prompts, labels, *, images=None, **_):
        return [[prompt] for prompt in prompts]

    def _process_response_into_experience(self, response, **_):
        return response


class Policy(Models):
    """A group of policy processes that went on from a checkpoint."""

    def __init__(self, states):
        self.states = states

    def async_run_method(self, method_name, **_):
        return [self.states] if method_name == "get_checkpoint_states" else []


class Trainer(HOST):
    """The host's trainer, which keeps what it trains on and every step's checkpoint."""

    def __init__(self, prompts, batch, folder, states=None):
        (folder / "_actor").mkdir(exist_ok=True)
        flags = {"train.num_episodes": EPISODES, "ckpt.path": folder, "ckpt.load_enable": True}
        self.args = host_arguments(batch, 1, **flags, **{"eval.steps": 100})
        strategy = DeepspeedStrategy.__new__(DeepspeedStrategy)
        strategy.args, strategy.seed = self.args, 42
        rows = [("train", f"{place}?", "", None) for place in range(prompts)]
        self.prompts_dataloader = strategy.setup_dataloader(
            rows, 1, False, True, lambda rows: [*zip(*rows, strict=True)]
        )
        self.eval_dataloader = self.wandb_logger = self.tensorboard_logger = None
        self.best_eval_metric_value, self.best_eval_metric_key = 0, "none"
        self.generate_kwargs, self.experience_maker = {}, SimpleNamespace(initial_model_group=None)
        self.samples_generator = Generator(strategy, self.prompts_dataloader, None, None, [])
        nothing = {"episode": 0, "global_step": 0, "total_consumed_prompts": 0, "data_loader_state_dict": {}}
        self.actor_model_group = Policy(states or nothing)
        self.trained, self.checkpoints = [], []

    def broadcast_to_vllm(self):
        pass

    def train_step(self, samples, global_step):
        self.trained += samples
        return {}, global_step + 1

    def save_logs_and_checkpoints(self, step, _logs, states):
        self.checkpoints.append((step, pickle.dumps(states), len(self.trained)))


# 10 prompts leave a smaller last batch of 2; of 8 every batch is whole; 3 prompts are less than one.
@pytest.mark.parametrize(("prompts", "steps"), [(10, 9), (8, 6), (3, 3)])
def test_a_run_resumed_at_any_step_takes_as_many_as_one_that_was_not(prompts, steps, hooked, tmp_path):
    hooked({"name": "ttrl"})
    whole = Trainer(prompts, 4, tmp_path)
    whole.fit()
    assert [step for step, _, _ in whole.checkpoints] == [*range(1, steps + 1)]
    for step, states, trained in whole.checkpoints:
        resumed = Trainer(prompts, 4, tmp_path, pickle.loads(states))
        resumed.fit()
        assert [after for after, _, _ in resumed.checkpoints] == [*range(step + 1, steps + 1)], f"from step {step}"
        visits = Counter(whole.trained[:trained] + resumed.trained)
        assert set(visits.values()) == {EPISODES}, f"from step {step}, not every prompt is in every episode"
