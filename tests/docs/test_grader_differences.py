"""The page of differences from Qwen2.5-Math's grader: every row against our grader and the corpus, and none missing."""

import json
import re

import pytest

from restrain_openrlhf.answers.gold import is_right
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "results" / "answers_evaluation_differences.md").read_text(encoding="utf-8")
# Of each section's pairs: our verdict, Qwen2.5-Math's, and the corpus's.
VERDICTS = {
    "Right answers that Qwen2.5-Math refuses": (True, False, True),
    "Wrong answers that Qwen2.5-Math accepts": (False, True, False),
    "A right answer that we refuse": (False, True, True),
}
ROW = re.compile(r"\| (p\d+) \| `(.+)` \| `(.+)` \|")


def rows_of(section: str) -> list[tuple[str, str, str]]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [(found[1], found[2], found[3]) for line in text.splitlines() if (found := ROW.fullmatch(line))]


ROWS = [(*row, verdicts) for section, verdicts in VERDICTS.items() for row in rows_of(section)]


@pytest.mark.parametrize(("name", "answer", "reference", "verdicts"), ROWS, ids=[row[0] for row in ROWS])
def test_our_grader_says_what_the_page_says(name, answer, reference, verdicts):
    assert is_right(answer, reference) is verdicts[0]


def test_the_page_has_every_difference_of_the_corpus_and_its_words(shared):
    lines = (shared / "grading" / "pairs_public.jsonl").read_text(encoding="utf-8").splitlines()
    differing = [
        (pair["id"], pair["a"], pair["b"], (ours, pair["qwen_reference"], pair["equal"]))
        for pair in map(json.loads, lines)
        if (ours := is_right(pair["a"], pair["b"])) != pair["qwen_reference"]
    ]
    assert sorted(ROWS) == sorted(differing)
    assert f"They are {len(differing)} of the {len(lines)} pairs" in PAGE
