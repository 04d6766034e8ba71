"""Somebody else's reference at each door: the service and the commands."""

import pytest
import yaml

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import NeededReference, refuse_mismatch
from tests.command_line import refused
from tests.reference import by_hand
from tests.scoring.service.conftest import END, services

__all__ = ["services"]

PROMPT = "1+1="
NINE_TO_SEVEN = ["12"] * 9 + ["13"] * 7
METHODS = ["restrain", "srt_offline"]
MODEL = {"model_fingerprint": "commit:dead"}
GREEDY = {"n": 2, "temperature": 0.0, "max_new_tokens": 8}
OTHERS = [
    (MODEL, "made for another model: it has 'commit:dead'"),
    (GREEDY, "another number of rollouts per prompt: it has 2, this run has 16"),
    ({"temperature": 0.0}, "another temperature: it has 0.0, this run has 1.0"),
    ({"top_p": 0.9}, "another top_p: it has 0.9, this run has 1.0"),
    ({"max_new_tokens": 8}, "another max_new_tokens: it has 8, this run has 40"),
    ({"extractor_version": "0"}, "holds answers read by version '0'"),
]


def made_by_hand(tmp_path, **made):
    answers = NINE_TO_SEVEN[: made.get("n", 16)]
    return by_hand.write(tmp_path / "ref.jsonl", [by_hand.line(PROMPT, answers)], **made)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda a, b: [a, by_hand.line("q", ["1", "1"])], r"line 2: has 2 answers and n 2, but the provenance says 16"),
        (lambda a, b: [a, by_hand.line("q", ["1", "1"], n=16)], r"line 2: has 2 answers and n 16"),
        (lambda a, b: [a, "\n", b, a], r"line 4: the row '\w+' is there already"),
    ],
)
def test_rows_of_another_pass_and_rows_that_come_twice_are_refused_by_line(tmp_path, rows, message):
    a, b = by_hand.line("p", NINE_TO_SEVEN), by_hand.line("q", NINE_TO_SEVEN)
    lines = rows(a, b)
    path = by_hand.write(tmp_path / "ref.jsonl", lines, prompt_count=sum(bool(each.strip()) for each in lines))
    with pytest.raises((DataError, ReferencePassError), match=message):
        load_reference(path)


def test_a_reference_written_by_hand_is_read(tmp_path):
    (row,) = load_reference(made_by_hand(tmp_path)).rows
    assert (row.majority, row.majority_count) == ("12", 9)


def test_another_extractors_answers_are_refused_by_every_command_that_reads_them(tmp_path, write_jsonl):
    path = made_by_hand(tmp_path, extractor_version="0")
    rollouts = write_jsonl("rollouts.jsonl", [{"id": 1, "problem": PROMPT, "responses": [r"\boxed{12}"] * 16}])
    for words in (
        ("premise", "--reference", path),
        ("score", rollouts, "--out", tmp_path / "o.jsonl", "--reference", path),
        ("data", "subset-reference", path, "--n", "2", "--out", tmp_path / "o.jsonl"),
        ("serve", "--config", served(tmp_path, path)),
    ):
        said = refused(*words)
        assert "holds answers read by version '0'" in said, words
        assert "Make it again with `restrain reference`" in said


GATHERS = {"group_size": 16, "end_of_text": END}


def served(tmp_path, reference, method="restrain", service=None, **keys):
    document = {"method": {"name": method}, "reference": str(reference), "service": service or GATHERS, **keys}
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(("method", "made", "message"), [("restrain", *OTHERS[0]), ("srt_offline", *OTHERS[1])])
def test_a_service_does_not_start_with_it(tmp_path, method, made, message):
    service = {"group_size": 16, "end_of_text": "x", "model": str(ADDITION.model), "max_new_tokens": 40}
    fingerprint = model_fingerprint(str(ADDITION.model))
    path = made_by_hand(tmp_path, **{"model_fingerprint": fingerprint, **made})
    assert message in refused("serve", "--config", served(tmp_path, path, method, service))


@pytest.mark.parametrize(("made", "message"), OTHERS[:-1])
def test_a_reference_is_compared_in_everything_that_it_was_sampled_with(tmp_path, made, message):
    reference = load_reference(made_by_hand(tmp_path, **made))
    with pytest.raises(ReferencePassError) as error:
        refuse_mismatch(reference, NeededReference(**NEEDED))
    assert message in str(error.value)


NEEDED = {"model_fingerprint": "folder:1", "n": 16, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40}


def test_a_service_starts_with_other_sampling_where_its_configuration_says_so(services, tmp_path):
    path = made_by_hand(tmp_path, **GREEDY)
    said = refused("serve", "--config", served(tmp_path, path, reference_n=2))
    assert "set reference_sampling: any to accept the file" in said
    others = {"reference_n": 2, "reference_sampling": "any"}
    replica = services.start(method={"name": "restrain"}, reference=str(path), others=others, **GATHERS)
    assert replica.http.get("/readyz").status_code == 200
