"""What the checks of a layout accept passes OpenRLHF's and DeepSpeed's own checks of it, which are run here."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.machine.devices import detect

detect().install()

import ray  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402
from openrlhf.cli import train_ppo_ray as host  # noqa: E402
from openrlhf.trainer.ray.launcher import RayActorGroup  # noqa: E402

from restrain_openrlhf.config.gpu_layout import GpuLayout  # noqa: E402
from restrain_openrlhf.config.host_flags import parse  # noqa: E402
from tests.config.test_layout import first_reason, words_of  # noqa: E402


class AcceptedError(Exception):
    """The host has passed its assertions and makes its first models."""


def host_validation():
    """The statements between the host's `parser.parse_args()` and its `train(args)`."""
    block = next(node for node in ast.parse(Path(host.__file__).read_text()).body if isinstance(node, ast.If))
    (start,) = [i for i, node in enumerate(block.body) if "parse_args" in ast.dump(node)]
    assert "id='train'" in ast.dump(block.body[-1])
    return compile(ast.Module(block.body[start + 1 : -1], []), host.__file__, "exec")


VALIDATION = host_validation()


def pass_the_host(words, monkeypatch):
    """Raises what the host would raise for these words, until all of its models have their GPUs."""
    names = {"args": parse([*words, "--train.agent_func_path", "agent.py"])}
    exec(VALIDATION, names)
    groups = []

    def group(nodes, gpus, _kind, duplicate_actors, **_):
        made = object.__new__(RayActorGroup)
        made._actor_handlers = [
            SimpleNamespace(execute_batch=SimpleNamespace(remote=lambda _name, chunk, *_: chunk))
        ] * (nodes * gpus)
        made.duplicate_actors = duplicate_actors
        groups.append(made)
        return made

    def stop(*_, **__):
        raise AcceptedError

    monkeypatch.setattr(host.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(host.ray, "get", lambda refs: refs)
    monkeypatch.setattr(host, "placement_group", lambda *_, **__: SimpleNamespace(ready=lambda: None))
    monkeypatch.setattr(host, "get_strategy", lambda args: SimpleNamespace(print=lambda *_: None, args=args))
    monkeypatch.setattr(host, "create_vllm_engines", lambda *_, **__: ["engine"])
    monkeypatch.setattr(host, "RayActorGroup", group)
    monkeypatch.setattr("openrlhf.trainer.ppo_trainer.PPOTrainer", SimpleNamespace(remote=stop))
    monkeypatch.setattr("openrlhf.trainer.ppo_trainer_async.PPOTrainerAsync", SimpleNamespace(remote=stop))
    with pytest.raises(AcceptedError):
        host.train(names["args"])
    return names["args"], groups


def hand_out(groups, args, monkeypatch):
    """The host's own distribution of a step's micro-batches of rollouts; returns how many rollouts each rank got."""
    monkeypatch.setattr(ray, "put", lambda data: data)
    size = args.rollout.micro_batch_size
    rollouts = list(range(args.rollout.batch_size * args.rollout.n_samples_per_prompt))
    batches = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
    shares = []
    for group in groups:
        chunks = group.async_run_method_batch("append", experience=batches)
        shares.append([sum(map(len, chunk["experience"])) for chunk in chunks])
    return shares


def batch_of_deepspeed(args):
    """DeepSpeed's own sum of the batch that the host gives it (utils/deepspeed/deepspeed.py, get_ds_train_config)."""
    copies = args.ds.ring_attn_size * args.ds.tensor_parallel_size
    config = object.__new__(DeepSpeedConfig)
    config.world_size = args.actor.num_nodes * args.actor.num_gpus_per_node
    config.train_batch_size = args.train.batch_size * copies
    config.train_micro_batch_size_per_gpu = args.train.micro_batch_size
    config.gradient_accumulation_steps = None
    config._configure_train_batch_size()
    return config.gradient_accumulation_steps


GPUS = st.sampled_from([(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2)])
SELDOM = st.sampled_from([False, False, False, False, True])


@st.composite
def layouts(draw):
    """Small ones, mostly with as many GPUs for the reference policy as for the policy, so that many can run."""
    policy, is_asynchronous = draw(GPUS), draw(SELDOM)
    reference = draw(GPUS) if draw(SELDOM) else policy
    return {
        "actor.num_nodes": policy[0],
        "actor.num_gpus_per_node": policy[1],
        "ref.num_nodes": reference[0],
        "ref.num_gpus_per_node": reference[1],
        "vllm.num_engines": draw(st.sampled_from([1, 2, 4])),
        "vllm.tensor_parallel_size": draw(st.sampled_from([1, 1, 2])),
        "vllm.enable_sleep": draw(SELDOM),
        "train.colocate_all": draw(st.booleans()),
        "train.colocate_actor_ref": draw(st.booleans()),
        "train.async_enable": is_asynchronous,
        "algo.advantage.is_correction_level": "token" if is_asynchronous else "off",
        "train.partial_rollout_enable": draw(SELDOM),
        "train.dynamic_batch_enable": draw(SELDOM),
        "algo.kl.init_coef": draw(st.sampled_from([0, 0.001])),
        "ds.tensor_parallel_size": draw(st.sampled_from([1, 1, 2])),
        "rollout.batch_size": draw(st.sampled_from([2, 4, 6, 8])),
        "rollout.n_samples_per_prompt": draw(st.sampled_from([2, 4])),
        "rollout.micro_batch_size": draw(st.sampled_from([1, 2, 4, 64])),
        "rollout.vllm_generate_batch_size": 16 if draw(SELDOM) else None,
        "train.batch_size": draw(st.sampled_from([4, 8, 12, 16, 32])),
        "train.micro_batch_size": draw(st.sampled_from([1, 2, 4])),
    }


@settings(max_examples=400)
@given(changed=layouts())
def test_what_is_accepted_passes_the_hosts_own_assertions(changed):
    words = words_of(changed)
    if first_reason(vars(parse(words))):
        return
    with pytest.MonkeyPatch.context() as monkeypatch:
        args, groups = pass_the_host(words, monkeypatch)
        policy, *_ = shares = hand_out(groups, args, monkeypatch)
    assert len(shares) == 1 + (args.algo.kl.init_coef > 0)
    if not args.train.dynamic_batch_enable:
        assert len(set(policy)) == 1, "ranks with unequal rollouts wait for each other forever"
        assert batch_of_deepspeed(args) * args.train.micro_batch_size <= policy[0]
    assert GpuLayout.of(vars(parse(words))).ranks * policy[0] >= args.train.batch_size
