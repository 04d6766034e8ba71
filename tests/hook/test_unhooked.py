"""A process without the hook cannot train: each of the four bars, against the host's own classes."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack (make install)")
pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = pytest.mark.host

from restrain_openrlhf.devices import detect  # noqa: E402

detect().install()

from openrlhf.models import PolicyLoss  # noqa: E402
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer  # noqa: E402
from openrlhf.trainer.ray.launcher import RayActorGroup, ReferenceModelActor  # noqa: E402
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer  # noqa: E402

from restrain_openrlhf.errors import HookNotActiveError  # noqa: E402
from restrain_openrlhf.hook import instrument  # noqa: E402
from restrain_openrlhf.hook.handshake import report  # noqa: E402
from tests.hook.in_process import drawn_by_the_host, host_arguments, maker_of  # noqa: E402

TTRL = {"name": "ttrl"}
SCRIPT = {"1+1=": [r"\boxed{2}", r"\boxed{2}", r"\boxed{3}"]}
BATCH = {"dp_size": 1, "batch_num_tokens": 27.0, "global_batch_size": 3}


def process(is_hooked):
    """A handle of a model's actor process, which answers as `report` does there."""
    call = SimpleNamespace(remote=lambda function: is_hooked if function is report else None)
    load = SimpleNamespace(remote=lambda *args: args)
    return SimpleNamespace(__ray_call__=call, init_model_from_pretrained=load)


def group_of(*processes):
    group = RayActorGroup.__new__(RayActorGroup)
    group._actor_handlers, group.ray_actor_type = list(processes), ReferenceModelActor
    return group


def test_no_model_is_loaded_where_a_process_says_that_it_is_not_hooked(hooked):
    hooked(TTRL)
    group = group_of(process(True), process(False), process(True))
    with pytest.raises(HookNotActiveError, match="1 of 3 ReferenceModelActor processes run without the RESTRAIN hook"):
        group.async_init_model_from_pretrained("strategy", "model")


def test_models_are_loaded_by_the_host_where_every_process_is_hooked(hooked):
    hooked(TTRL)
    loading = group_of(process(True), process(True)).async_init_model_from_pretrained("strategy", "model")
    assert loading == [("strategy", "model")] * 2


def test_a_process_says_whether_it_is_hooked(hooked):
    assert report(None) is False
    hooked(TTRL)
    assert report(None) is True


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
    """As the host hands it to the policy (trainer/ppo_utils/replay_buffer.py)."""
    buffer = NaiveReplayBuffer(3)
    for experience in experiences:
        buffer.append(experience)
    return buffer.collate_fn(buffer.items)


def test_a_policy_without_the_hook_cannot_train_on_what_a_hooked_trainer_sends(hooked):
    hooked(TTRL)
    sent = micro_batch(experiences(label=""))
    assert sent.advantages is None
    instrument.uninstall()
    with pytest.raises(TypeError, match="NoneType"):
        policy().training_step(sent, 0.0, 0, BATCH)


def test_a_hooked_policy_refuses_what_a_trainer_without_the_hook_sends(hooked):
    sent = micro_batch(experiences(label="2"))
    assert sent.advantages is not None
    hooked(TTRL)
    with pytest.raises(HookNotActiveError, match="the trainer process that made them is not hooked"):
        policy().training_step(sent, 0.0, 0, BATCH)


def test_a_trainer_without_the_hook_has_no_reward_for_a_prompt_without_a_label(hooked):
    with pytest.raises(ValueError, match="reward_model_group is required"):
        experiences(label="")
