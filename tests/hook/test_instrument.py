"""The contract with the installed host, and switching the hook on and off."""

import importlib
import inspect
import re
import subprocess
import sys

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.hook.install import instrument
from restrain_openrlhf.hook.install.instrument import CONTRACT, PATCHES, install, is_active, uninstall
from restrain_openrlhf.machine import cuda
from restrain_openrlhf.machine.cuda import EXTENSION_LOCK
from restrain_openrlhf.machine.patching import (
    ORIGINAL,
    Replacement,
    expect,
    expect_no_more,
    is_expected,
    load,
    parameters,
)


def name_of(relied_on):
    return f"{relied_on.module.rsplit('.', 1)[-1]}.{relied_on.qualname}"


@pytest.fixture
def unhooked():
    """The host as it is, and again after the test."""
    for module in instrument.HOST_MODULES:
        importlib.import_module(module)
    uninstall()
    yield
    uninstall()


@pytest.mark.parametrize("relied_on", CONTRACT, ids=name_of)
def test_the_host_has_what_the_hook_relies_on(relied_on):
    relied_on.check()


# What CUDA needs beside the hook, on whatever stack is installed.
CUDAS = (cuda.ADAM, cuda.ATTENTION, EXTENSION_LOCK[-1])


@pytest.mark.parametrize("patch", [*PATCHES, *CUDAS], ids=name_of)
def test_a_host_whose_patched_method_takes_something_else_is_refused(patch, unhooked, monkeypatch):
    def changed(self, surprise): ...

    importlib.import_module(patch.module)
    is_this_stacks = is_expected(patch)
    expect_no_more([patch])
    with monkeypatch.context() as host:
        host.setattr(*patch.locate(), changed)
        with pytest.raises(HostError) as error:
            install() if patch in PATCHES else expect([patch])
        assert not patch.is_on()
    assert f"{patch.module}.{patch.qualname} takes (self, surprise)" in str(error.value)
    package = patch.module.partition(".")[0]
    assert f"written for {patch.accepted}. Install the {package} that `restrain doctor` names" in str(error.value)
    expect_no_more([patch])
    if is_this_stacks:
        expect([patch])


@pytest.mark.parametrize("relied_on", [each for each in CONTRACT if each not in PATCHES], ids=name_of)
def test_a_host_without_what_is_called_is_refused(relied_on, monkeypatch):
    """Each line of the record by itself, with another signature."""
    importlib.import_module(relied_on.module)
    monkeypatch.setattr(*relied_on.locate(), lambda surprise: None)
    with pytest.raises(HostError) as error:
        relied_on.check()
    assert "takes (surprise)" in str(error.value)
    assert relied_on.accepted in str(error.value)


def test_parameters_are_compared_by_name_order_and_kind():
    def host(first, second: int = 3, *, third=None, _ray_trace_ctx=None, **rest) -> None: ...

    assert parameters(host) == "(first, second, *, third, **rest)"


@pytest.mark.parametrize("patch", PATCHES, ids=name_of)
def test_a_patchs_function_takes_what_it_is_called_with(patch):
    taken = parameters(load(patch.ours))
    if isinstance(patch, Replacement):
        assert re.sub(r"\w+", "self", taken, count=1) in (patch.takes, patch.accepted, "(self, *args, **kwargs)")
    else:
        assert len(taken.split(", ")) == 4, f"wrapt calls {patch.ours} with the method, its object, args and kwargs"


def everything():
    """All that the modules of the contract define, and all that their classes do."""
    modules = [sys.modules[module] for module in instrument.HOST_MODULES]
    owners = modules + [patch.locate()[0] for patch in PATCHES]
    owners += [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    return {(id(owner), name): value for owner in owners for name, value in vars(owner).items()}


def test_the_hook_changes_what_is_in_its_table_alone(unhooked):
    before = everything()
    install()
    install()
    changed = {key for key, value in everything().items() if before.get(key) is not value}
    uninstall()
    places = [(patch, id(patch.locate()[0]), patch.locate()[1]) for patch in PATCHES]
    kept = {(owner, ORIGINAL + name) for patch, owner, name in places if isinstance(patch, Replacement)}
    assert changed == {(owner, name) for _, owner, name in places} | kept
    after = everything()
    assert before.keys() == after.keys()
    assert all(after[key] is value for key, value in before.items())
    assert not is_active()


def test_installing_imports_nothing_of_the_host():
    script = (
        "import sys; from restrain_openrlhf.hook.install.instrument import install; install(); "
        "print([name for name in ('torch', 'ray', 'openrlhf.trainer') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
