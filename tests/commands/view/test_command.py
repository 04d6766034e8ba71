"""`restrain view`: what bad input gets, and the command as a user runs it."""

import json
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from restrain_openrlhf.records.kept import step_file
from tests.command_line import refused, restrain
from tests.commands.view.runs import small_run
from tests.conftest import ROOT
from tests.processes import HEEDS_CTRL_C, free_port

GOLD = [{"problem": "What is \\(2 + 3\\)?", "answer": "5"}]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "no such folder. Give a run's folder" in refused("view", tmp_path / "absent")
    assert "is a file. Give a run's folder" in refused("view", tmp_path / "file")
    assert "has no kept rollouts" in refused("view", tmp_path)


def test_a_folder_of_runs_lists_them(tmp_path):
    runs = [small_run(tmp_path / "demo" / name / "train") for name in ("restrain", "ttrl")]
    said = refused("view", tmp_path / "demo")
    assert [line.strip() for line in said.splitlines()[-2:]] == [f"restrain view {run}" for run in runs]


def test_gold_that_cannot_be_used_is_refused(tmp_path, write_jsonl):
    run = small_run(tmp_path / "run")
    assert "no such file" in refused("view", run, "--gold", tmp_path / "absent.jsonl")
    other = write_jsonl("other.jsonl", [{"problem": "another", "answer": "1"}])
    assert "answers none of the 3 prompts" in refused("view", run, "--gold", other)
    assert "line 1: answer" in refused("view", run, "--gold", write_jsonl("bad.jsonl", [{"problem": "p"}]))


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    run = small_run(tmp_path / "run")
    (tmp_path / "there.html").write_text("mine")
    assert "exists already" in refused("view", run, "--export", tmp_path / "there.html")
    assert "is a folder" in refused("view", run, "--export", tmp_path)
    assert "its folder does not exist" in refused("view", run, "--export", tmp_path / "absent" / "view.html")
    assert (tmp_path / "there.html").read_text() == "mine"


def test_a_port_in_use_is_refused(tmp_path):
    pytest.importorskip("starlette", reason="needs the web stack: pip install restrain-openrlhf[service]")
    run = small_run(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"--host 127.0.0.1 --port {port}: the server cannot listen there" in refused("view", run, "--port", port)
    assert "--port" in refused("view", run, "--port", "0")
    assert "--host nosuch.invalid: the server cannot listen there (" in refused("view", run, "--host", "nosuch.invalid")


def test_a_damaged_record_of_the_run_is_refused(tmp_path):
    run = small_run(tmp_path)
    for text in ("{", "[1]", "3"):
        (run / "run.json").write_text(text)
        assert "run.json: is not valid JSON" in refused("view", run)


def test_a_reference_that_is_gone_is_said(tmp_path):
    run = small_run(tmp_path / "run")
    (run / "run.json").write_text(json.dumps({"reference": str(tmp_path / "gone.jsonl")}))
    done = restrain("view", run, "--export", tmp_path / "view.html")
    assert done.returncode == 0, done.stderr
    assert "gone.jsonl, is missing" in (tmp_path / "view.html").read_text()


def test_a_run_beside_itself_is_refused(tmp_path):
    run = small_run(tmp_path / "run")
    assert "--beside" in refused("view", run, "--beside", tmp_path / "run" / ".." / "run")


def test_export_says_which_steps_it_left_out(tmp_path):
    run = small_run(tmp_path / "run")
    step_file(run, 2).write_bytes(b"no parquet")
    done = restrain("view", run, "--export", tmp_path / "view.html")
    first, second = done.stdout.splitlines()
    assert first.startswith(f"Left out: {step_file(run, 2)}: is not a complete Parquet file")
    assert second.startswith(f"{tmp_path / 'view.html'}: 6 groups, ")


def test_export_says_what_it_wrote(tmp_path, write_jsonl):
    run, out = small_run(tmp_path / "run"), tmp_path / "view.html"
    done = restrain("view", run, "--export", out, "--gold", write_jsonl("gold.jsonl", GOLD))
    assert done.stdout.startswith(f"{out}: 9 groups, ")
    assert "Gold has 1 of 3 prompts." in out.read_text()


def test_without_the_web_stack_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "restrain_openrlhf.commands.view.server", raising=False)
    run = small_run(tmp_path / "run")
    assert "pip install restrain-openrlhf[service]" in refused("view", run)
    assert restrain("view", run, "--export", tmp_path / "view.html").returncode == 0


@pytest.fixture
def served(tmp_path):
    """The command in a process of its own."""
    pytest.importorskip("starlette", reason="needs the web stack: pip install restrain-openrlhf[service]")
    script = f"{HEEDS_CTRL_C}from restrain_openrlhf.commands.main import main\nmain()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = []

    def start(*words):
        command = [sys.executable, "-c", script, "view", str(small_run(tmp_path)), *map(str, words)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1], started[-1].stdout.readline().split()[0]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def asked(address):
    return httpx.get(address, timeout=60)


def test_the_command_prints_its_address_answers_there_and_ends_at_ctrl_c(served):
    process, address = served()
    assert address.startswith("http://127.0.0.1:")
    assert len(asked(address + "api/groups").json()["groups"]) == 9
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


def test_other_machines_are_let_in_by_an_address_with_a_token_and_a_warning(served):
    process, address = served("--host", "0.0.0.0")
    assert process.stdout.readline().startswith("Warning: ")
    own, _, token = address.partition("?token=")
    assert not own.startswith("http://0.0.0.0")
    assert len(token) > 20
    assert asked(f"{own}api/groups").status_code == 403
    assert len(asked(f"{own}api/groups?token={token}").json()["groups"]) == 9


def test_the_command_takes_the_port_that_it_is_given(served):
    port = free_port()
    assert served("--port", port)[1] == f"http://127.0.0.1:{port}/"
