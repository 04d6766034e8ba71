"""Near-duplicates: what their normal form ignores, what it must keep apart, their groups, and linear time."""

import hashlib
import json
import random
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.data.identity import Digests
from restrain_openrlhf.data.near_duplicates import NearDuplicates, near_duplicates, normal_form
from restrain_openrlhf.data.prepare import Columns, Entry
from tests.command_line import refused, restrain

EQUAL = [
    ("Find $x-1$.", "find  x - 1"),
    ("Is it “so”?", 'is it "so"'),
    ("Let a, b; then: stop.", "let a b then stop"),
    (r"\[x\] and \(y\)", "$$x$$ and $y$"),
    (r"$2\,x\quad y$", "2x y"),
    (r"\left(a\right)", "(a)"),
    ("Alice’s", "Alice's"),
    ("x − 1 – y", "x-1-y"),
    ("1, 2, 3", "1,2,3"),
    ("$5$, $3$", "5, 3"),
    ("a\u00a0b\r\nc\u200b", "a b c"),
    ("e\u0301", "\u00e9"),
]
DIFFERENT = [
    ("x-1", "x+1"),
    ("-3", "3"),
    ("2^3", "23"),
    ("2 3", "23"),
    ("2*3", "2/3"),
    ("1.5", "15"),
    ("1.5", "1 5"),
    (".5", "5"),
    ("1,000", "1000"),
    ("2:3", "2 3"),
    ("5!", "5"),
    ("f'(x)", "f(x)"),
    ("A'B'", "AB"),
    ('5"', "5"),
    ("(a+b)c", "a+bc"),
    ("[0,1)", "(0,1]"),
    ("2^{34}", "2^{3}4"),
    ("x_1, ..., x_n", "x_1, x_n"),
    ("1, 2, …, 9", "1, 2, 9"),
    ("x²", "x2"),
    ("a<b", "a>b"),
    ("|a|", "a"),
    ("10%", "10"),
    (r"\{1\}", "{1}"),
    (r"\pi", "pi"),
    (r"\leq", r"\geq"),
    (r"a\\b", "a b"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_case_punctuation_and_white_space_do_not_count(one, other):
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_has_a_meaning_in_mathematics_counts(one, other):
    assert normal_form(one) != normal_form(other)


MATHS = st.lists(st.sampled_from("a b 2 37 + - * / ^ ( ) { } ! ' = < > _ | %".split()), min_size=1, max_size=12)


@given(MATHS, MATHS)
def test_formulas_have_one_normal_form_only_if_they_have_the_same_signs_in_order(one, other):
    assert (normal_form(" ".join(one)) == normal_form(" ".join(other))) == (one == other)


@given(MATHS, st.sampled_from(" \t\n"), st.sampled_from(["", ".", "?", " ,", ":"]))
def test_layout_case_and_a_last_mark_never_matter(tokens, space, mark):
    text = " ".join(tokens)
    assert normal_form(f"{space}{text.upper()}{mark}") == normal_form(space.join(tokens)) == normal_form(f"${text}$")


def grouped(problems):
    return Columns.of([Entry("", str(place), text, None) for place, text in enumerate(problems)], ()).forms.alike()


def test_groups_stand_in_order_and_answers_conflict_as_text():
    groups = grouped(["A?", "b", "a", "B!", "b.", "c", "a ?"])
    assert groups == [[0, 2, 6], [1, 4]]
    answers = dict(enumerate(["1", "2", " 1", None, "3", "4", None]))
    found, going = near_duplicates(groups, answers, has_gold=True)
    assert found == NearDuplicates(groups=2, prompts=5, conflicting=1)
    assert going == {2, 6, 1, 4}


def test_prompts_of_punctuation_alone_are_not_one_group():
    assert grouped(["?", ":", "?"]) == [[0, 2]]


def test_of_1600_real_problems_only_equal_ones_are_near_duplicates(shared):
    """AMC23 is part of AMC (83), word by word; nothing else in six benchmarks is equal in this form."""
    rows = [
        json.loads(line)["problem"]
        for path in sorted((shared / "benchmarks").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    groups = grouped(rows)
    assert (len(rows), len(groups)) == (1600, 40)
    assert all(len({rows[place] for place in group}) == 1 for group in groups)


@given(st.lists(st.sampled_from("abcdef"), max_size=12), st.data())
def test_equal_texts_and_the_digest_of_a_set_against_dictionaries_and_sorted_hashes(texts, data):
    digests = Digests()
    for text in texts:
        digests.add(text)
    some = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True).map(sorted)) if texts else []
    for asked, places in ((None, range(len(texts))), (np.array(some, dtype=int), some)):
        groups: dict[str, list[int]] = {}
        for place in places:
            groups.setdefault(texts[place], []).append(place)
        assert digests.alike(asked) == [each for each in groups.values() if len(each) > 1]
        hashes = sorted(hashlib.sha256(texts[place].encode()).hexdigest() for place in places)
        assert digests.of_set(asked) == hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def jaccard(one, other):
    """Of runs of three words, by hand: the texts below are in their normal form."""
    sets = [{tuple(text.split()[at : at + 3]) for at in range(len(text.split()) - 2)} for text in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_pairs_of_most_words_are_those_of_all_pairs_and_a_file_of_them_is_written(write_jsonl, tmp_path):
    """Against every pair compared. A word of thirty that changes takes three runs away, and brings three."""
    pytest.importorskip("rensa", reason="needs rensa: pip install restrain-openrlhf[similar]")
    draw = random.Random(3)
    words = [f"w{chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(300)]
    texts = [" ".join(draw.sample(words, 30)) for _ in range(60)]
    for text in texts[:20]:
        changed = text.split()
        changed[draw.randrange(2, 14)] = "other"
        texts.append(" ".join(changed))
        changed[20] = "another"  # 22 of 34 runs are shared: MinHash finds the pair, and its share is too small
        texts.append(" ".join(changed))
    expected = {
        (str(one), str(other)): jaccard(texts[one], texts[other])
        for one, other in combinations(range(len(texts)), 2)
        if jaccard(texts[one], texts[other]) >= 0.75
    }
    # Each text and its first change; its first and its second change.
    assert len(expected) == 40
    out = tmp_path / "pairs.jsonl"
    prompts = write_jsonl("p.jsonl", [{"problem": text} for text in texts])
    done = restrain("data", "similar", prompts, "--least", "0.75", "--out", out)
    assert "40 pairs of 60 prompts share 75% or more" in done.stdout, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(row["id"], row["other_id"]): row["share"] for row in rows} == pytest.approx(expected)
    assert [row["share"] for row in rows] == sorted((row["share"] for row in rows), reverse=True)
    assert len(prompts.read_text().splitlines()) == 100


def test_without_rensa_the_command_says_how_to_get_it(write_jsonl, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rensa", None)
    prompts = write_jsonl("p.jsonl", [{"problem": "a"}])
    assert "Install it with `pip install restrain-openrlhf[similar]`" in refused(
        "data", "similar", prompts, "--out", tmp_path / "o.jsonl"
    )
    assert "is the file of the prompts" in refused("data", "similar", prompts, "--out", prompts)
