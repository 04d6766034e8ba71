"""The hook's functions are reached whatever else wraps a method of the host, in every order."""

import sys
from itertools import permutations
from types import ModuleType, SimpleNamespace

import pytest
import wrapt

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.hook.install import instrument
from restrain_openrlhf.hook.install.instrument import PATCHES, report
from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.patching import Replacement, Wrapping, expect, expect_no_more, is_expected
from tests.hook.test_unhooked import group_of, process

HERE = __name__
ADAM = {"type": "AdamW", "params": {"lr": 1e-6}}


def ours(wrapped, _host, args, kwargs):
    return ["ours", *wrapped(*args, **kwargs)]


def instead(_host, number):
    return ["ours", number]


def foreign(wrapped, _host, args, kwargs):
    return ["foreign", *wrapped(*args, **kwargs)]


@pytest.fixture
def host(monkeypatch):
    """A made-up module of the host; the method says what a call of it ran through."""

    class Host:
        def step(self, number):
            return [number]

    module = ModuleType("made_up_host")
    module.Host = Host
    monkeypatch.setitem(sys.modules, "made_up_host", module)
    return Host


def wrap(host):
    wrapt.wrap_function_wrapper(host, "step", foreign)


@pytest.mark.parametrize(("kind", "function"), [(Wrapping, "ours"), (Replacement, "instead")])
@pytest.mark.parametrize("order", sorted(set(permutations(["ours", "ours", "foreign", "foreign"]))))
def test_ours_is_reached_once_and_leaves_alone(kind, function, order, host):
    patch = kind("made_up_host", "Host.step", "(self, number)", f"{HERE}:{function}")
    for who in order:
        if who == "ours":
            patch.apply()
        else:
            wrap(host)
    reached = host().step(3)
    assert reached.count("ours") == 1
    assert patch.is_on()
    if kind is Wrapping:
        assert reached.count("foreign") == 2


@pytest.fixture
def strategy(monkeypatch):
    """The host's strategy of dynamic batches under ZeRO 2, where nothing compiles; as it was after the test."""
    detect().install()
    is_this_stacks = is_expected(cuda.ADAM)
    from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy

    monkeypatch.setattr(cuda, "why_not_compiled", lambda: "there is no nvcc")
    expect_no_more([*instrument.CONTRACT, cuda.ADAM])
    yield DeepspeedStrategy
    expect_no_more([*instrument.CONTRACT, cuda.ADAM])
    if is_this_stacks:
        expect([cuda.ADAM])


def config_of(strategy):
    made = strategy.__new__(strategy)
    named = ("param_dtype", "zpg", "grad_accum_dtype", "overlap_comm", "use_ds_universal_ckpt", "deepcompile")
    values = dict.fromkeys(named) | {"param_dtype": "bf16", "zpg": 1, "adam_offload": False, "max_norm": 1.0}
    vars(made).update(values, stage=2, use_dynamic_batch=True, ds_tensor_parallel_size=1)
    config = made.get_ds_train_config(ADAM, max_norm=1.0)
    return config.get("managed_gradient_accumulation", True), config["optimizer"]["params"].get("torch_adam", False)


def adam():
    expect([cuda.ADAM])


@pytest.mark.parametrize("first", ["cuda", "hook"])
def test_cudas_adam_and_every_micro_batchs_gradient_are_had_in_both_orders(strategy, first):
    steps = [adam, instrument.install] if first == "cuda" else [instrument.install, adam]
    assert config_of(strategy) == (True, False)
    for step in (*steps, *steps):
        step()
    assert config_of(strategy) == (False, True)


def test_a_process_that_lost_one_of_our_functions_says_so_and_loads_no_model(strategy, hooked):
    assert report(None) is None
    hooked({"name": "ttrl"})
    assert report(None) == []
    lost = next(patch for patch in PATCHES if patch.qualname == "DeepspeedStrategy.get_ds_train_config")
    expect_no_more([lost])
    wrapt.wrap_function_wrapper(
        strategy, "get_ds_train_config", lambda wrapped, _, args, kwargs: wrapped(*args, **kwargs)
    )
    said = report(None)
    assert said == ["openrlhf.utils.deepspeed.deepspeed.DeepspeedStrategy.get_ds_train_config"]
    group = group_of(process([]), process(said))
    with pytest.raises(
        HookNotActiveError, match=r"on in ReferenceModelActor processes, but not in .*get_ds_train_config"
    ):
        group.async_init_model_from_pretrained(SimpleNamespace(), "model")
    strategy.get_ds_train_config = vars(strategy)["get_ds_train_config"].__wrapped__
