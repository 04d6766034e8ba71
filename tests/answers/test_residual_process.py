"""The process of latex2sympy2: what it reads, what never reaches it, and what ends or replaces it."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from restrain_openrlhf.answers import canonical_key, residual, residual_worker
from restrain_openrlhf.answers.residual import RESIDUAL, Residual
from restrain_openrlhf.errors import GraderError
from tests.conftest import ROOT

SUM = r"\sum_{k=1}^{3} k"


@pytest.fixture
def one():
    """A process of its own that has read a text."""
    made = Residual()
    made.key("1")
    yield made
    made._worker.close()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (SUM, "6"),
        (r"\int_0^1 x dx", r"\frac12"),
        (r"\lfloor 5/2 \rfloor", "2"),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"),
    ],
)
def test_what_it_reads_is_a_value_like_any_other(text, value):
    assert canonical_key(text) == canonical_key(value)


@pytest.mark.parametrize(("first", "second"), [("k/3", "k/4"), ("m/2", "m/3"), ("x/10", "x/100")])
def test_functions_that_jump_are_compared_as_text(first, second):
    """Their values at a few points agree, although the functions differ."""
    assert canonical_key(rf"\left\lfloor {first} \right\rfloor") == canonical_key(rf"\lfloor {first}\rfloor")
    assert canonical_key(rf"\lfloor {first} \rfloor") != canonical_key(rf"\lfloor {second} \rfloor")


@pytest.mark.parametrize("text", ["x < 1, y", r"\text{some} \sum words", "9" * 300, r"\sum_{k=1}^{99999} k"])
def test_texts_it_would_misread_never_reach_it(text, monkeypatch):
    monkeypatch.setattr(RESIDUAL, "key", lambda _: pytest.fail("it was asked"))
    canonical_key(text)


def test_files_of_the_working_folder_change_no_key(tmp_path):
    """They are named as modules that reading LaTeX imports: gen is latex2sympy2's own."""
    for name in ("gen", "sympy", "antlr4", "latex2sympy2"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    script = f"from restrain_openrlhf.answers import canonical_key as k; print(k({SUM!r}) == k('6'))"
    words, path = [sys.executable, "-c", script], {**os.environ, "PYTHONPATH": f":{ROOT}"}
    done = subprocess.run(words, cwd=tmp_path, env=path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("worker", "found"),
    [
        ("raise SystemExit(3)", "ended with status 3 before it read anything"),
        ('print(\'{"error": "ImportError: no gen"}\')', "cannot import it: ImportError: no gen"),
        ("print('{\"ready\": true}', flush=True); print('null'); input()", "reads .* as None, not as 'value 0.5 0'"),
    ],
)
def test_a_process_that_cannot_read_a_half_is_an_error_at_once(tmp_path, monkeypatch, worker, found):
    (tmp_path / "worker.py").write_text(worker)
    monkeypatch.setattr(residual_worker, "__file__", str(tmp_path / "worker.py"))
    with pytest.raises(GraderError, match=rf"{found}[\s\S]*pip install --target"):
        Residual().key(SUM)


def test_a_slow_text_is_given_up_and_harms_no_other(one):
    assert one.key(r"\sum_{k=1}^{100000000} \sin(k^k)") is None
    assert one._deaths == 0
    assert one.key(SUM) == canonical_key("6")


def test_a_text_is_read_however_long_other_work_keeps_the_processor(one):
    """The process is stopped for longer than a text's limit of CPU time."""
    process = one._worker.process
    process.send_signal(signal.SIGSTOP)
    threading.Timer(residual.DEADLINE_SECONDS + 0.5, process.send_signal, [signal.SIGCONT]).start()
    assert one.key(SUM) == canonical_key("6")


def test_processes_that_die_one_after_the_other_are_an_error(tmp_path, monkeypatch):
    read_a_half = f"print('{{}}', flush=True); input(); print({json.dumps(residual.PROBE_KEY)!r}, flush=True); input()"
    (tmp_path / "worker.py").write_text(read_a_half)
    monkeypatch.setattr(residual_worker, "__file__", str(tmp_path / "worker.py"))
    monkeypatch.setattr(residual, "MOST_DEATHS", 3)
    one = Residual()
    assert [one.key(SUM), one.key(SUM)] == [None, None]
    with pytest.raises(GraderError, match="died at each of the last 3 answers"):
        one.key(SUM)
