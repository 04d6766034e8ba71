"""What labels of some prompts say about all: weighted shares, σ and the chance to fail, against sums worked by hand."""

from math import comb, exp, log

import pytest

from restrain_openrlhf.commands.premise.calibration import chance_of_failure, weighted_mean
from restrain_openrlhf.commands.premise.diagnosis import diagnose
from restrain_openrlhf.commands.premise.frozen import from_reference
from restrain_openrlhf.evaluation.grade import wilson_interval
from restrain_openrlhf.method import parse_settings
from tests.command_line import refused
from tests.commands.premise.passes import write_pass

GROUP = ["1", "1", "1", "2"]


def labelled(folder, rows, groups, **settings):
    """The diagnosis by labels: rows (prompt, inclusion, answer)."""
    table = folder / "labels.csv"
    lines = [f"{place},problem {place},,{chance},{answer}\n" for place, chance, answer in rows]
    table.write_text("id,problem,votes,inclusion,answer\n" + "".join(lines))
    reference = from_reference(write_pass(folder / "ref.jsonl", groups), table)
    return diagnose(reference, parse_settings({"name": "restrain", "prompt_weight": "none", **settings}))


def test_a_label_counts_for_the_prompts_that_it_stands_for(tmp_path):
    """Two wrong majorities that were sure to be labelled, and a right one for ten: 10 of 12 are right, not 1 of 3."""
    found = labelled(tmp_path, [(0, 1, "2"), (1, 1, "2"), (2, 0.1, "1"), (3, "", "")], [GROUP] * 12)
    gold, (row,) = found.gold, found.gold.by_size
    assert (gold.prompts, row.problems, row.weight) == (3, 3, pytest.approx(12))
    assert gold.majority_right == row.majority_accuracy == pytest.approx(10 / 12)
    assert gold.pass_at_1 == pytest.approx((10 * 3 / 4 + 2 * 1 / 4) / 12)
    draws = 12**2 / (1 + 1 + 100)
    assert (row.majority_low, row.majority_high) == pytest.approx(wilson_interval(10 / 12 * draws, draws))
    # All advantages have the same squares, so the share on wrong majorities is that of the prompts.
    assert found.chosen.on_wrong == pytest.approx(2 / 12)


def test_labels_with_and_without_a_chance_do_not_mix(tmp_path):
    reference, table = write_pass(tmp_path / "ref.jsonl", [GROUP] * 2), tmp_path / "labels.csv"
    table.write_text("problem,inclusion,answer\nproblem 0,1,1\nproblem 1,,1\n")
    assert "is filled for 1 of 2 answers" in refused("premise", "--reference", reference, "--gold", table)


def test_the_mean_without_weights_is_the_usual_one():
    """1, 2 and 6: mean 3, variance (4 + 1 + 9) / 2 = 7."""
    assert weighted_mean([1, 2, 6], [5, 5, 5]) == pytest.approx((3, (7 / 3) ** 0.5))


@pytest.mark.parametrize(("wrong", "push"), [(8, 1.0), (4, 1.0), (30, 1.0), (0, -1.0)])
def test_the_chance_of_failure_is_a_binomials_where_prompts_are_alike(wrong, push):
    """Of 40 prompts k are wrong. A resample fails with 8 or more of them, or where right answers lose."""
    p = wrong / 40
    exact = sum(comb(40, k) * p**k * (1 - p) ** (40 - k) for k in range(8, 41)) if push > 0 else 1.0
    found = chance_of_failure([(1.0, float(place < wrong), push) for place in range(40)])
    assert found == pytest.approx(exact, abs=0.04)
    assert chance_of_failure([(1.0, 0.0, 1.0)] * 29) is None


def test_the_width_is_that_under_which_gold_is_likeliest(tmp_path):
    """Of 40 votes 3 to 1 gold is the larger 30 times: of the tried widths g(1/4) / g(3/4) is nearest to 1/3 with .5."""
    rows, groups = [(n, 1, "1" if n < 30 else "2") for n in range(40)], [GROUP] * 40

    def likelihood(sigma):
        g = [exp(-((share - 1) ** 2) / (2 * sigma**2)) for share in (0.75, 0.25)]
        return 30 * log(g[0] / sum(g)) + 10 * log(g[1] / sum(g))

    assert max((0.1, 0.25, 0.5, 1, 2), key=likelihood) == 0.5
    assert likelihood(0.5) - likelihood(0.1) > 1.92 > likelihood(0.5) - likelihood(0.4)
    assert labelled(tmp_path, rows, groups, sigma=0.1).better_sigma == 0.5
    assert labelled(tmp_path, rows, groups, sigma=0.4).better_sigma is None
    assert labelled(tmp_path, [(n, 1, "1") for n in range(20)], groups, sigma=0.1).better_sigma is None


def test_gold_that_trains_does_not_speak_for_the_votes(tmp_path):
    rows, groups = [(n, 1, "2") for n in range(40)], [GROUP] * 40
    found = labelled(tmp_path, rows, groups, gold="where_given").chosen
    assert (found.fails, found.right_push < 0) == (1, True)
