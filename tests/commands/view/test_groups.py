"""What the list and an open group show: flips, equal answers over the steps, missing answers, gold under a template."""

import pytest

from restrain_openrlhf.answers import canonical_key
from restrain_openrlhf.commands.view.summary import Summaries, details
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.labels import PromptGold, gold_for
from tests.commands.view.runs import boxed, scored_group


def summaries(*answers, reference=None, gold=None):
    """Those of one prompt's groups, one a step."""
    reader = Summaries(gold or PromptGold(), (reference or {}).get)
    return [reader.summary(scored_group(step, 0, "p", boxed(*each))) for step, each in enumerate(answers)]


def test_a_group_whose_majority_is_not_the_one_before_is_flipped():
    found = summaries(["1", "1", "2"], ["1", "1", "2"], ["2", "2", "1"], [None, None, None], ["1", "1", "2"])
    assert [each.flipped_from for each in found] == [None, None, "1", None, "2"]


def test_an_equal_answer_written_otherwise_is_no_flip():
    first, second = summaries(["\\frac{1}{2}", "0.5"], ["0.5", "0.50"])
    assert second.flipped_from is None
    assert [each.number for each in (*first.votes, *second.votes)] == [0, 0]


SEVEN = ("7", canonical_key("7"))


def test_a_prompts_first_group_is_compared_with_the_reference_where_there_is_one():
    assert [each.flipped_from for each in summaries(["1"], ["1"], reference={text_hash("p"): SEVEN})] == ["7", None]
    assert [each.flipped_from for each in summaries(["1"], ["1"], reference={text_hash("q"): SEVEN})] == [None, None]


def test_votes_come_with_the_majority_first_and_equal_numbers_for_equal_answers():
    first, second = summaries(["3", "2", "2", None], ["2", "3", "3"])
    assert [(each.number, each.answer, each.votes) for each in first.votes] == [(0, "2", 2), (1, "3", 1)]
    assert [(each.number, each.answer, each.votes) for each in second.votes] == [(1, "3", 2), (0, "2", 1)]
    assert (first.missing, first.majority_count, first.voters) == (1, 2, 4)


def test_an_open_group_has_its_classes_side_by_side_and_rollouts_without_an_answer_last():
    opened = details(scored_group(1, 0, "p", boxed("3", None, "2", "2")), PromptGold({text_hash("p"): "3"}))
    assert [(each.answer, each.votes, each.right) for each in opened.classes] == [
        ("2", 2, False),
        ("3", 1, True),
        (None, None, False),
    ]
    assert [[rollout.rollout for rollout in each.rollouts] for each in opened.classes] == [[2, 3], [0], [1]]
    assert opened.gold == "3"
    assert opened.classes[0].label_weight > opened.classes[1].label_weight


PROBLEMS = ["How many? Say it.", "How much? Say it.", "Where? Say it."]


@pytest.mark.parametrize("template", ["{}", "<|user|>{}<|assistant|>", "{}\nThink.", "Say: {}"])
def test_gold_is_found_under_any_template(template, write_jsonl):
    gold = write_jsonl("gold.jsonl", [{"problem": PROBLEMS[2], "answer": 4}])
    prompts = [template.format(problem) for problem in PROBLEMS]
    assert [gold_for(prompts, gold, {}).of(prompt) for prompt in prompts] == [None, None, "4"]


def test_gold_of_other_problems_is_refused(write_jsonl):
    with pytest.raises(DataError, match="answers none of the 3 prompts"):
        gold_for(PROBLEMS, write_jsonl("gold.jsonl", [{"problem": "another", "answer": "4"}]), {})
