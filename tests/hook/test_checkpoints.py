"""A full disk or a kill takes no whole checkpoint, and what is half written counts as none."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.errors import CheckpointError
from restrain_openrlhf.hook.fixes.checkpoints import drop_unfinished, save_ckpt
from tests.processes import needs_its_accelerator, printed

WHOLE = {"model_states.pt": "weights", "optim_states.pt": "moments"}


class Engine:
    """A DeepSpeed engine that cannot write."""

    def __init__(self, error):
        self.error = error

    def save_checkpoint(self, *_, **__):
        raise self.error


def asked(model, save_dir, tag="global_step1", max_num=3, max_mem=1000, client_state=None, save_latest=False,
          metric_value=None, metric_key=None):  # fmt: skip
    """What the host's own method takes."""
    pytest.fail("the host's own method deletes before it writes")


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (OSError(28, "No space left on device"), CheckpointError, r"No space left on device\. Free some space"),
        (RuntimeError("PytorchStreamWriter failed writing file"), CheckpointError, r"failed writing file\. Free some"),
        (RuntimeError("unexpected pos 64 vs 0"), CheckpointError, "could not be written: unexpected pos"),
        (RuntimeError("NCCL"), RuntimeError, "^NCCL$"),
    ],
)
def test_a_disk_that_is_too_full_is_told_with_the_way_on(tmp_path, error, raised, message):
    strategy = SimpleNamespace(_unwrap_model=lambda engine: engine, is_rank_0=lambda: False)
    with pytest.raises(raised, match=message):
        save_ckpt(asked, strategy, (Engine(error), str(tmp_path)), {})


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What the host's saving leaves behind where it is killed: {case: {signal, left}}, and the folder of the cases."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    needs_its_accelerator()
    out = tmp_path_factory.mktemp("killed")
    (said,) = printed(("-m", "tests.hook.killed_saving_case", out))
    return json.loads(said.splitlines()[-1]), out


def whole(left, folder="_actor"):
    """The checkpoints of which every part is there, and the one that `latest` names."""
    tags = {Path(name).parent.name for name in left if Path(name).name in WHOLE and name.startswith(folder)}
    complete = {tag for tag in tags if all(left.get(f"{folder}/{tag}/{name}") == text for name, text in WHOLE.items())}
    return complete, left.get(f"{folder}/latest")


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


def test_as_many_checkpoints_are_kept_as_were_asked_for(killed):
    """Of steps 1 to 6: the new one, whatever its metric, and the best two (0.9 and 0.8) of the others."""
    found = killed[0]["all_are_written"]
    assert found["signal"] == 0
    assert whole(found["left"]) == ({"global_step2", "global_step3", "global_step6"}, "global_step6")


def test_a_model_that_a_kill_left_half_written_is_none_and_the_whole_one_before_it_stays(killed):
    """The run goes on from step 4's checkpoint, so that step 5 is logged: it does not make step 4's model whole."""
    from restrain_openrlhf.hook.launch.stop_rules import prune, saved_models
    from restrain_openrlhf.records.folder import RunFolder
    from tests.records.steps import steps

    found, out = killed
    assert found["a_model_beside_a_whole_one"]["signal"] == signal.SIGKILL
    run = RunFolder(out / "run")
    run.path.mkdir()
    (out / "a_model_beside_a_whole_one").rename(run.checkpoints)
    rows = steps(6, majority=[0.1, 0.1, 0.1, 0.9, 0.9, 0.9])
    assert list(saved_models(run, rows)) == [2]
    prune(run, rows, None)
    assert loads(run.checkpoints / "global_step2_hf")
    assert not (run.checkpoints / "global_step4_hf").exists()


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
