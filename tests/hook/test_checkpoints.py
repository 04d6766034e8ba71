"""A full disk or a kill takes no whole checkpoint, and what is half written counts as none."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.checkpoints import checkpoint_bytes, drop_unfinished, save_ckpt
from tests.conftest import ROOT

WHOLE = {"model_states.pt": "weights", "optim_states.pt": "moments"}


@dataclass
class Parameter:
    """A torch parameter; `elements` is what numel() says."""

    elements: int
    requires_grad: bool = True

    def numel(self):
        return self.elements


def sharded(elements, requires_grad=True):
    """As DeepSpeed's ZeRO 3 has it: the tensor is empty, its size is in ds_numel."""
    made = Parameter(0, requires_grad)
    made.ds_numel = elements
    return made


def test_a_checkpoint_has_fourteen_bytes_for_every_trained_parameter_and_a_tenth_more():
    assert checkpoint_bytes([Parameter(600), Parameter(400)]) == 15_400


def test_parameters_that_zero_3_has_sharded_weigh_as_much():
    assert checkpoint_bytes([sharded(600), sharded(400)]) == 15_400


def test_frozen_parameters_are_left_out():
    assert checkpoint_bytes([Parameter(1000, requires_grad=False), sharded(100)]) == 1_540


class Engine:
    """A DeepSpeed engine that keeps what it was asked to save."""

    def __init__(self, parameters=()):
        self.parameters, self.saved = lambda: parameters, []

    def save_checkpoint(self, save_dir, tag, **_):
        self.saved.append((save_dir, tag))


def asked(model, save_dir, tag="global_step1", max_num=3, max_mem=1000, client_state=None, save_latest=False,
          metric_value=None, metric_key=None):  # fmt: skip
    """What the host's own method takes."""
    pytest.fail("the host's own method deletes before it writes")


def saving(monkeypatch, folder, parameters, free):
    """What is saved where so many bytes are free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    model = Engine(parameters)
    strategy = SimpleNamespace(_unwrap_model=lambda engine: engine, is_rank_0=lambda: False)
    save_ckpt(asked, strategy, (model, str(folder)), {})
    return model.saved


@pytest.mark.parametrize("make", [Parameter, sharded])
def test_a_disk_that_is_too_full_is_told_before_anything_is_written(monkeypatch, tmp_path, make):
    eight_billion = [make(8_000_000_000)]
    with pytest.raises(CheckpointError, match=r"needs about 123.2 GB, 120.0 GB are free\. Free some space"):
        saving(monkeypatch, tmp_path / "new", eight_billion, free=120_000_000_000)
    assert len(saving(monkeypatch, tmp_path / "new", eight_billion, free=124_000_000_000)) == 1


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What the host's saving leaves behind where it is killed: {case: {signal, left}}, and the folder of the cases."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    out = tmp_path_factory.mktemp("killed")
    words = [sys.executable, "-m", "tests.hook.killed_saving_case", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), out


def whole(left, folder="_actor"):
    """The checkpoints of which every part is there, and the one that `latest` names."""
    tags = {Path(name).parent.name for name in left if Path(name).name in WHOLE and name.startswith(folder)}
    complete = {tag for tag in tags if all(left.get(f"{folder}/{tag}/{name}") == text for name, text in WHOLE.items())}
    return complete, left.get(f"{folder}/latest")


@pytest.mark.host
@pytest.mark.parametrize(
    ("case", "survivor"),
    [
        ("one_checkpoint_alone", "global_step1"),
        ("the_best_one", "best_global_step1"),
        ("gone_on_after_a_kill", "global_step2"),
    ],
)
def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before_it(killed, case, survivor):
    found = killed[0][case]
    assert found["signal"] == signal.SIGKILL
    assert whole(found["left"]) == ({survivor}, survivor)


@pytest.mark.host
def test_as_many_checkpoints_are_kept_as_were_asked_for(killed):
    """Of steps 1 to 6: the new one, whatever its metric, and the best two (0.9 and 0.8) of the others."""
    found = killed[0]["all_are_written"]
    assert found["signal"] == 0
    assert whole(found["left"]) == ({"global_step2", "global_step3", "global_step6"}, "global_step6")


@pytest.mark.host
def test_a_model_that_a_kill_left_half_written_is_none_and_the_whole_one_before_it_stays(killed):
    """The run goes on from step 4's checkpoint, so that step 5 is logged: it does not make step 4's model whole."""
    from restrain_openrlhf.run.folder import RunFolder
    from test_time.checkpoints import prune, saved_models
    from tests.test_time.steps import steps

    found, out = killed
    assert found["a_model_beside_a_whole_one"]["signal"] == signal.SIGKILL
    run = RunFolder(out / "run")
    run.path.mkdir()
    (out / "a_model_beside_a_whole_one").rename(run.checkpoints)
    rows = steps(6, majority=[0.1, 0.1, 0.1, 0.9, 0.9, 0.9])
    assert [model.step for model in saved_models(run, rows)] == [2]
    prune(run, rows, None)
    assert loads(run.checkpoints / "global_step2_hf")
    assert not (run.checkpoints / "global_step4_hf").exists()


@pytest.mark.host
def test_the_model_at_the_end_is_whole_or_as_it_was_and_nothing_beside_it_goes(killed):
    found, out = killed
    assert found["the_model_at_the_end"]["signal"] == signal.SIGKILL
    assert loads(out / "the_model_at_the_end")
    left = found["the_model_at_the_end"]["left"]
    assert whole(left, "checkpoints/_actor") == ({"global_step1"}, "global_step1")


def loads(folder):
    """As whoever uses it would; the weights are those that were saved."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(folder)
    one, other = (load_file(path / "model.safetensors") for path in (folder, ADDITION.model))
    return all(one[name].equal(tensor) for name, tensor in other.items() if name in one)


def test_a_first_checkpoint_that_was_not_finished_is_removed_before_the_host_takes_it_for_one(tmp_path):
    (tmp_path / "_actor" / "global_step2").mkdir(parents=True)
    drop_unfinished({"ckpt.path": tmp_path, "ckpt.load_enable": False})
    assert (tmp_path / "_actor").exists()
    drop_unfinished({"ckpt.path": tmp_path, "ckpt.load_enable": True})
    assert not (tmp_path / "_actor").exists()
    (tmp_path / "_actor" / "global_step2").mkdir(parents=True)
    (tmp_path / "_actor" / "latest").write_text("global_step2")
    drop_unfinished({"ckpt.path": tmp_path, "ckpt.load_enable": True})
    assert (tmp_path / "_actor" / "global_step2").exists()
