"""The GPUs of a layout are those that OpenRLHF's own start asks Ray for: its `train`, run up to its trainer."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.machine.devices import detect

detect().install()

from openrlhf.cli import train_ppo_ray  # noqa: E402
from openrlhf.trainer.ray import launcher, vllm_engine  # noqa: E402
from openrlhf.utils.config import hierarchize  # noqa: E402

from restrain_openrlhf.config.gpu_layout import GpuLayout  # noqa: E402
from restrain_openrlhf.config.host_flags import parse, to_arguments  # noqa: E402


class Ray:
    """Counts the GPUs of placement groups, and of actors that are in none. Everything that is asked of it is ready."""

    def __init__(self) -> None:
        self.gpus = 0.0

    def group(self, bundles: list[dict[str, float]], **_: Any) -> SimpleNamespace:
        self.gpus += sum(bundle["GPU"] for bundle in bundles)
        return SimpleNamespace(ready=lambda: None)

    def actor(self) -> Any:
        def options(num_gpus: float = 0, scheduling_strategy: object = None, **_: Any) -> Any:
            self.gpus += 0 if scheduling_strategy else num_gpus
            return SimpleNamespace(remote=lambda *_a, **_k: Handle())

        return SimpleNamespace(options=options)


class Handle:
    """An actor: every method has a `remote`."""

    def __getattr__(self, _name: str) -> Any:
        return SimpleNamespace(remote=lambda *_a, **_k: None)


class TrainerStartedError(Exception):
    """All that training asks Ray for has been asked for."""


@pytest.fixture
def gpus_of(monkeypatch):
    """The GPUs that the host's own start asks Ray for with these flags."""

    def trainer(*_: object, **__: object) -> None:
        raise TrainerStartedError

    def count(flags: dict[str, object]) -> float:
        seen = Ray()
        ray = SimpleNamespace(is_initialized=lambda: True, get=lambda _ref: ("host", 1), remote=lambda kind: kind)
        for module in (train_ppo_ray, launcher, vllm_engine):
            monkeypatch.setattr(module, "ray", ray)
            monkeypatch.setattr(module, "placement_group", seen.group)
        for module in (launcher, vllm_engine):
            monkeypatch.setattr(module, "PlacementGroupSchedulingStrategy", lambda **_: "in a group")
        monkeypatch.setattr(vllm_engine, "get_bundle_indices", lambda _group, index, size: [index * size])
        monkeypatch.setattr(train_ppo_ray, "get_strategy", lambda _args: SimpleNamespace(print=lambda _: None))
        for name in ("PolicyModelActor", "ReferenceModelActor", "RewardModelActor", "CriticModelActor"):
            monkeypatch.setattr(train_ppo_ray, name, seen.actor())
        monkeypatch.setattr(vllm_engine, "RolloutRayActor", seen.actor())
        for name in ("ppo_trainer.PPOTrainer", "ppo_trainer_async.PPOTrainerAsync"):
            monkeypatch.setattr(f"openrlhf.trainer.{name}", SimpleNamespace(remote=trainer))
        args = hierarchize(parse(to_arguments({**flags, "train.agent_func_path": "agent.py"})))
        # As the host's own command line does with an agent.
        args.reward.remote_url = "agent"
        with pytest.raises(TrainerStartedError):
            train_ppo_ray.train(args)
        return seen.gpus

    return count


SEPARATE = {"actor.num_gpus_per_node": 1, "ref.num_gpus_per_node": 1, "vllm.num_engines": 2}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"algo.kl.init_coef": 0},
        {"train.colocate_actor_ref": True},
        {"train.colocate_all": True, "vllm.num_engines": 1},
        {"train.colocate_all": True, "train.async_enable": True},
        {"actor.num_nodes": 2, "actor.num_gpus_per_node": 4, "vllm.tensor_parallel_size": 2},
    ],
    ids=str,
)
def test_what_a_layout_is_said_to_need_is_what_the_host_asks_for(gpus_of, changed):
    flags = {"actor.model_name_or_path": "m", **SEPARATE, **changed}
    assert GpuLayout.of(vars(parse(to_arguments(flags)))).needed == gpus_of(flags)
