"""A part of an offline pass is the pass itself, sampled less: fewer rollouts, nothing drawn again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.offline_pass import subset
from tests.command_line import restrain
from tests.reference.test_offline_pass import Engine, run_pass
from tests.reference.toy import prompts, provenance


@pytest.fixture
def reference(tmp_path):
    """Four prompts; each answered [i, i, "x", None]."""
    everything = prompts(4)
    run_pass(everything, provenance(everything), tmp_path / "ref.jsonl", Engine)
    return load_reference(tmp_path / "ref.jsonl")


def test_the_first_rollouts_vote_again(reference, tmp_path):
    assert subset(reference, tmp_path / "three.jsonl", n=3) == 4
    made = load_reference(tmp_path / "three.jsonl")
    row = made.by_problem("2+1=")
    assert (row.n, row.answers, row.counts, row.majority_share, row.missing_share) == (
        3, ("2", "2", "x"), (2, 1), pytest.approx(2 / 3), 0.0,
    )  # fmt: skip
    assert made.provenance == reference.provenance.model_copy(update={"n": 3})


def test_answers_that_were_read_together_are_read_anew(tmp_path):
    """Of three, the first is Paris because of the last; of two, it is read alone. A cut off response has no answer."""
    kind, (prompt,) = parse_kind({"name": "text", "read": "agreed"}), prompts(1)
    said = ["Paris, a city", "Lyon", "Paris", "Lyon"]
    row = ReferenceRow.of(kind, prompt, [Rollout(text, 3, len(text) == 4) for text in said])
    assert (row.answers, row.responses) == (("Paris", None, "Paris", None), ("Paris, a city", None, "Paris", None))
    alone = kind.extract(said[0], prompt.row)
    assert (row.first(2, kind).answers, row.first(2, kind).responses) == ((alone, None), ("Paris, a city", None))
    assert alone != "Paris"
    assert row.first(4, kind).answers == row.answers


# 1.00015 and 1.0 differ by more than 1e-4, and 1.00005 is within it of both: beside 1.0, the first two are two answers.
JOINED = ["1.00015", "1.00005", "1.0", "1.0"]


def test_a_smaller_group_is_classified_anew(tmp_path, write_jsonl):
    """Of the two left, 1.00005 is the smallest, so both are one: u_x is 1 for 2 of 2, and not .607 as for 1 of 2."""
    kind = parse_kind({"name": "number"})
    (prompt,) = everything = prompts(1)
    row = ReferenceRow.of_answers(prompt, JOINED, kind)
    assert (row.classes, row.majority, row.majority_count) == ((0, 1, 1, 1), "1.0", 3)
    write_rows(tmp_path / "four.jsonl", [row])
    made = {"answers": kind.model_dump(mode="json"), "extractor_version": kind.whole_version}
    provenance(everything, **made).write(tmp_path / "four.jsonl")
    done = restrain("data", "subset-reference", tmp_path / "four.jsonl", "--n", "2", "--out", tmp_path / "two.jsonl")
    assert done.returncode == 0, done.stderr
    (two,) = load_reference(tmp_path / "two.jsonl").rows
    assert (two.classes, two.counts, two.keys, two.majority_share) == ((0, 0), (2,), ("20001/20000",), 1.0)
    scores = tmp_path / "scores.jsonl"
    group = {"id": 1, "problem": prompt.problem, "responses": ["The answer is 1."] * 4}
    rollouts = write_jsonl("rollouts.jsonl", [group])
    words = ("--answers", "number", "--reference", tmp_path / "two.jsonl", "--out", scores)
    assert restrain("score", rollouts, *words).returncode == 0
    assert json.loads(scores.read_text())["prompt_weight"] == 1.0


NUMBERS = st.lists(st.sampled_from([*JOINED, "1.0002", "2", None]), min_size=1, max_size=8)


@given(NUMBERS, st.data())
def test_a_part_of_a_pass_votes_as_a_pass_of_that_size(answers, data):
    kind, (prompt,) = parse_kind({"name": "number"}), prompts(1)
    n = data.draw(st.integers(1, len(answers)))
    row = ReferenceRow.of_answers(prompt, answers, kind)
    assert row.first(n, kind) == ReferenceRow.of_answers(prompt, answers[:n], kind)


def test_more_rollouts_than_there_are_must_be_sampled(reference, tmp_path):
    with pytest.raises(ReferencePassError, match="has 4 rollouts per prompt, but 5 are asked for"):
        subset(reference, tmp_path / "o.jsonl", n=5)


def test_the_artifact_is_not_written_over(reference):
    with pytest.raises(ReferencePassError, match="is the file that is read"):
        subset(reference, reference.path, n=2)
