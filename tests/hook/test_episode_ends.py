"""A run that is resumed at any step takes the steps that are left: the host's own loops, generator and data loader."""

import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from openrlhf.trainer.ppo_trainer import PPOTrainer
from openrlhf.trainer.ppo_trainer_async import GenerateSamplesActor, TrainingActor
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy

from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.hook.install.instrument import steps_to_plan
from restrain_openrlhf.method import parse_settings
from tests.hook.in_process import Models, host_arguments

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


def loaded(arguments, prompts):
    """The host's data loader of so many prompts, and its generator over them."""
    strategy = DeepspeedStrategy.__new__(DeepspeedStrategy)
    strategy.args, strategy.seed = arguments, 42
    rows = [("train", f"{place}?", "", None) for place in range(prompts)]
    loader = strategy.setup_dataloader(rows, 1, False, True, lambda rows: [*zip(*rows, strict=True)])
    return loader, Generator(strategy, loader, None, None, [])


def asked(batch, folder, **flags):
    (folder / "_actor").mkdir(exist_ok=True)
    every = {"train.num_episodes": EPISODES, "ckpt.path": folder, "ckpt.load_enable": True, "eval.steps": 100}
    return host_arguments(batch, 1, **every, **flags)


class Keeping:
    """What both of the host's trainers are made to do: keep what they train on, and every step's checkpoint."""

    def begin(self, arguments, states):
        self.args = arguments
        self.eval_dataloader = self.wandb_logger = self.tensorboard_logger = None
        self.best_eval_metric_value, self.best_eval_metric_key = 0, "none"
        self.experience_maker = SimpleNamespace(initial_model_group=None)
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


class Trainer(Keeping, HOST):
    def __init__(self, prompts, batch, folder, states=None):
        self.begin(asked(batch, folder), states)
        self.generate_kwargs = {}
        self.prompts_dataloader, self.samples_generator = loaded(self.args, prompts)


class Drawing(GenerateSamplesActor.__ray_metadata__.modified_class):
    """The asynchronous trainer's other process: a loop that draws ahead of training."""

    def __init__(self, arguments, prompts, queue, slots):
        self.args, self.eval_dataloader, self.generate_kwargs = arguments, None, {}
        self._last_eval_step, self._eval_just_done = -1, False
        # No lock between generation and weight sync, neither of which is here.
        self._partial_rollout = True
        self.rollout_queue, self.rollout_slots = queue, slots
        self.prompts_dataloader, self.samples_generator = loaded(arguments, prompts)


class Asynchronous(Keeping, TrainingActor.__ray_metadata__.modified_class):
    def __init__(self, prompts, batch, folder, states=None, ahead=2, **flags):
        self.begin(asked(batch, folder, **{"train.async_enable": True, **flags}), states)
        self.rollout_queue, self.rollout_slots = Queue(ahead), Queue(ahead)
        for _ in range(ahead):
            self.rollout_slots.put(0)
        self.drawing = Drawing(self.args, prompts, self.rollout_queue, self.rollout_slots)

    def fit(self):
        """As PPOTrainerAsync.fit, of which each line is a call into another process."""
        states = self.init_checkpoint_states()
        if states["global_step"]:
            self.drawing.load_state_dict(states["data_loader_state_dict"])
        with ThreadPoolExecutor() as pool:
            drawing = pool.submit(self.drawing.fit, states["episode"], states["total_consumed_prompts"])
            super().fit(states["global_step"])
            drawing.result()


def resumed_visits(trainer, prompts, folder, **flags):
    """From every step of a whole run: the steps that are left, and how often each prompt is trained on in all."""
    whole = trainer(prompts, 4, folder, **flags)
    whole.fit()
    for step, states, trained in whole.checkpoints:
        resumed = trainer(prompts, 4, folder, pickle.loads(states), **flags)
        resumed.fit()
        yield step, [after for after, _, _ in resumed.checkpoints], Counter(whole.trained[:trained] + resumed.trained)


# 10 prompts leave a smaller last batch of 2; of 8 every batch is whole; 3 prompts are less than one.
@pytest.mark.parametrize("trainer", [Trainer, Asynchronous])
@pytest.mark.parametrize(("prompts", "steps"), [(10, 9), (8, 6), (3, 3)])
def test_a_run_resumed_at_any_step_takes_as_many_as_one_that_was_not(trainer, prompts, steps, hooked, tmp_path):
    hooked({"name": "ttrl"})
    found = [*resumed_visits(trainer, prompts, tmp_path)]
    assert [step for step, _, _ in found] == [*range(1, steps + 1)]
    for step, left, visits in found:
        assert left == [*range(step + 1, steps + 1)], f"from step {step}"
        assert set(visits.values()) == {EPISODES}, f"from step {step}, not every prompt is in every episode"


def test_rollouts_that_wait_for_a_later_step_are_lost_with_their_prompts(hooked, tmp_path):
    """Why rollout.vllm_generate_batch_size above rollout.batch_size is refused: no checkpoint has them."""
    hooked({"name": "ttrl"})
    found = resumed_visits(Asynchronous, 16, tmp_path, **{"rollout.vllm_generate_batch_size": 8})
    _, _, visits = next(found)
    assert sorted(visits.values()) == [EPISODES - 1] * 4 + [EPISODES] * 12


@pytest.mark.parametrize(("steps", "taken"), [(1, 1), (3, 3), (6, 6), (9, 6), (None, 6)])
def test_a_run_takes_so_many_steps_or_as_many_as_its_episodes_give(steps, taken, hooked, tmp_path):
    """Also from a checkpoint; two batches of four prompts are an episode."""
    hooked({"name": "ttrl"}, steps=steps)
    whole = Trainer(8, 4, tmp_path)
    whole.fit()
    assert [step for step, *_ in whole.checkpoints] == [*range(1, taken + 1)]
    resumed = Trainer(8, 4, tmp_path, pickle.loads(whole.checkpoints[0][1]))
    resumed.fit()
    assert [step for step, *_ in resumed.checkpoints] == [*range(2, taken + 1)]
    flags = {"rollout.batch_size": 4, "train.num_episodes": EPISODES}
    config = RunConfig(run_dir=tmp_path, method=parse_settings({"name": "ttrl"}), steps=steps, openrlhf=flags)
    assert HostRun.of(config).steps(prompts=6) == taken, "the progress bar's end"


@pytest.mark.parametrize(("steps", "planned"), [(1, 4), (3, 12), (9, 24), (None, 24)])
def test_the_learning_rate_is_planned_for_the_steps_that_are_taken(steps, planned, hooked):
    """Of a step's 8 x 4 rollouts, batches of 16 in two epochs are four optimizer steps."""
    hooked({"name": "ttrl"}, steps=steps)
    batches = {"rollout.n_samples_per_prompt": 4, "train.batch_size": 16, "train.max_epochs": 2}
    strategy = SimpleNamespace(args=host_arguments(8, 4, **batches))
    assert steps_to_plan(strategy, [6 * 4, "engines"]) == [planned, "engines"]
    assert steps_to_plan(strategy, []) == [], "the reference policy learns nothing"
