"""A part of an offline pass is the pass itself, sampled less: fewer rollouts, nothing drawn again."""

import pytest

from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import merge, subset
from restrain_openrlhf.reference.offline_pass import OfflineOptions, OfflinePass
from restrain_openrlhf.reference.sampling_pass import WHOLE
from tests.reference.test_offline_pass import Engine, prompts, provenance, run_pass


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


def test_more_rollouts_than_there_are_must_be_sampled(reference, tmp_path):
    with pytest.raises(ReferencePassError, match="has 4 rollouts per prompt, but 5 are asked for"):
        subset(reference, tmp_path / "o.jsonl", n=5)


def test_answers_of_another_extractor_are_not_voted_on_again(reference, tmp_path):
    old = reference.provenance.model_copy(update={"extractor_version": "0"})
    (tmp_path / "ref.jsonl.provenance.json").write_text(old.model_dump_json())
    with pytest.raises(ReferencePassError, match="read by version '0'"):
        subset(load_reference(reference.path), tmp_path / "o.jsonl", n=2)


def test_the_artifact_is_not_written_over(reference):
    with pytest.raises(ReferencePassError, match="is the file that is read"):
        subset(reference, reference.path, n=2)


@pytest.mark.parametrize(
    "write",
    [
        lambda path, out: subset(load_reference(path), out, n=2),
        lambda path, out: merge([path], out),
        lambda _, out: OfflinePass.prepare(OfflineOptions(model="m", prompts="p.jsonl", out=out), None, WHOLE),
    ],
    ids=["subset", "merge", "pass"],
)
def test_a_reference_is_not_written_under_a_name_that_says_parquet(reference, tmp_path, write):
    """A pass appends lines of JSON to its file, and no command could read them under a name that says Parquet."""
    with pytest.raises(DataError, match=r"o\.parquet: a reference is a file of JSON Lines, and not Parquet"):
        write(reference.path, tmp_path / "o.parquet")
    assert not list(tmp_path.glob("o.parquet*"))
