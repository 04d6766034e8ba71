"""The demo's task: seeded, without overlap, and without gold where it must not be; the shipped model fits it."""

import pytest

from restrain_openrlhf.data.demo_tasks.addition import MOST_PROBLEMS, heldout_problems, training_problems
from restrain_openrlhf.errors import DataError


def operands(problems):
    """Unordered, so that 123+456 and 456+123 count as one addition."""
    return {frozenset(problem.problem.removesuffix("=").split("+")) for problem in problems}


def test_problems_are_seeded_different_and_disjoint():
    training, heldout = training_problems(600), heldout_problems(200)
    assert training == training_problems(600)
    assert len({problem.problem for problem in training}) == 600
    assert not operands(training) & operands(heldout)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_seed_of_one_side_reaches_the_other(seed):
    assert not operands(training_problems(3000, seed)) & operands(heldout_problems(3000, seed))


@pytest.mark.parametrize("problems", [training_problems, heldout_problems])
@pytest.mark.parametrize("count", [-1, 0, MOST_PROBLEMS + 1])
def test_a_number_the_task_cannot_give_is_refused(problems, count):
    with pytest.raises(DataError, match="1 to 40,000"):
        problems(count)


def test_gold_is_the_sum():
    for problem in [*training_problems(50), *heldout_problems(50)]:
        first, second = problem.problem.removesuffix("=").split("+")
        assert problem.answer == str(int(first) + int(second))
