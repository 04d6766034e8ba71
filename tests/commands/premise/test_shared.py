"""The rule for shared shortcuts: a planted one is found, and answers that are common for another reason are not."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.commands.premise.diagnosis import diagnose
from restrain_openrlhf.commands.premise.frozen import from_reference, from_rollouts
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.method import parse_settings
from tests.commands.premise.passes import counted, frozen, write_gold, write_pass

N = 16
LETTERS = ("A", "B", "C", "D")


def common_answers(pass_):
    return diagnose(pass_, parse_settings({"name": "ttrl"})).common


def shortcuts(folder, groups, gold=None):
    return [one.text for one in common_answers(frozen(folder, groups, gold)) if one.is_shortcut]


def own_answers(place, majority):
    """A prompt's own answers: a majority, and others that no other prompt has."""
    return counted({f"own {place}": majority, **{f"other {place} {each}": 1 for each in range(N - majority)}})


def with_shortcut(place, majority, shortcut, answer="?"):
    """As `own_answers`, `shortcut` of the other rollouts giving an answer that prompts share."""
    return [*own_answers(place, majority)[: N - shortcut], *[answer] * shortcut]


def multiple_choice(rng, prompts, bias=0.0):
    """Each prompt has a right letter, known with its own certainty; where a rollout does not know, it guesses.

    A guess is C with chance `bias`, else any letter alike. Returns the groups and the right letters.
    """
    right = [rng.choice(LETTERS) for _ in range(prompts)]
    sure = [rng.random() for _ in range(prompts)]

    def rollout(letter, known):
        guess = "C" if rng.random() < bias else rng.choice(LETTERS)
        return letter if rng.random() < known else guess

    return [[rollout(letter, known) for _ in range(N)] for letter, known in zip(right, sure, strict=True)], right


def test_a_planted_shortcut_is_found_and_its_numbers_are_counted(tmp_path):
    """Ten prompts: '?' is 5 of 16 at six of them and there the majority, and never where majorities are large."""
    unsure = [with_shortcut(place, 4, 5) for place in range(6)]
    sure = [own_answers(place, 12) for place in range(6, 10)]
    found = common_answers(frozen(tmp_path, unsure + sure))[0]
    assert (found.text, found.prompts, found.next_prompts) == ("?", 6, 1)
    assert found.share == 30 / 160
    assert found.majorities == 6
    assert found.excess is None
    assert found.is_shortcut


def test_an_answer_of_few_prompts_is_none(tmp_path):
    """4 of 8 prompts give it in 3 of 16: .09 of the rollouts; a fifth prompt makes it common and shared."""
    four = [with_shortcut(place, 4, 5) for place in range(4)]
    rest = [own_answers(place, 9) for place in range(4, 8)]
    assert shortcuts(tmp_path, four + rest) == []
    assert shortcuts(tmp_path, [*four, with_shortcut(9, 4, 5), *rest]) == ["?"]


@pytest.mark.parametrize(("bias", "seen"), [(0.0, []), (0.5, ["C"])])
@pytest.mark.parametrize("seed", range(3))
def test_a_letter_that_is_guessed_where_nothing_is_known_is_seen_with_gold_alone(tmp_path, seed, bias, seen):
    """Without gold it may be the right letter that often: the page says that this cannot be seen."""
    groups, right = multiple_choice(random.Random(seed), 400, bias=bias)
    assert shortcuts(tmp_path, groups) == []
    assert shortcuts(tmp_path, groups, right) == seen


def test_gold_explains_an_answer_that_is_at_far_more_prompts_than_others(tmp_path):
    """Half of the prompts really have the answer 0: without gold it looks like a shortcut, with gold it is none."""
    values = [f"own {place}" if place % 2 else "0" for place in range(60)]
    groups = [counted({value: 9, f"other {place}": 7}) for place, value in enumerate(values)]
    assert shortcuts(tmp_path, groups) == ["0"]
    assert shortcuts(tmp_path, groups, values) == []


def test_gold_of_few_prompts_does_not_decide(tmp_path):
    groups = [counted({"0": 9, f"other {place}": 7}) for place in range(60)]
    assert shortcuts(tmp_path, groups, ["0"] * 29 + [None] * 31) == ["0"]
    assert shortcuts(tmp_path, groups, ["0"] * 30 + [None] * 30) == []


ABOUT_100 = ("100", "100.001", "100.002", "100.003", "100.004")


def common_numbers(folder, groups, **how):
    found = from_reference(write_pass(folder / "ref.jsonl", groups, kind=parse_kind({"name": "number"})), **how)
    return found, [(one.text, one.share, one.prompts, one.majorities) for one in common_answers(found)]


