"""The second grader: agreement by hand, a worker that is really killed, the real math-verify where it is installed."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from restrain_openrlhf.answers import extract
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.grade import GradeRow, ResponseRow, grade_answers
from restrain_openrlhf.evaluation.math_verify import (
    HOME,
    PACKAGES,
    AgreementSoFar,
    GradingDifference,
    MathVerify,
    Verdict,
    cohens_kappa,
    second_grader,
)
from restrain_openrlhf.evaluation.result import Changes, grade_folder, load_results
from tests.cli.test_commands import boxed
from tests.commands import refused, restrain
from tests.conftest import ROOT
from tests.evaluation.conftest import Engine


@pytest.fixture
def stand_in(tmp_path) -> Path:
    """A folder that holds a math_verify and its version, as pip would leave them."""
    folder = tmp_path / "stand-in"
    (folder / "math_verify-7.dist-info").mkdir(parents=True)
    (folder / "math_verify-7.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: math-verify\nVersion: 7\n"
    )
    shutil.copy(Path(__file__).parent / "stand_in_math_verify.py", folder / "math_verify.py")
    return folder


@pytest.fixture
def real() -> MathVerify:
    if not HOME.is_dir():
        pytest.skip("needs math-verify in a folder of its own: make install-math-verify")
    return MathVerify()


def response_row(name, problem, responses) -> ResponseRow:
    n = len(responses)
    counts = {"tokens": [1] * n, "truncated": [False] * n}
    return ResponseRow(id=name, problem=problem, prompt=problem, responses=responses, **counts)


def graded_again(rows, grades, grader):
    found = AgreementSoFar()
    differing = [found.add(row, ours, grader) for row, ours in zip(rows, grades, strict=True)]
    return found.grading(grader), [each for of_row in differing for each in of_row]


@pytest.mark.parametrize(
    ("one", "other", "kappa"),
    [
        # Agreement 7/10; chance (6 · 5 + 4 · 5) / 100 = 1/2.
        ([1, 1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 1, 0, 0, 0], 0.4),
        ([1, 0], [1, 0], 1.0),
        ([1, 0], [0, 1], -1.0),
        ([1, 1], [1, 1], None),
    ],
)
def test_kappa_by_hand(one, other, kappa):
    assert cohens_kappa(Counter(zip(map(bool, one), map(bool, other), strict=True))) == (
        kappa if kappa is None else pytest.approx(kappa)
    )


def test_agreement_and_every_difference(stand_in):
    rows = [
        response_row("a", "1/2=", boxed("0.5", r"1/2", "3")),
        response_row("b", "2=", ["2", r"\boxed{2}", "?"]),
    ]
    grades = [
        GradeRow(id="a", gold="1/2", answers=["0.5", "1/2", "3"], correct=[True, True, False]),
        GradeRow(id="b", gold="2", answers=["2", "2", None], correct=[True, True, False]),
    ]
    with MathVerify(stand_in) as grader:
        grading, found = graded_again(rows, grades, grader)
    assert (grading.grader, grading.version, grading.agree, grading.of, grading.given_up) == (
        "math-verify",
        "7",
        4,
        6,
        0,
    )
    assert grading.pass_at_1 == pytest.approx(1 / 3)
    # Chance: (4 · 2 + 2 · 4) / 36 = 4/9.
    assert grading.kappa == pytest.approx((4 / 6 - 4 / 9) / (5 / 9))
    assert found == [
        GradingDifference(
            id="a", response=0, problem="1/2=", gold="1/2", answer="0.5", correct=True,
            second_gold="1/2", second_answer="0.5", second_correct=False, second_given_up=False,
        ),
        GradingDifference(
            id="b", response=0, problem="2=", gold="2", answer="2", correct=True,
            second_gold="2", second_answer=None, second_correct=False, second_given_up=False,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["HANG", "DIE"])
def test_a_response_that_hangs_or_kills_the_grader_is_given_up_and_the_next_one_is_graded(stand_in, text):
    with MathVerify(stand_in, deadline=0.5) as grader:
        first = grader._worker.process.pid
        assert grader.grade(text, "1") == Verdict(given_up=True)
        assert grader.grade(r"\boxed{1}", "1") == Verdict(gold="1", answer="1", correct=True)
        assert grader._worker.process.pid != first


def test_the_worker_ends_with_its_context(stand_in):
    with MathVerify(stand_in) as grader:
        worker = grader._worker
    assert worker.process.poll() is not None


def test_the_headline_stays_and_the_result_holds_both(toy, stand_in):
    toy.sampling().run(Engine)
    alone, _ = grade_folder(toy.folder)
    assert alone.second is None
    with MathVerify(stand_in) as grader:
        both, changed = grade_folder(toy.folder, grader)
    assert (both.scores, changed) == (alone.scores, Changes(600, 0))
    assert load_results(toy.run) == [both]
    assert both.second.pass_at_1 == both.scores.pass_at_1
    assert (both.second.agree, both.second.of) == (600, 600)
    assert read_rows(toy.folder.differences, GradingDifference) == []
    grade_folder(toy.folder)
    assert not toy.folder.differences.exists()


def test_a_result_of_before_is_read(toy):
    toy.sampling().run(Engine)
    grade_folder(toy.folder)
    kept = json.loads(toy.folder.result.read_text())
    del kept["second"], kept["scores"]["samples_low"], kept["scores"]["samples_high"], kept["provenance"]["shots"]
    toy.folder.result.write_text(json.dumps(kept))
    (result,) = load_results(toy.run)
    assert (result.second, result.scores.samples_low, result.provenance.shots) == (None, None, 0)


def test_regrade_prints_both(toy, stand_in):
    toy.sampling().run(Engine)
    done = restrain("regrade", toy.run, "--second-grader", f"math-verify={stand_in}")
    assert done.returncode == 0, done.stderr
    assert (
        "math-verify 7: pass@1 25.0%, agrees on 600 of 600 responses (100.0%, kappa 1.000), 0 given up" in done.stdout
    )


def test_a_grader_that_is_not_there_is_one_line_that_says_how_to_get_it(tmp_path):
    with pytest.raises(ConfigError, match=r"is not installed .*--target .*absent math-verify==0\.9\.0") as refusal:
        MathVerify(tmp_path / "absent").__enter__()
    assert "\n" not in str(refusal.value)
    for word in ("sympy", "math-verify="):
        with pytest.raises(ConfigError, match="is no grader"):
            second_grader(word)


def test_bad_words_are_one_line(toy):
    toy.sampling().run(Engine)
    assert "is no grader" in refused("regrade", toy.run, "--second-grader", "sympy")


def test_the_pins_are_those_that_the_error_names():
    lines = (ROOT / "requirements" / "math-verify.txt").read_text()
    assert tuple(re.findall(r"^[\w.-]+==\S+$", lines, re.MULTILINE)) == PACKAGES


def test_the_real_one_reads_what_it_should(real):
    with real as grader:
        assert grader.version == PACKAGES[0].partition("==")[2]
        assert grader.grade(r"so it is \boxed{\frac{1}{2}}", "0.5") == Verdict(
            gold=r"\frac{1}{2}", answer=r"\frac{1}{2}", correct=True
        )
        assert not grader.grade(r"so it is \boxed{3}", "4").correct
        assert grader.grade("I do not know", "4").answer is None


def test_the_real_one_on_real_rollouts(real, shared):
    rows = [json.loads(line) for line in (shared / "rollouts" / "math_50x8.jsonl").read_text().splitlines()]
    grades = [grade_answers(row["id"], list(map(extract, row["responses"])), row["answer"]) for row in rows]
    drawn = [response_row(row["id"], row["problem"], row["responses"]) for row in rows]
    with real as grader:
        grading, found = graded_again(drawn, grades, grader)
    # Gold is 10{,}000; 9999 is within Qwen2.5-Math's relative tolerance, which is ours and not math-verify's.
    assert {(each.id, each.gold) for each in found} == {("72", "10{,}000")}
    assert (grading.agree, grading.of, grading.given_up) == (396, 400, 0)
