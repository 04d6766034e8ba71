"""Generation goes on where it stopped, in shards as whole, and never mixes two evaluations; results follow."""

import json

import pytest

from restrain_openrlhf.errors import DataError, RunError
from restrain_openrlhf.evaluation.result import grade_folder, load_results
from restrain_openrlhf.reference.sampling_pass import Shard
from tests.evaluation.conftest import Engine, KilledError, Toy, provenance


def run(sampling, engine, told=None):
    sampling.run(lambda: engine, (told if told is not None else []).append)


def responses(toy):
    made, pairs = toy.folder.each_response()
    return made, list(pairs)


def test_every_response_is_kept_and_the_result_is_right(toy):
    told = []
    run(toy.sampling(), Engine(), told)
    assert told == [0, 64, 64, 22]
    result = grade_folder(toy.folder)
    scores = result.scores
    # 50 problems each with 0, 1 and 2 right responses of 4.
    assert scores.pass_at_1 == pytest.approx((0 + 1 / 4 + 2 / 4) / 3)
    assert scores.pass_at_k == pytest.approx({1: 1 / 4, 2: (0 + 1 / 2 + 5 / 6) / 3, 4: 2 / 3})
    # Two of each answer: the first to appear, which is the right one, wins the vote.
    assert scores.maj_at_n == pytest.approx(1 / 3)
    assert scores.truncated_share == 1 / 4
    assert scores.missing_share == 0
    row = json.loads(toy.folder.responses(Shard(0, 1)).read_text().splitlines()[1])
    assert (row["id"], row["problem"], row["prompt"], len(row["responses"])) == ("1", "q1", "q1", 4)
    assert "answer" not in row


def test_shards_together_give_what_one_pass_gives(toy, tmp_path):
    whole = Toy(tmp_path / "whole", toy.count)
    run(whole.sampling(), Engine())
    for index in (2, 0, 1):
        run(toy.sampling(Shard(index, 3)), Engine())
    assert responses(toy) == responses(whole)
    assert grade_folder(toy.folder) == grade_folder(whole.folder)


def test_a_missing_shard_is_an_error_that_says_so(toy):
    run(toy.sampling(Shard(0, 2)), Engine())
    with pytest.raises(RunError, match="75 of 150 problems have no responses yet \\(the first is '1'\\)"):
        grade_folder(toy.folder)


def test_shards_of_two_ways_to_cut_overlap_and_are_refused(toy):
    run(toy.sampling(Shard(0, 2)), Engine())
    run(toy.sampling(Shard(0, 3)), Engine())
    with pytest.raises(DataError, match="is there already"):
        toy.folder.each_response()


def test_another_evaluation_is_not_mixed_in(toy):
    run(toy.sampling(), Engine())
    with pytest.raises(RunError, match=r"temperature: 0.6 against 1.0.*Choose another --out"):
        run(toy.sampling(temperature=1.0), Engine())
    run(toy.sampling(Shard(0, 2), seed=7), Engine())
    with pytest.raises(RunError, match="not parts of the same pass"):
        toy.folder.each_response()


def test_a_pass_is_complete_once_every_prompt_has_its_row(toy):
    assert not toy.sampling().is_complete()
    with pytest.raises(KilledError):
        run(toy.sampling(), Engine(chunks=1))
    assert not toy.sampling().is_complete()
    run(toy.sampling(), Engine())
    assert toy.sampling().is_complete()
    with pytest.raises(RunError, match=r"temperature: 0.6 against 1.0"):
        toy.sampling(temperature=1.0).is_complete()


def test_where_a_model_lies_makes_no_difference():
    assert provenance(1).difference(provenance(1, model="elsewhere", source="x")) is None
    assert "model_fingerprint" in (provenance(1).difference(provenance(1, model_fingerprint="folder:2")) or "")


def test_other_problems_are_not_put_into_the_same_folder(toy):
    toy.sampling()
    with pytest.raises(RunError, match=r"holds other problems or answers than this evaluation: of '\w+', '\w+' is "):
        Toy(toy.run, toy.count + 1).sampling()


def test_responses_without_their_provenance_are_refused(toy):
    run(toy.sampling(), Engine())
    provenance_file = toy.folder.path / "responses.jsonl.provenance.json"
    text = provenance_file.read_text()
    provenance_file.unlink()
    with pytest.raises(RunError, match="need their provenance file beside them"):
        toy.folder.each_response()
    provenance_file.write_text(text[:50])
    with pytest.raises(RunError, match="Remove it and its responses"):
        toy.folder.each_response()


def test_a_result_that_is_missing_or_damaged_is_told(toy):
    run(toy.sampling(), Engine())
    with pytest.raises(RunError, match="is missing"):
        load_results(toy.run)
    toy.folder.result.write_text("{}")
    with pytest.raises(RunError, match="is damaged"):
        load_results(toy.run)
