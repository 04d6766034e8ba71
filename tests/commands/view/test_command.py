"""`restrain view`: what bad input gets, and the command as a user runs it."""

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
from tests.processes import HEEDS_CTRL_C

GOLD = [{"problem": "What is \\(2 + 3\\)?", "answer": "5"}]


REFUSED = [
    (("absent",), "no such folder. Give a run's folder"),
    (("there.html",), "is a file. Give a run's folder"),
    (("empty",), "has no kept rollouts"),
    (("damaged",), "run.json: is not valid JSON"),
    (("run", "--beside", "run/../run"), "--beside"),
    (("run", "--gold", "absent.jsonl"), "no such file"),
    (("run", "--gold", "other.jsonl"), "answers none of the 3 prompts"),
    (("run", "--gold", "bad.jsonl"), "line 1: answer"),
    (("run", "--export", "there.html"), "exists already"),
    (("run", "--export", "empty"), "is a folder"),
    (("run", "--export", "absent/view.html"), "its folder does not exist"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_cannot_be_viewed_is_refused(tmp_path, write_jsonl, words, said):
    small_run(tmp_path / "run")
    (small_run(tmp_path / "damaged") / "run.json").write_text("[1]")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.html").write_text("mine")
    write_jsonl("other.jsonl", [{"problem": "another", "answer": "1"}])
    write_jsonl("bad.jsonl", [{"problem": "p"}])
    done = restrain("view", *words, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "there.html").read_text() == "mine"


def test_a_folder_of_runs_lists_them(tmp_path):
    runs = [small_run(tmp_path / "demo" / name / "train") for name in ("restrain", "ttrl")]
    said = refused("view", tmp_path / "demo")
    assert [line.strip() for line in said.splitlines()[-2:]] == [f"restrain view {run}" for run in runs]


def test_a_port_in_use_is_refused(tmp_path):
    pytest.importorskip("starlette", reason="needs the web stack: pip install restrain-openrlhf[service]")
    run = small_run(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"--host 127.0.0.1 --port {port}: the server cannot listen there" in refused("view", run, "--port", port)
    assert "--port" in refused("view", run, "--port", "0")
    assert "--host nosuch.invalid: the server cannot listen there (" in refused("view", run, "--host", "nosuch.invalid")


def test_export_says_which_steps_it_left_out(tmp_path):
    run = small_run(tmp_path / "run")
    step_file(run, 2).write_bytes(b"no parquet")
    done = restrain("view", run, "--export", tmp_path / "view.html")
    first, second = done.stdout.splitlines()
    assert first.startswith(f"Left out: {step_file(run, 2)}: is not a complete Parquet file")
    assert second.startswith(f"{tmp_path / 'view.html'}: 6 groups, ")


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
