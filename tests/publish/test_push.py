"""Pushing to the hub, over a stand-in of its HTTP API that real huggingface_hub calls."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("huggingface_hub", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from tests.conftest import ROOT  # noqa: E402
from tests.processes import free_port  # noqa: E402
from tests.publish import stand_in_hub  # noqa: E402
from tests.publish.made_up import base_model, prepared_prompts, training_run  # noqa: E402

REPOSITORY = "me/my-model"


@pytest.fixture
def hub():
    with stand_in_hub.running() as hub:
        yield hub


@pytest.fixture
def run(tmp_path):
    return training_run(tmp_path / "run", base_model(tmp_path / "base"), prepared_prompts(tmp_path / "p.jsonl"))


def start(run, address, *words, token=stand_in_hub.TOKEN):
    """`restrain publish` in a process of its own: huggingface_hub reads HF_ENDPOINT once."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    mine = {"HF_ENDPOINT": address, "HF_HOME": str(run.parent / "home"), "HF_HUB_DISABLE_XET": "1"}
    mine |= {"HF_TOKEN": token} if token else {}
    return subprocess.Popen(
        [sys.executable, "-m", "restrain_openrlhf.commands.main", "publish", run, "--push", REPOSITORY, *words],
        env={**kept, **mine, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, " ".join(err.split())


def written(run):
    return {
        str(path.relative_to(run / "hub")): path.read_bytes() for path in (run / "hub").rglob("*") if path.is_file()
    }


def test_a_push_makes_the_repository_with_the_whole_folder(hub, run):
    status, out, err = finish(start(run, hub.address, "--private"))
    assert status == 0, err
    assert f"pushed: {hub.address}/{REPOSITORY}" in out
    assert {**written(run), ".gitattributes": b""} == hub.repositories[REPOSITORY]
    assert hub.visibility == {REPOSITORY: "private"}
    assert hub.messages == ["restrain, run"]
    assert stand_in_hub.TOKEN not in out + err


def test_the_licence_of_a_base_on_the_hub_is_carried_over(hub, tmp_path):
    card = b"---\nlicense: other\nlicense_name: base-licence\nlicense_link: https://example.org/l\n---\n"
    hub.repositories["org/base"] = {"README.md": card, "LICENSE.txt": b"the licence", "config.json": b"{}"}
    run = training_run(tmp_path / "run", "org/base", "gone.jsonl")
    assert finish(start(run, hub.address, "--dry-run"))[0] == 0
    text = (run / "hub" / "README.md").read_text()
    assert "base_model: org/base\n" in text
    assert "license: other\n" in text
    assert "| licence | [base-licence](https://example.org/l), the base model's |" in text
    assert (run / "hub" / "LICENSE.txt").read_text() == "the licence"


def test_a_push_to_an_earlier_one_replaces_it_and_keeps_what_is_not_ours(hub, run):
    hub.repositories[REPOSITORY] = {
        "restrain.json": b"{}",
        "model-00001-of-00002.safetensors": b"old",
        "model.safetensors.index.json": b"old",
        "NOTES.md": b"mine",
    }
    assert finish(start(run, hub.address))[0] == 0
    assert hub.repositories[REPOSITORY] == {**written(run), "NOTES.md": b"mine"}
    assert hub.messages == ["restrain, run"]


def test_a_repository_with_another_model_is_left_as_it_is(hub, run):
    before = {"model.safetensors": b"not ours"}
    hub.repositories[REPOSITORY] = dict(before)
    status, _, err = finish(start(run, hub.address))
    assert (status, hub.repositories[REPOSITORY]) == (2, before)
    assert "holds a model that `restrain publish` did not put there" in err


def test_a_killed_push_shows_nothing_and_goes_on_where_it_was(hub, run):
    hub.held = (run / "model" / "model.safetensors").stat().st_size
    (run / "model" / "extra.safetensors").write_bytes((8).to_bytes(8, "little") + b"{}      ")
    process = start(run, hub.address)
    try:
        assert hub.waiting.wait(timeout=120)
        while not hub.sent:
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert hub.repositories[REPOSITORY] == {".gitattributes": b""}
    before, hub.held = list(hub.sent), None
    assert finish(start(run, hub.address))[0] == 0
    assert len(before) == 1
    assert hub.sent.count(before[0]) == 1, "what had arrived is not sent again"
    assert {**written(run), ".gitattributes": b""} == hub.repositories[REPOSITORY]


@pytest.mark.parametrize("token", ["hf_another", None])
def test_a_token_that_may_not_write_is_named_by_its_place_alone(hub, run, token):
    status, _, err = finish(start(run, hub.address, token=token))
    assert (status, hub.repositories) == (2, {})
    assert "`hf auth login`, or set HF_TOKEN" in err
    assert "hf_another" not in err


def test_a_hub_that_is_not_there_is_an_error_and_the_folder_stays(run):
    status, _, err = finish(start(run, f"http://127.0.0.1:{free_port()}"))
    assert status == 2
    assert "the connection to the hub broke" in err
    assert (run / "hub" / "README.md").exists()


def test_a_dry_run_asks_the_hub_nothing(hub, run):
    assert finish(start(run, hub.address, "--dry-run"))[0] == 0
    assert hub.tokens == set()
    assert f'from_pretrained("{REPOSITORY}")' in (run / "hub" / "README.md").read_text()
