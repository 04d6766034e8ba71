"""The stand-ins for CUDA: each is checked against the module that it adapts."""

import importlib
import sys
from types import ModuleType

import pytest

pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
pytestmark = pytest.mark.host

from restrain_openrlhf.hook.devices import detect  # noqa: E402

if detect().name != "cpu":
    pytest.skip("the CUDA stack is installed; these adapt the CPU's", allow_module_level=True)
detect().install()

from restrain_openrlhf.cpu.host import STAND_INS  # noqa: E402
from restrain_openrlhf.errors import HostError  # noqa: E402
from restrain_openrlhf.hook.stand_ins import StandIn  # noqa: E402


@pytest.mark.parametrize("stand_in", STAND_INS, ids=lambda stand_in: stand_in.module)
def test_a_module_is_adapted_where_its_callables_take_what_is_expected(stand_in):
    """Checked as it is imported, before anything is changed; here it would be refused already."""
    module = importlib.import_module(stand_in.module)
    assert stand_in.takes
    own = "restrain_openrlhf.cpu"
    assert any(str(getattr(value, "__module__", None)).startswith(own) for value in things_in(module))


def things_in(module):
    return [*vars(module).values(), *(part for value in vars(module).values() for part in vars_of(value))]


def vars_of(value):
    return vars(value).values() if isinstance(value, type) else ()


def test_a_module_with_other_parameters_is_refused_and_left_as_it_is(monkeypatch):
    module, adapted = ModuleType("adapted_by_us"), []
    module.send = lambda tensor, rank: None
    monkeypatch.setitem(sys.modules, "adapted_by_us", module)
    StandIn("adapted_by_us", adapted.append, {"send": "(tensor, rank)"}).check_and_adapt(module)
    assert adapted == [module]
    with pytest.raises(HostError, match=r"adapted_by_us\.send takes \(tensor, rank\); .* written for \(tensor, peer\)"):
        StandIn("adapted_by_us", adapted.append, {"send": "(tensor, peer)"}).check_and_adapt(module)
    assert adapted == [module]
