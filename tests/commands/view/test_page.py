"""What the file holds: flips, equal answers over the steps, every response or a sample, and nothing from outside."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.commands.view.groups import Summaries, details, viewed_run
from restrain_openrlhf.commands.view.page import export
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.labels import PromptGold, gold_for
from restrain_openrlhf.records.kept import step_file
from tests.commands.view.runs import boxed, scored_group, small_run, write_run

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"


def summaries(*answers, gold=None):
    """Those of one prompt's groups, one a step."""
    reader = Summaries()
    groups = [scored_group(step, 0, "p", boxed(*each)) for step, each in enumerate(answers)]
    return [reader.summary(group, details(group, gold or PromptGold())) for group in groups]


def exported(run, megabytes=50, gold=None):
    out = run / "view.html"
    return export(viewed_run(run, gold), out, megabytes), out.read_text(encoding="utf-8")


def block(page, name):
    return re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)[1]


def unpacked(text):
    return json.loads(zlib.decompress(base64.b64decode(text)))


def listed(page):
    return unpacked(block(page, "summaries"))["groups"]


def test_a_flip_is_another_majority_than_before_and_an_equal_answer_written_otherwise_is_none():
    found = summaries(["1", "1", "2"], ["1", "1", "2"], ["2", "2", "1"], [None, None, None], ["1", "1", "2"])
    assert [each.flipped_from for each in found] == [None, None, "1", None, "2"]
    first, second = summaries(["\\frac{1}{2}", "0.5"], ["0.5", "0.50"])
    assert second.flipped_from is None
    assert [each.number for each in (*first.votes, *second.votes)] == [0, 0]


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
    words = ("so \\(x = \\boxed{", "2", "}\\)")
    assert [each.read for each in opened.classes] == [
        (words,) * 2,
        ((words[0], "3", words[2]),),
        (("I do not know.", "", ""),),
    ]
    assert opened.classes[0].label_weight > opened.classes[1].label_weight


def test_the_letter_of_an_option_is_found_although_a_run_keeps_no_options():
    group = scored_group(1, 0, "Where? (A) Bonn (B) Rome", ["The answer is (B)."])
    chosen = replace(group, rollouts=(replace(group.rollouts[0], answer="Rome"),))
    opened = details(chosen, PromptGold(kind=parse_kind({"name": "choice"})))
    assert opened.classes[0].read == (("The answer is (", "B", ")."),)


PROBLEMS = ["How many? Say it.", "How much? Say it.", "Where? Say it."]


@pytest.mark.parametrize("template", ["{}", "<|user|>{}<|assistant|>", "{}\nThink.", "Say: {}"])
def test_gold_is_found_under_any_template_and_that_of_other_problems_refused(template, write_jsonl):
    gold = write_jsonl("gold.jsonl", [{"problem": PROBLEMS[2], "answer": 4}])
    prompts = [template.format(problem) for problem in PROBLEMS]
    assert [gold_for(prompts, gold, {}).of(prompt) for prompt in prompts] == [None, None, "4"]
    with pytest.raises(DataError, match="answers none of the 3 prompts"):
        gold_for(PROBLEMS, write_jsonl("gold.jsonl", [{"problem": "another", "answer": "4"}]), {})


def test_the_file_has_every_group_with_its_responses(tmp_path):
    made, page = exported(small_run(tmp_path))
    assert made == (9, 9, [])
    opened = json.loads(block(page, "details"))
    assert [(each["step"], each["group"]) for each in listed(page)] == [(s, g) for s in (1, 2, 3) for g in range(3)]
    assert sorted(unpacked(block(page, "summaries"))["prompts"]) == sorted({each["prompt_id"] for each in listed(page)})
    assert unpacked(opened["1/0"])["classes"][0]["rollouts"][0]["response"] == "so \\(x = \\boxed{4}\\)"


def test_a_run_whose_first_step_is_damaged_can_be_seen_with_gold(tmp_path, write_jsonl):
    run = small_run(tmp_path)
    step_file(run, 1).write_bytes(b"no parquet")
    gold = write_jsonl("gold.jsonl", [{"problem": "What is \\(2 + 3\\)?", "answer": "5"}])
    made, page = exported(run, gold=gold)
    assert [group["votes"][0]["right"] for group in listed(page) if group["graded"]] == [True, True]
    assert "step-000001.parquet: is not a complete Parquet file" in made.damaged[0]


def test_the_file_names_no_other_file_and_its_policy_lets_in_exactly_its_scripts_and_styles(tmp_path):
    _, page = exported(small_run(tmp_path))
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'<\w+[^>]*(?:src|href)="(?!data:,")[^"]*"', markup) == []
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert len(re.findall(r"url\(data:font/woff2", styles)) == 20
    assert re.findall(r"url\((?!data:)", styles) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    assert [word for word in ("connect-src", "unsafe", "http") if word in policy] == []
    for tag in ("script", "style"):
        digests = [
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        ]
        assert re.search(rf"{tag}-src ([^;]*)", policy)[1] == " ".join(f"'sha256-{each}'" for each in digests)


def test_text_of_rollouts_is_nowhere_in_the_markup(tmp_path):
    run = write_run(tmp_path / HOSTILE.replace("/", "∕"), [scored_group(1, 0, HOSTILE, [HOSTILE, *boxed(HOSTILE)])])
    _, page = exported(run)
    assert "alert(1)</script>" not in page
    assert "onerror=alert" not in page.replace("&lt;img src=x onerror=alert(2)&gt;", "")
    assert page.count("<script") == page.count("</script>")


def test_a_bound_leaves_the_votes_and_every_step_of_a_sample_of_the_prompts(tmp_path):
    noise = ["".join(hashlib.sha256(f"{at} {n}".encode()).hexdigest() for n in range(900)) for at in range(60)]
    groups = [scored_group(step, at, f"prompt {at}", [text]) for step in (1, 2) for at, text in enumerate(noise)]
    (count, with_responses, _), page = exported(write_run(tmp_path, groups), megabytes=1)
    assert count == len(listed(page)) == 120
    kept = json.loads(block(page, "details"))
    assert 0 < len(kept) == with_responses < 120
    assert all(f"{3 - int(step)}/{group}" in kept for step, group in (place.split("/") for place in kept))
    ids = {at: text_hash(f"prompt {at}") for at in range(60)}
    inside = {int(place.split("/")[1]) for place in kept}
    assert max(ids[at] for at in inside) < min(ids[at] for at in range(60) if at not in inside)
    assert (tmp_path / "view.html").stat().st_size < 3 << 20
    assert f"it has the responses of {with_responses:,} of 120 groups" in page
