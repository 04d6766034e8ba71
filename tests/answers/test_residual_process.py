"""The process behind residual.py beside a user's files: what shadows nothing, what is told, and what is counted."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from restrain_openrlhf.answers import canonical_key, residual, residual_worker
from restrain_openrlhf.answers.residual import Residual
from restrain_openrlhf.errors import GraderError
from tests.conftest import ROOT

# Names that a user's files may have and that reading LaTeX imports: gen is latex2sympy2's own.
SHADOWS = ("gen", "sympy", "antlr4", "latex2sympy2", "asciimath_printer")
GROUP = {"id": "a", "problem": "p", "responses": [r"\boxed{\sum_{k=1}^{3} k}", r"\boxed{6}", r"\boxed{7}"]}
KEYS = r"from restrain_openrlhf.answers import canonical_key as k; print(k(r'\sum_{k=1}^{3} k') == k('6'))"
RESTRAIN = str(Path(sys.executable).with_name("restrain"))


@pytest.fixture
def folder(tmp_path):
    """A working folder with files named as the modules that latex2sympy2 imports, and a group to score."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(GROUP) + "\n")
    return tmp_path


def run(words, folder, path):
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)


# By the installed command, by `python -m`, which looks in the working folder first, and with that in PYTHONPATH.
@pytest.mark.parametrize("command", [[RESTRAIN], [sys.executable, "-m", "restrain_openrlhf.commands.main"]])
@pytest.mark.parametrize("path", [str(ROOT), f":{ROOT}", f"{ROOT}:"])
def test_files_of_the_working_folder_do_not_change_the_votes_of_restrain_score(folder, command, path):
    run([*command, "score", "rollouts.jsonl", "--out", "scores.jsonl"], folder, path)
    (scored,) = map(json.loads, (folder / "scores.jsonl").read_text().splitlines())
    assert scored["counts"] == [2, 1]


@pytest.mark.parametrize("path", [str(ROOT), f":{ROOT}"])
def test_files_of_the_working_folder_do_not_change_keys_in_process(folder, path):
    assert run([sys.executable, "-c", KEYS], folder, path).stdout.strip() == "True"


def test_a_types_file_in_the_working_folder_is_not_pythons(folder):
    (folder / "types.py").write_text("x = 1\n")
    assert run([sys.executable, "-P", "-c", KEYS], folder, str(ROOT)).stdout.strip() == "True"


def test_a_checkout_that_is_importable_by_its_place_alone_is_found():
    """`python -c` in the checkout, without PYTHONPATH: the worker has this very package."""
    script = f"{KEYS}; import restrain_openrlhf; print(restrain_openrlhf.__file__)"
    same, place = run([sys.executable, "-c", script], ROOT, "").stdout.split()
    assert same == "True"
    assert place == str(ROOT / "restrain_openrlhf" / "__init__.py")


@pytest.mark.parametrize(
    ("worker", "found"),
    [
        ("raise SystemExit(3)", "ended with status 3 before it read anything"),
        ('print(\'{"error": "ImportError: no gen"}\')', "cannot import it: ImportError: no gen"),
        ("print('{\"ready\": true}', flush=True); print('null'); input()", "reads .* as None, not as 'value 0.5 0'"),
    ],
)
def test_a_worker_that_cannot_read_a_half_is_an_error_at_once(tmp_path, monkeypatch, worker, found):
    (tmp_path / "worker.py").write_text(worker)
    monkeypatch.setattr(residual_worker, "__file__", str(tmp_path / "worker.py"))
    with pytest.raises(GraderError, match=rf"{found}[\s\S]*pip install --target"):
        Residual().key(r"\sum_{k=1}^{3} k")


def test_a_worker_that_is_slow_to_start_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text("input()")
    monkeypatch.setattr(residual_worker, "__file__", str(tmp_path / "worker.py"))
    monkeypatch.setattr(residual, "START_SECONDS", 0.1)
    with pytest.raises(GraderError, match="did not start"):
        Residual().key(r"\sum_{k=1}^{3} k")


def test_a_death_is_counted_apart_from_a_timeout_and_the_next_text_is_read():
    one = Residual()
    one.key("1")
    process = one._worker.process
    process.send_signal(signal.SIGSTOP)
    threading.Timer(0.2, process.kill).start()
    assert one.key(r"\sum_{k=1}^{3} k") is None
    assert (one.here.died, one.here.timed_out) == (1, 0)
    assert one.key(r"\sum_{k=1}^{3} k") == canonical_key("6")
    one.close()


def test_a_text_is_read_however_long_other_work_keeps_the_processor():
    """The worker process is stopped for longer than a text's limit of CPU time. Its text is still read."""
    one = Residual()
    one.key("1")
    process = one._worker.process
    process.send_signal(signal.SIGSTOP)
    threading.Timer(residual.DEADLINE_SECONDS + 0.5, process.send_signal, [signal.SIGCONT]).start()
    assert one.key(r"\sum_{k=1}^{3} k") == canonical_key("6")
    assert (one.here.died, one.here.timed_out) == (0, 0)
    one.close()


def test_a_process_that_gets_no_processor_at_all_is_given_up(monkeypatch):
    one = Residual()
    one.key("1")
    monkeypatch.setattr(residual, "PATIENCE_SECONDS", 0.2)
    one._worker.process.send_signal(signal.SIGSTOP)
    assert one.key(r"\sum_{k=1}^{3} k") is None
    assert (one.here.died, one.here.timed_out) == (0, 1)


READS_A_HALF_ALONE = """
import sys
print('{"ready": true}', flush=True)
sys.stdin.readline()
print(f'"{PROBE}"', flush=True)
sys.stdin.readline()
"""


def test_processes_that_die_one_after_the_other_are_an_error(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text(f"PROBE = {residual.PROBE_KEY!r}{READS_A_HALF_ALONE}")
    whole = residual_worker.__file__
    monkeypatch.setattr(residual_worker, "__file__", str(tmp_path / "worker.py"))
    monkeypatch.setattr(residual, "MOST_DEATHS", 3)
    one, text = Residual(), r"\sum_{k=1}^{3} k"
    assert [one.key(text), one.key(text)] == [None, None]
    monkeypatch.setattr(residual_worker, "__file__", whole)
    assert one.key(text) == canonical_key("6"), "an answer that is read is no part of a row of deaths"
    one.close()
    monkeypatch.setattr(residual_worker, "__file__", str(tmp_path / "worker.py"))
    assert [one.key(text), one.key(text)] == [None, None]
    with pytest.raises(GraderError, match="died at each of the last 3 answers"):
        one.key(text)
    assert one.here.died == 5


def test_after_an_exception_of_the_callers_own_no_text_gets_the_key_of_an_earlier_one():
    """A signal handler raises while the answer is awaited; the worker would have given it a moment later."""
    one = Residual()
    one.key("1")
    process = one._worker.process

    def interrupted(*_):
        process.send_signal(signal.SIGCONT)
        raise KeyboardInterrupt

    process.send_signal(signal.SIGSTOP)
    before = signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            one.key(r"\sum_{k=1}^{3} k")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert process.poll() is not None
    assert one.key(r"\sum_{k=1}^{4} k") == canonical_key("10")
    one.close()
