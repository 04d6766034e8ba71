"""Prompts that share most of their words, against all pairs; and digests of many texts, against dictionaries."""

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
from tests.command_line import refused, restrain


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
    """Of runs of three words, by hand: the texts below are words alone."""
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


def test_layout_case_and_punctuation_make_no_difference(write_jsonl, tmp_path):
    """One problem in two ways of writing, another that differs in a sign, and two without a word."""
    pytest.importorskip("rensa", reason="needs rensa: pip install restrain-openrlhf[similar]")
    texts = ["Find $x-1$ , so that (a) holds.", "find  x - 1 so that a holds", "Find x+1 so that a holds", "?", "!"]
    out = tmp_path / "pairs.jsonl"
    restrain("data", "similar", write_jsonl("p.jsonl", [{"problem": text} for text in texts]), "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["id"], row["other_id"], row["share"]) for row in rows] == [("0", "1", 1.0)]


def test_without_rensa_the_command_says_how_to_get_it(write_jsonl, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rensa", None)
    prompts = write_jsonl("p.jsonl", [{"problem": "a"}])
    assert "Install it with `pip install restrain-openrlhf[similar]`" in refused(
        "data", "similar", prompts, "--out", tmp_path / "o.jsonl"
    )
    assert "is the file of the prompts" in refused("data", "similar", prompts, "--out", prompts)
