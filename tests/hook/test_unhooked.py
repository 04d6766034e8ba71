"""A process without the hook cannot train: each of the four bars, against the host's own classes."""

import asyncio
import pickle
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

import torch
from openrlhf.models import PolicyLoss
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer
from openrlhf.trainer.ray.launcher import RayActorGroup, ReferenceModelActor
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.agent import AgentExecutor
from restrain_openrlhf.hook.install import instrument
from restrain_openrlhf.hook.install.instrument import report
from restrain_openrlhf.machine.patching import expect_no_more
from tests.hook.in_process import ScriptedActor, asked, drawn_by_the_host, host_arguments, maker_of
from tests.processes import needs_its_accelerator

TTRL = {"name": "ttrl"}
SCRIPT = {"1+1=": [r"\boxed{2}", r"\boxed{2}", r"\boxed{3}"]}
BATCH = {"dp_size": 1, "batch_num_tokens": 27.0, "global_batch_size": 3}


def process(answer):
    """A handle of a model's actor process, which answers as `report` does there: what it lacks, None for the hook."""
    call = SimpleNamespace(remote=lambda function: answer if function is report else "called")
    load = SimpleNamespace(remote=lambda *args: args)
    return SimpleNamespace(__ray_call__=call, init_model_from_pretrained=load)


def group_of(*processes):
    group = RayActorGroup.__new__(RayActorGroup)
    group._actor_handlers, group.ray_actor_type = list(processes), ReferenceModelActor
    return group


def test_no_model_is_loaded_where_a_process_says_that_it_is_not_hooked(hooked):
    hooked(TTRL)
    group = group_of(process([]), process(None), process([]))
    with pytest.raises(HookNotActiveError, match="1 of 3 ReferenceModelActor processes run without the RESTRAIN hook"):
        group.async_init_model_from_pretrained("strategy", "model")


def test_models_are_loaded_by_the_host_where_every_process_is_hooked(hooked):
    hooked(TTRL)
    strategy = SimpleNamespace(args=host_arguments(1, 3))
    loading = group_of(process([]), process([])).async_init_model_from_pretrained(strategy, "model")
    assert loading == [(strategy, "model")] * 2


def experiences(label):
    arguments = host_arguments(1, 3)
    return maker_of(arguments).make_experience_batch(drawn_by_the_host(SCRIPT, [label], arguments))


def policy():
    """The host's own trainer of the policy, with its own loss, over a model that is never asked to learn."""
    trainer = ActorPPOTrainer.__new__(ActorPPOTrainer)
    trainer.args = host_arguments(1, 3)
    trainer.strategy = SimpleNamespace(ring_attn_group=None)
    trainer.actor_loss_fn = PolicyLoss()
    trainer.actor = Model()
    return trainer


class Model:
    def train(self):
        pass

    def __call__(self, sequences, action_mask, **_):
        return torch.zeros(action_mask.shape), None


def micro_batch(experiences):
    """As the host hands it to the policy (trainer/ppo_utils/replay_buffer.py), on the device that is there."""
    needs_its_accelerator()
    buffer = NaiveReplayBuffer(3)
    for experience in experiences:
        buffer.append(experience)
    return buffer.collate_fn(buffer.items)


def test_a_policy_without_the_hook_cannot_train_on_what_a_hooked_trainer_sends(hooked):
    hooked(TTRL)
    sent = micro_batch(experiences(label=""))
    assert sent.advantages is None
    expect_no_more(instrument.CONTRACT)
    with pytest.raises(TypeError, match="NoneType"):
        policy().training_step(sent, 0.0, 0, BATCH)


def test_a_hooked_policy_refuses_what_a_trainer_without_the_hook_sends(hooked, agent_alone):
    agent_alone("method: {name: ttrl}")
    sent = micro_batch(experiences(label=""))
    assert sent.advantages is not None
    hooked(TTRL)
    with pytest.raises(
        HookNotActiveError, match="trainer process that computed these rollouts' advantages is not hooked"
    ):
        policy().training_step(sent, 0.0, 0, BATCH)


def test_a_hooked_trainer_refuses_rollouts_that_nobody_scored(hooked, agent_alone):
    agent_alone("method: {name: ttrl}")
    drawn = drawn_by_the_host(SCRIPT, [""], host_arguments(1, 3))
    hooked(TTRL)
    with pytest.raises(HookNotActiveError, match="3 of a prompt's 3 rollouts carry no advantages"):
        maker_of(host_arguments(1, 3)).make_experience_batch(drawn)


def test_a_rollout_actor_of_a_hooked_run_draws_nothing_without_the_hook(hooked):
    hooked(TTRL)
    expect_no_more(instrument.CONTRACT)
    with pytest.raises(HookNotActiveError, match=r"runs without the RESTRAIN hook\. Start with `restrain train`"):
        AgentExecutor()


def test_a_prompt_that_came_from_a_process_without_the_hook_is_not_drawn(hooked):
    """Its dataset was not marked; nobody may take a training prompt for evaluation."""
    hooked(TTRL)
    with pytest.raises(HookNotActiveError, match="runs with the RESTRAIN hook, and another runs without it"):
        asyncio.run(asked(ScriptedActor(SCRIPT), "1+1=", "", 3))


def test_the_message_survives_the_way_through_ray():
    error = HookNotActiveError("Found this.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).startswith("Found this. Start with `restrain train`")
