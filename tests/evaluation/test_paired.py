"""Two runs compared over the same problems: worked by hand, against another computation, and as a user sees it."""

import numpy as np
import pytest

from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.evaluation.paired import damage, mcnemar, over_seeds, paired_difference
from tests.command_line import restrain
from tests.evaluation.test_table import result, write_run


def graded(*rights: tuple[bool, ...]) -> list[GradeRow]:
    rows = enumerate(rights)
    return [GradeRow(id=str(n), gold="1", answers=("1",) * len(r), classes=(0,) * len(r), correct=r) for n, r in rows]


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    [
        (9, 1, 2 * (1 + 10) / 1024),  # 0 or 1 of ten coins
        (1, 9, 2 * (1 + 10) / 1024),
        (5, 5, 1.0),
        (3, 0, 2 / 8),
        (0, 0, 1.0),
    ],
)
def test_mcnemar_counts_coins(won, lost, p):
    assert mcnemar(won, lost) == pytest.approx(p)


def test_of_one_response_each_the_test_counts_the_problems_that_changed():
    yes, no = (True,), (False,)
    found = paired_difference(graded(yes, yes, no, no, no, yes), graded(yes, no, yes, yes, yes, yes))
    assert found.value == pytest.approx(2 / 6)
    assert (found.problems, found.mcnemar) == (6, pytest.approx(2 * (1 + 4) / 16))
    assert found.low < 0 < found.high


def test_the_bounds_are_those_of_the_normal_approximation_where_problems_are_many():
    """Another computation: mean ± 1.96 s / √m of the differences."""
    draw = np.random.default_rng(3)
    hard = draw.random(600)
    before = [tuple(draw.random(8) < 0.6 * each) for each in hard]
    after = [tuple(draw.random(8) < 0.7 * each) for each in hard]
    found = paired_difference(graded(*before), graded(*after))
    gains = np.mean(after, axis=1) - np.mean(before, axis=1)
    half = 1.959964 * gains.std(ddof=1) / np.sqrt(600)
    assert (found.low, found.high) == pytest.approx((gains.mean() - half, gains.mean() + half), abs=0.002)
    alone = np.mean(before, axis=1).std(ddof=1) / np.sqrt(600) * 1.959964
    assert half < alone * 2**0.5, "what makes a problem hard for both does not widen the interval"
    assert found.mcnemar is None


def test_each_problem_is_learned_corrupted_flipped_or_unchanged():
    """By the majorities of 3: two stay right or wrong, one answer becomes right, one wrong, and one wrong another."""

    def row(n: int, group: str) -> GradeRow:
        classes, right = tuple(map("".join(dict.fromkeys(group)).index, group)), tuple(each == "a" for each in group)
        return GradeRow(id=str(n), gold="a", answers=tuple(group), classes=classes, correct=right)

    def rows(*groups: str) -> list[GradeRow]:
        return [row(*each) for each in enumerate(groups)]

    before, after = rows("aab", "bba", "bba", "aab", "bbc"), rows("aaa", "bbb", "aab", "bba", "ccb")
    assert damage(before, after) == "1 learned, 1 corrupted, 1 flipped, 2 unchanged"
    assert damage(after, before) == "1 learned, 1 corrupted, 1 flipped, 2 unchanged"
    assert damage(before, before) == "0 learned, 0 corrupted, 0 flipped, 5 unchanged"


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ((0.1,), "+10.0 points with one seed, of which nothing"),
        # Mean 0.2, sd 0.1: 0.2 ± 4.303 × 0.1 / √3 = 0.2 ± 0.248.
        ((0.1, 0.2, 0.3), "+20.0 points [-4.8, +44.8] over 3 seeds: no difference"),
        # 0.2 ± 4.303 × 0.01 / √3 = 0.2 ± 0.0248; three coins that agree: 2 / 8.
        ((-0.19, -0.2, -0.21), "-20.0 points [-22.5, -17.5] over 3 seeds: a difference may be claimed"),
        ((-0.19, -0.2, -0.21), "(the signs alone have p = 0.25)"),
        ((0.19, 0.2, 0.21, 0.2, 0.2, 0.2), "if seeds differ as a normal variable does"),
    ],
)
def test_what_seeds_allow_to_claim(gains, said):
    assert said in over_seeds(gains)


def compared(tmp_path, name, rows, reader="1", **changes):
    made = result("math500", "MATH-500", 0.5)
    changed = {"provenance": made.provenance.model_copy(update=changes), "extractor_version": reader}
    made = made.model_copy(update=changed)
    folder = write_run(tmp_path / name, made)
    write_rows(folder / "math500" / "grades.jsonl", rows)
    return f"{name}={folder}"


def test_the_table_says_it_for_each_two_runs_and_compares_no_others(tmp_path):
    yes, no = (True, True), (False, True)
    base = compared(tmp_path, "base", graded(no, no, yes, no))
    # In another order of problems, as parts of several engines have it.
    mine = compared(tmp_path, "mine", graded(yes, yes, yes, yes)[::-1])
    other = compared(tmp_path, "other", graded(yes, yes, yes, yes), problems_digest="of others")
    said = restrain("table", base, mine, other, "--base", "Qwen/Qwen3-4B-Base").stdout
    assert "- mine − base, MATH-500: +37.5 points [" in said
    assert "over the same 4 problems; majorities: " in said
    assert "- other − base, MATH-500: not compared, because their problems differ\n" in said
    (tmp_path / "mine" / "math500" / "grades.jsonl").unlink()
    assert "grades.jsonl is missing; `restrain regrade` writes it\n" in restrain("table", base, mine).stdout
    assert "otherwise" not in said
    older = compared(tmp_path, "older", graded(yes, yes, yes, yes), reader="0")
    colder = compared(tmp_path, "colder", graded(yes, yes, yes, yes), temperature=0.0)
    said = restrain("table", base, colder, older, "--base", "Qwen/Qwen3-4B-Base").stdout
    assert "- older − base, MATH-500: not compared, because their answers were read by other versions" in said
    assert "unchanged; sampled otherwise, T 0, up to 8 tokens against T 0.6, up to 8 tokens\n" in said
