"""LoRA: whole weights under the base model's names, for vLLM and for the saved model; the base is never written."""

import copy
import json
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import ray
from peft import LoraConfig, TaskType, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.fixes.lora import (
    WholeModel,
    make_policy_the_reference,
    refuse_shared_weights,
    rounded,
    run_without_adapter,
    whole_weights,
)
from tests.processes import free_port, needs_its_accelerator, printed

SMALL = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip


def qwen(tied):
    """With biases in its attention."""
    return Qwen2ForCausalLM(Qwen2Config(**SMALL, tie_word_embeddings=tied))


MODELS = {
    "tied": lambda: qwen(True),
    "untied": lambda: qwen(False),
    # Its layers keep their weights the other way around.
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=16, n_layer=2, n_head=2, n_positions=32)),
}


def adapted(base, target_modules="all-linear", trained=True, dtype=torch.float32):
    """A LoRA model as the host makes one; `trained` gives B values, which begins as 0."""
    torch.manual_seed(0)
    settings = {"r": 4, "lora_alpha": 8, "fan_in_fan_out": isinstance(base, GPT2LMHeadModel)}
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, target_modules=target_modules, **settings)
    model = get_peft_model(base.to(dtype), config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if trained and ("lora_B" in name or "lora_embedding_A" in name):
                parameter.normal_(std=0.1)
    return model


def whole(model):
    return dict(whole_weights(model, model.get_base_model().named_parameters()))


@pytest.fixture(params=MODELS)
def base(request):
    torch.manual_seed(1)
    return MODELS[request.param]()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target_modules", ["all-linear", ["q_proj", "down_proj", "c_attn"]], ids=["all", "some"])
def test_whole_weights_are_the_sums_names_and_types_of_the_merged_model(base, target_modules, dtype):
    """By peft's merge in fp64; in bf16 each is one of the sum's two neighbours."""
    model = adapted(base, target_modules, dtype=dtype)
    ours = {name: tensor.data.clone() for name, tensor in whole(model).items()}
    state = WholeModel(model).state_dict()
    merged = copy.deepcopy(model).double().merge_and_unload()
    assert list(ours) == [name for name, _ in merged.named_parameters()]
    spacing = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-20
    for name, parameter in merged.named_parameters():
        assert ours[name].dtype == dtype
        assert ((ours[name].double() - parameter).abs() <= spacing * parameter.abs() + 1e-7).all()
    assert state.keys() == merged.state_dict().keys(), "tied heads included, as the host wants them"
    assert all(torch.equal(state[name], tensor) for name, tensor in ours.items())


def of_a_real_size(model):
    """B after some steps of a learning rate of 1e-5: far below the spacing of bf16 numbers at the base's weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0).add_(2e-5 * torch.randn_like(parameter))
    return model


def test_a_young_adapters_update_is_in_the_whole_weights():
    """What layers compute with them, against peft's unmerged layers in fp64, which adds nothing to the base."""
    model = of_a_real_size(adapted(qwen(False), dtype=torch.bfloat16))
    ours = {name: tensor.data.double() for name, tensor in whole(model).items()}
    exact = copy.deepcopy(model).double()
    shares, nearest = [], []
    for name, layer in exact.get_base_model().named_modules():
        if hasattr(layer, "base_layer"):
            x = torch.randn(512, layer.in_features, dtype=torch.float64)
            base, moved = layer.base_layer(x), (layer(x) - layer.base_layer(x)).detach()
            weight, bias = ours[f"{name}.weight"], layer.base_layer.bias
            shares.append(share(torch.nn.functional.linear(x, weight, bias) - base, moved))
            rounded_once = (layer.base_layer.weight + layer.get_delta_weight("default")).bfloat16().double()
            nearest.append(share(torch.nn.functional.linear(x, rounded_once, bias) - base, moved))
    assert sum(nearest) / len(nearest) < 0.4, "peft's merge loses it, so that this test can see a loss"
    assert sum(shares) / len(shares) == pytest.approx(1.0, abs=0.25)


def share(found, wanted):
    return float((found.detach() * wanted).sum() / wanted.square().sum())


def test_rounding_is_even_in_both_directions_and_the_same_at_every_call():
    """Sums between two bf16 numbers, 1 and 1 + 2^-7, and their negatives: as many go up as they are far on the way."""
    for way in (0.01, 0.25, 0.5, 0.9):
        for sign in (1, -1):
            sums = torch.full((400, 500), sign * (1 + way * 2**-7))
            found = rounded(sums, torch.bfloat16, "layer")
            assert set(found.unique().tolist()) == {sign * 1.0, sign * (1 + 2**-7)}
            assert float((found.double().abs().mean() - 1) * 2**7) == pytest.approx(way, abs=0.005)
            assert torch.equal(found, rounded(sums, torch.bfloat16, "layer"))
    assert not torch.equal(found, rounded(sums, torch.bfloat16, "another layer"))


def test_what_bf16_holds_is_kept_to_the_bit_and_other_types_round_as_torch_does():
    held = torch.cat([torch.randn(1000), torch.tensor([0.0, -0.0, 3e38, 1e-40, float("inf")])]).bfloat16()
    assert torch.equal(rounded(held.float(), torch.bfloat16, "layer"), held)
    sums = torch.randn(1000)
    assert torch.equal(rounded(sums, torch.float32, "layer"), sums)
    assert torch.equal(rounded(sums, torch.float16, "layer"), sums.half())


def test_the_base_is_not_written(base):
    before = {name: parameter.clone() for name, parameter in base.named_parameters()}
    untrained, model = adapted(base, trained=False, dtype=torch.bfloat16), None
    assert all(torch.equal(tensor.data, before[name].bfloat16()) for name, tensor in whole(untrained).items())
    model = adapted(untrained.unload(), dtype=torch.bfloat16)
    changed = [name for name, tensor in whole(model).items() if not torch.equal(tensor.data, before[name].bfloat16())]
    assert len(changed) > 7
    left = model.unload().named_parameters()
    assert all(torch.equal(parameter, before[name].bfloat16()) for name, parameter in left)


@pytest.mark.parametrize("name", ["lm_head", "embed_tokens"])
def test_an_adapter_on_one_of_two_tied_layers_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name}.*are one shared weight"):
        refuse_shared_weights(adapted(qwen(True), [name]))
    refuse_shared_weights(adapted(qwen(False), [name]))
    refuse_shared_weights(adapted(qwen(True)))