def test_answers_of_different_prompts_are_one_where_the_kind_says_so(tmp_path):
    """Five prompts whose every answer is 100 within 1e-4. By their keys, each would have .2 of all rollouts."""
    frozen_pass, found = common_numbers(tmp_path, [[about, about, "7"] for about in ABOUT_100])
    assert found == [("100", 2 / 3, 5, 5), ("7", 1 / 3, 5, 0)]
    pushes = {one.name: one.shared_push for one in diagnose(frozen_pass, parse_settings({"name": "ttrl"})).methods}
    assert pushes["ttrl"] == pytest.approx(0.5), "all that is pushed up is the common answer"


def test_gold_of_a_prompt_that_does_not_give_the_common_answer_is_compared_by_the_kind_too(tmp_path):
    """Gold of 30 prompts is 100.003; half of them answer 100, and the others 5."""
    groups = [["100", "100"] if place % 2 else ["5", "5"] for place in range(30)]
    gold = write_gold(tmp_path / "gold.jsonl", ["100.003"] * 30)
    frozen_pass, _ = common_numbers(tmp_path, groups, gold=gold)
    assert {one.text: one.excess.gold_share for one in common_answers(frozen_pass)} == {"100": 1.0, "5": 0.0}


def test_a_training_group_is_classified_anew(tmp_path):
    """Beside 1.0, 1.00015 and 1.00005 are two answers; in a group of two there is no 1.0, and they are one."""
    frozen_pass, _ = common_numbers(tmp_path, [["1.00015", "1.00005", "1.0", "1.0"]], group_size=2)
    (group,) = frozen_pass.groups
    assert (group.row.classes, group.group.classes) == ((0, 1, 1, 1), (0, 0))


def test_a_training_group_is_read_anew_where_a_group_is_read_together(write_jsonl):
    """Of four, Nice has three votes; of the first two, Bonn has both. Before, the two had the answers of the four."""
    rows = [{"id": 1, "problem": "Where?", "answer": "Nice", "responses": ["Nice, Bonn", "Bonn, Rome", "Nice", "Nice"]}]
    kind = parse_kind({"name": "text", "read": "agreed"})
    for size, counts, right in ((4, (3, 1), 3), (2, (2,), 0)):
        (group,) = from_rollouts(write_jsonl("r.jsonl", rows), group_size=size, kind=kind).groups
        assert (group.row.counts, group.group.votes.counts) == ((3, 1), counts)
        assert sum(group.step.grades.correct) == right


@settings(max_examples=15)
@given(st.lists(st.permutations(["100", "100.001", "100.002", "100.002", "7", None]), min_size=2, max_size=5))
def test_the_order_of_rollouts_changes_no_common_answer(tmp_path_factory, groups):
    _, found = common_numbers(tmp_path_factory.mktemp("pass"), groups)
    assert found == [("100.002", 4 / 6, len(groups), len(groups)), ("7", 1 / 6, len(groups), 0)]


def test_a_common_answer_that_is_right_is_no_shortcut_where_gold_names_it_in_another_way(tmp_path):
    """Gold is the option's place, as MMLU has it: of 30 prompts half are Ada, and are answered so."""
    rows = [
        {
            "id": str(place),
            "problem": f"problem {place}",
            "choices": ["Ada", "Bea", "Cy"],
            "answer": place % 2,
            "responses": [f"The answer is ({'AB'[place % 2]})"] * 3 + ["The answer is (C)"],
        }
        for place in range(30)
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(map(dump, rows)))
    found = {one.text: one for one in common_answers(from_rollouts(path, kind=parse_kind({"name": "choice"})))}
    assert {text: one.excess.gold_share for text, one in found.items()} == {"Ada": 0.5, "Bea": 0.5, "Cy": 0.0}
    assert {text: one.is_shortcut for text, one in found.items()} == {"Ada": False, "Bea": False, "Cy": True}


def test_truncated_rollouts_have_no_answer(write_jsonl):
    rows = [
        {"id": 1, "problem": "p", "responses": ["\\boxed{5}", "\\boxed{6}", "none"], "truncated": [False, True, False]}
    ]
    frozen_pass = from_rollouts(write_jsonl("r.jsonl", rows))
    (group,) = frozen_pass.groups
    assert (group.row.counts, group.row.missing_share) == ((1,), pytest.approx(2 / 3))
    assert group.row.unread == ("none",), "what is cut off is not shown"
