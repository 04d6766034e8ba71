"""`seeded_rollouts`: a rollout's seed follows from its place alone, and rollouts come back as they were dispatched."""

import asyncio
import hashlib
import pickle
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from torchdata.stateful_dataloader import StatefulDataLoader

from restrain_openrlhf.hook.agent import AgentExecutor
from restrain_openrlhf.hook.policy import actor
from restrain_openrlhf.hook.rollout.training_data import PROGRESS, Progress, TrainingRow, seed_of
from tests.hook.in_process import Handle, Letters, host_arguments

N = 4


class Actor(RolloutRayActor.__ray_metadata__.modified_class):
    """The host's actor over an engine whose rollout is a number made from prompt and seed, and takes a while."""

    def __init__(self, backwards):
        self.executor = AgentExecutor()
        self.backwards = backwards
        self.seeds = []

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        self.seeds.append(sampling_params.seed)
        drawn = hashlib.sha256(f"{prompt_token_ids}{sampling_params.seed}".encode()).digest()
        for _ in range(6 - drawn[0] % 7 if self.backwards else drawn[0] % 7):
            await asyncio.sleep(0)
        tokens = [ord("0") + drawn[1] % 10, ord("0") + drawn[2] % 10]
        likely = SimpleNamespace(logprob=-0.5 - drawn[3] / 256, rank=1)
        logprobs = [{token: likely} for token in tokens] if sampling_params.logprobs is not None else None
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=logprobs)])


class Generator(SamplesGenerator):
    """The host's, of batches of three prompts; with `backwards` the last rollouts and groups are completed first."""

    def __init__(self, prompts, backwards=False, seed=42):
        arguments = host_arguments(3, N, **{"train.seed": seed})
        torch.manual_seed(seed)
        rows = [("", prompt, TrainingRow(), None) for prompt in prompts]
        loader = StatefulDataLoader(rows, 1, shuffle=True, drop_last=True, collate_fn=columns)
        self.actor, self.backwards = Actor(backwards), backwards
        super().__init__(SimpleNamespace(args=arguments), loader, None, Letters(), [Handle(self.actor)])

    def _dispatch_prompts_to_vllm(self, *args, **kwargs):
        groups = super()._dispatch_prompts_to_vllm(*args, **kwargs)
        return groups[::-1] if self.backwards else groups

    def batch(self):
        samples, *_ = self.generate_samples(max_new_tokens=4, max_len=64)
        return [(sample.prompts[0], Letters().decode(sample.sequences[0].tolist(), True)) for sample in samples]


def columns(rows):
    return tuple(map(list, zip(*rows, strict=True)))


@pytest.fixture
def seeded(hooked):
    def use(**method):
        hooked(method or {"name": "restrain", "prompt_weight": "none"}, seeded_rollouts=True)

    use()
    return use


PROMPTS = ["1+1=", "2+2=", "1+1=", "3+3=", "4+4=", "5+5="]
VOTES = {"name": "ttrl", "votes": 6, "train_on": N}
TREES = {"name": "ettrl", "trees": 1, "forks": 1, "branches": 3, "entropy_top_k": 2}


def test_rollouts_of_a_prompt_have_seeds_of_their_own(seeded):
    generator = Generator(PROMPTS)
    generator.batch(), generator.batch()
    assert len(set(generator.actor.seeds)) == len(PROMPTS) * N
    assert all(0 <= seed < 2**63 for seed in generator.actor.seeds)


@pytest.mark.parametrize("method", [{"name": "restrain", "prompt_weight": "none"}, VOTES, TREES])
def test_the_order_of_completion_changes_nothing(seeded, method):
    seeded(**method)
    forwards, backwards = Generator(PROMPTS), Generator(PROMPTS, backwards=True)
    assert [forwards.batch(), forwards.batch()] == [backwards.batch(), backwards.batch()]


def test_a_checkpoint_at_any_step_goes_on_with_the_same_rollouts(seeded):
    """Three episodes of two batches: also from a checkpoint at an episode's end."""
    whole, states = Generator(PROMPTS), []
    batches = []
    while len(batches) < 6:
        if drawn := whole.batch():
            batches.append(drawn)
            states.append(pickle.dumps(whole.prompts_dataloader.state_dict()))
    for step, state in enumerate(states[:-1], 1):
        resumed = Generator(PROMPTS, backwards=True)
        resumed.prompts_dataloader.load_state_dict(pickle.loads(state))
        PROGRESS[resumed] = Progress(steps=step, prompts=3 * step)
        rest = []
        while len(rest) < 6 - step:
            rest += [drawn] if (drawn := resumed.batch()) else []
        assert rest == batches[step:], f"from step {step}"


def test_evaluation_is_not_seeded(seeded):
    generator = Generator(PROMPTS)
    generator._dispatch_prompts_to_vllm(["1+1="], ["2"])
    assert set(generator.actor.seeds) == {None}
    assert generator.batch() == Generator(PROMPTS).batch(), "an evaluation before changes nothing"


def test_seeds_are_the_same_in_every_release():
    """A run that was begun with one release goes on with the next."""
    digest = hashlib.sha256(b"prompt:42:7").digest()
    assert Progress(prompts=7).next_visit(42).seed == int.from_bytes(digest[:8], "big") >> 1
    assert seed_of("rollout", 5, 0) == int.from_bytes(hashlib.sha256(b"rollout:5:0").digest()[:8], "big") >> 1


class Policy:
    """What the hook reads of ActorPPOTrainer."""

    args = SimpleNamespace(train=SimpleNamespace(seed=42))
    actor_loss_fn = torch.nn.Identity()
    strategy = SimpleNamespace(ds_device_mesh={"dp": SimpleNamespace(get_group=lambda: None)})

    def __init__(self, optimizer_steps):
        self.actor = SimpleNamespace(model=SimpleNamespace(global_steps=optimizer_steps))

    def shuffled(self):
        return actor.ppo_train(lambda _kl: {"order": torch.randperm(64).tolist()}, self, (0.0,), {})["order"]


def test_micro_batches_are_shuffled_by_the_step_and_not_by_what_was_drawn_before(seeded):
    first = Policy(3).shuffled()
    torch.rand(17)
    assert Policy(3).shuffled() == first != Policy(4).shuffled()