def test_all_linear_is_understood_as_it_comes_from_the_command_line(hooked, tmp_path):
    from openrlhf.models import Actor

    hooked({"name": "ttrl"})
    qwen(True).save_pretrained(tmp_path)
    actor = Actor(str(tmp_path), attn_implementation="sdpa", lora_rank=2, target_modules=["all-linear"])
    layers = {name.split(".")[-4] for name, each in actor.model.named_parameters() if each.requires_grad}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


class Engine:
    """A handle of a vLLM engine that keeps the weights it is sent, by name."""

    def __init__(self, broadcast):
        self.received, self.last = {}, []
        self.update_weight = SimpleNamespace(remote=self._update_weight)
        self.update_weight_cuda_ipc = SimpleNamespace(remote=self._update_weight_cuda_ipc)
        self._broadcast = broadcast

    def _update_weight(self, name, dtype, shape, empty_cache):
        self._broadcast.expected = (self, name, dtype, shape)
        self.last.append(empty_cache)

    def _update_weight_cuda_ipc(self, name, dtype, shape, ipc_handles, empty_cache):
        function, words = ipc_handles["gpu"]
        weight = function(*words)
        assert (weight.dtype, weight.shape) == (dtype, shape)
        self.received[name] = weight.clone()
        self.last.append(empty_cache)


class Broadcast:
    """Stands for the group of trainer and engines."""

    def broadcast(self, tensor, src, stream):
        engine, name, dtype, shape = self.expected
        assert (tensor.dtype, tensor.shape) == (dtype, shape)
        engine.received[name] = tensor.clone()


@pytest.fixture(params=[False, True], ids=["broadcast", "cuda-ipc"])
def sync(request, hooked, monkeypatch):
    """The host's own weight sync of a model, in either way; gives the engine that received it."""
    from openrlhf.trainer.ray import ppo_actor

    hooked({"name": "ttrl"})
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    monkeypatch.setattr(torch.distributed, "all_gather_object", lambda into, one: into.__setitem__(0, one))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(ppo_actor, "torch_dist_barrier_and_cuda_sync", lambda: None)
    monkeypatch.setattr(ppo_actor, "get_physical_gpu_id", lambda: "gpu")

    def run(model):
        group = Broadcast()
        trainer = ppo_actor.ActorPPOTrainer.__new__(ppo_actor.ActorPPOTrainer)
        vllm = SimpleNamespace(enable_prefix_caching=False, sync_with_ray=False)
        args = SimpleNamespace(vllm=vllm, ds=SimpleNamespace(zero_stage=2, tensor_parallel_size=1))
        trainer.strategy = SimpleNamespace(args=args, _unwrap_model=lambda actor: actor.model.module)
        trainer.actor = SimpleNamespace(model=SimpleNamespace(module=model), is_vlm=False)
        trainer.vllm_engines, trainer._model_update_group = [Engine(group)], group
        trainer.use_cuda_ipc = request.param
        trainer.broadcast_to_vllm()
        return trainer.vllm_engines[0]

    return run


def test_the_hosts_sync_sends_whole_weights_under_plain_names(sync, base):
    model = adapted(base, dtype=torch.bfloat16)
    engine = sync(model)
    assert "named_parameters" not in vars(model), "the model is as it was"
    expected = {name: tensor.data for name, tensor in whole(model).items()}
    assert list(engine.received) == list(expected)
    assert all(torch.equal(engine.received[name], tensor) for name, tensor in expected.items())
    assert engine.last == [False] * (len(engine.received) - 1) + [True], "the CPU loads at the last one"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A LoRA policy of the host under DeepSpeed's ZeRO 2, in a process of its own."""
    needs_its_accelerator()
    (said,) = printed(("-m", "tests.hook.lora_case", free_port(), tmp_path_factory.mktemp("lora"), 2))
    return json.loads(said.strip().splitlines()[-1])


def test_training_moves_the_adapter_alone(trained):
    assert trained["moved"] > 0.1
    assert trained["frozen_moved"] == trained["trained_still"] == []


def test_the_reference_policy_is_the_base_to_the_bit_before_and_after_training(trained):
    """And asking it between two steps does not disturb the second."""
    assert trained["gap_at_first"] == 0.0
    assert trained["base_after_training"]


def test_a_checkpoint_holds_the_adapter_alone_and_training_goes_on_from_it(trained):
    assert trained["in_checkpoint"] == ["lora_A", "lora_B"]
    assert trained["resumed"]
    assert "Unexpected key(s)" in trained["other_adapter"], "another adapter's checkpoint is refused"


def test_the_saved_model_is_whole_and_has_its_adapter_beside_it(trained):
    assert trained["saved_whole"]
    assert {"model.safetensors", "adapter/adapter_model.safetensors"} <= set(trained["files"])


@pytest.mark.parametrize(("kind", "rank", "killed"), [("reference", 8, 2), ("reference", 0, 0), ("policy", 8, 0)])
def test_a_lora_run_has_no_second_copy_of_the_base(hooked, monkeypatch, kind, rank, killed):
    from openrlhf.trainer.ray import launcher, ppo_actor

    from tests.hook.test_unhooked import group_of, process

    hooked({"name": "ttrl"})
    group, ended = group_of(process([]), process([])), []
    actors = {"policy": ppo_actor.PolicyModelActor, "reference": launcher.ReferenceModelActor}
    group.ray_actor_type = actors[kind]
    monkeypatch.setattr(ray, "kill", ended.append)
    strategy = SimpleNamespace(args=SimpleNamespace(ds=SimpleNamespace(lora=SimpleNamespace(rank=rank))))
    loaded = group.async_init_model_from_pretrained(strategy, "model")
    assert (len(loaded), ended) == ((0, group._actor_handlers) if killed else (2, []))


def test_what_is_for_the_reference_policy_goes_to_the_policy_without_its_adapter(hooked):
    """The host's own dispatch, over handles that say what reaches them."""
    from openrlhf.trainer.ray.launcher import RayActorGroup

    from tests.hook.in_process import host_arguments, maker_of

    hooked({"name": "ttrl"})
    asked = []
    handle = SimpleNamespace(
        __ray_call__=SimpleNamespace(remote=lambda function, *words: asked.append((function, *words)) or [None] * 2),
        empty_cache=SimpleNamespace(remote=lambda: asked.append("emptied")),
    )
    maker = maker_of(host_arguments(1, 2, **{"ds.lora.rank": 8}))
    policy = RayActorGroup.__new__(RayActorGroup)
    policy._actor_handlers, policy.duplicate_actors = [handle], 1
    maker.actor_model_group, maker.initial_model_group = policy, "a group of its own"
    make_policy_the_reference(maker)
    maker._dispatch_forward(maker.initial_model_group, True, sequences=["a", "b"])
    ((function, method, _, *places), emptied) = asked
    assert (function, method, places, emptied) == (run_without_adapter, "forward", [0, 2], "emptied")
