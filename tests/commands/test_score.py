"""`restrain score`: its golden row, where u_x comes from, which labels it reads, and what it refuses."""

import csv
import json
import math
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from restrain_openrlhf.commands.main import app
from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import ConfigError, DataError, ReferencePassError
from restrain_openrlhf.evaluation.grade import placed_rollouts
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse
from tests.processes import HEEDS_CTRL_C
from tests.reference.made import write_reference

N = 16


def responses(*counts, missing=0):
    answers = [label for label, count in enumerate(counts) for _ in range(count)]
    return [f"so \\boxed{{{answer + 40}}}" for answer in answers] + ["I give up"] * missing


def row(*counts, missing=0, **more):
    return {"id": "a", "problem": "p", "responses": responses(*counts, missing=missing), **more}


def score(*words):
    """Run the command; an error of ours is raised as it is."""
    done = CliRunner().invoke(app, ["score", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture
def scored(write_jsonl, tmp_path):
    """Score rows with the given options; returns the rows written."""

    def run(rows, *words):
        done = score(write_jsonl("r.jsonl", rows), "--out", tmp_path / "o.jsonl", *words)
        assert done.exit_code == 0, done.stderr
        return [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]

    return run


@pytest.fixture
def reference(tmp_path):
    """A complete artifact for the problem "p" with the given vote."""

    def make(majority, count):
        return write_reference(tmp_path / "ref.jsonl", {"p": [majority] * count + [None] * (N - count)})

    return make


def test_the_golden_row(scored):
    """Votes 12 and 4 of 16, population std: the label weights of the paper's equation 3 at sigma .5."""
    apart = row(*[1] * 16) | {"id": 2, "problem": "q"}
    first, second = scored([row(12, 4, source="x"), apart], "--set", "std=population", "--set", "prompt_weight=1.0")
    assert (first["counts"], first["majority"], first["majority_count"]) == ([12, 4], "40", 12)
    assert first["label_weights"] == pytest.approx([0.731, 0.269], abs=1e-3)
    assert first["advantage_pos"][0] + first["advantage_neg"][0] == pytest.approx(0.267, abs=1e-3)
    assert (second["id"], second["penalized"], second["advantage_neg"]) == (2, True, [-1.0] * 16)


@pytest.mark.parametrize(("count", "weight"), [(3, 0.267), (8, 0.607), (16, 1.0)])
def test_advantages_include_the_prompt_weight_of_the_reference(scored, reference, count, weight):
    (got,) = scored([row(12, 4)], "--reference", reference("40", count))
    (plain,) = scored([row(12, 4)], "--set", "prompt_weight=1")
    assert got["prompt_weight"] == pytest.approx(weight, abs=6e-4)
    assert got["advantage_neg"] == pytest.approx([value * got["prompt_weight"] for value in plain["advantage_neg"]])


def test_srt_trains_on_the_label_of_the_reference(scored, reference):
    (got,) = scored([row(12, 4)], "--method", "srt_offline", "--reference", reference("41.0", 9))
    assert got["label_weights"] == [0.0, 1.0]
    (absent,) = scored([row(12, 4)], "--method", "srt_offline", "--reference", reference("77", 9))
    assert not any(absent["advantage_pos"] + absent["advantage_neg"])


def test_gold_is_read_by_grpo_gold_alone(scored):
    (gold,) = scored([row(12, 4, answer=41)], "--method", "grpo_gold")
    assert gold["label_weights"] == [0.0, 1.0]
    for method in ("restrain", "ttrl"):
        assert scored([row(12, 4, answer="40")], "--method", method) == scored([row(12, 4)], "--method", method)


def test_a_missing_answer_has_no_class_and_u_x_is_1_where_nothing_says_otherwise(scored):
    (got,) = scored([row(2, missing=1)])
    assert (got["classes"], got["prompt_weight"]) == ([0, 0, None], 1.0)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("--set", "name=ttrl"), ConfigError, "--method ttrl"),
        (("--method", "ttrl", "--set", "prompt_weight=1"), ConfigError, "'prompt_weight' is not a setting of ttrl"),
        (("--set", "prompt_weight=offline"), ReferencePassError, "line 1: The method 'restrain' reads the frozen"),
        (("--method", "srt_offline"), ReferencePassError, "line 1: The method 'srt_offline' reads the frozen"),
        (("--method", "grpo_gold"), DataError, "line 1: The method 'grpo_gold' learns from gold answers"),
        (("--set", "kappa=[3"), ConfigError, "not valid YAML"),
        (("--answers", ""), ConfigError, "'' is not a kind of answer"),
        (("--set", "=3"), ConfigError, "KEY=VALUE"),
        (("--reference", "absent.jsonl"), DataError, "absent.jsonl: no such file"),
    ],
)
def test_options_that_cannot_be_right_are_refused(write_jsonl, tmp_path, words, error, message):
    with pytest.raises(error, match=message):
        score(write_jsonl("r.jsonl", [row(12, 4)]), "--out", tmp_path / "o.jsonl", *words)
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([{"id": 1, "problem": "p"}], "line 1: responses"),
        ([{"id": 1, "problem": "p", "responses": []}], "responses is empty"),
        ([row(2), row(3) | {"id": "b"}, row(4)], r"r\.jsonl: line 1 and line 3 have the same id 'a'"),
        ([row(2, truncated=[True])], "line 1: the row: .*truncated has 1 entries for 2 responses"),
        # Every response would be graded wrong against NaN, and right against true if the response is 1.
        *(([row(2, answer=answer)], "line 1: answer") for answer in (math.nan, math.inf, True)),
    ],
    ids=range(8),
)
def test_bad_rows_are_refused_by_their_line(write_jsonl, tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        score(write_jsonl("r.jsonl", rows), "--out", tmp_path / "o.jsonl")


def test_a_problem_that_is_a_chat_is_its_text_in_json_and_in_a_cell(write_jsonl, tmp_path):
    """So that `restrain premise --rollouts` joins it with the gold of the same chat, also in a CSV file."""
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1="}]
    path = write_jsonl("r.jsonl", [row(2, problem=chat), row(2, id="b", problem=json.dumps(chat))])
    assert [each.problem for _, each in placed_rollouts(path)] == ["system: s\n\nuser: 1+1="] * 2
    with (tmp_path / "gold.csv").open("w") as file:
        csv.writer(file).writerows([("problem", "answer"), (json.dumps(chat), "2")])
    assert load_gold(tmp_path / "gold.csv").by_problem == {text_hash("system: s\n\nuser: 1+1="): "2"}
    with pytest.raises(DataError, match="line 1: its prompt is the list"):
        next(placed_rollouts(write_jsonl("bad.jsonl", [row(2, problem=[1])])))


def test_rollouts_are_never_overwritten(write_jsonl):
    path = write_jsonl("r.jsonl", [row(12, 4)])
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is an input file"):
        score(path, "--out", path.parent / "elsewhere" / ".." / path.name)
    assert path.read_bytes() == before


def test_scores_of_before_survive_a_failure(write_jsonl, tmp_path):
    out = tmp_path / "o.jsonl"
    out.write_text("before\n")
    with pytest.raises(DataError, match="line 2"):
        score(write_jsonl("r.jsonl", [row(2), {**row(), "id": "b", "responses": []}]), "--out", out)
    assert out.read_text() == "before\n"


def test_many_missing_answers_are_warned_of(write_jsonl, tmp_path):
    """3 of 16 are no more than 20 %, 4 of 16 are; the words of responses are not read as markup."""
    few, many = row(13, missing=3), row(12, missing=3)
    many["responses"].append("see [bold]this[/]")
    done = score(write_jsonl("r.jsonl", [few]), "--out", tmp_path / "o.jsonl")
    assert "have no answer" not in done.stderr
    done = score(write_jsonl("r.jsonl", [many, many | {"id": "b"}]), "--out", tmp_path / "o.jsonl")
    assert "warning: 25.0% of the file's rollouts have no answer" in done.stderr
    assert "'I give up'; 'see [bold]this[/]'" in done.stderr
    assert "The kind of answer is 'math'" in done.stderr
    assert "Read, in « »: so \\boxed{«40»}. Of these rollouts 'text' reads 100% (94% agree" in done.stderr


@pytest.mark.parametrize(("kappa", "warns"), [(16, False), (17, True)])
def test_a_kappa_above_every_groups_size_is_said(tmp_path, write_jsonl, kappa, warns):
    rows = [row(8), row(16) | {"id": 2}]
    done = score(write_jsonl("r.jsonl", rows), "--out", tmp_path / "o.jsonl", "--set", f"kappa={kappa}")
    assert done.exit_code == 0
    assert ("warning: The method 'restrain' penalises even a unanimous group of 16" in done.stderr) == warns


INTERRUPTED = (
    HEEDS_CTRL_C
    + """
import time
from restrain_openrlhf.commands import main, score
def slow(*given):
    print("started", flush=True)
    time.sleep(600)
score.score_row = slow
main.main()
"""
)


@pytest.mark.timeout(300)
def test_ctrl_c_says_that_nothing_is_kept_and_that_is_so(write_jsonl, tmp_path):
    path, out = write_jsonl("r.jsonl", [row(2)]), tmp_path / "o.jsonl"
    out.write_text("before\n")
    command = [sys.executable, "-c", INTERRUPTED, "score", path, "--out", out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "started\n" in process.stdout
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted: the same command" in said
    assert sorted(tmp_path.iterdir()) == [out, path]
    assert out.read_text() == "before\n"


def test_rows_come_from_standard_input(tmp_path):
    script = "from restrain_openrlhf.commands.main import main\nmain()"
    command = [sys.executable, "-c", script, "score", "/dev/stdin", "--out", str(tmp_path / "o.jsonl")]
    subprocess.run(command, input=json.dumps(row(3, 1)), text=True, check=True, capture_output=True)
    assert json.loads((tmp_path / "o.jsonl").read_text())["counts"] == [3, 1]


def test_a_truncated_response_does_not_vote_as_in_training(scored):
    """The rows of `restrain eval` say which were cut off; their texts may have an answer on the way to another."""
    cut = [False] * 12 + [True] * 4
    (found,) = scored([row(10, 6, truncated=cut)])
    (without,) = scored([row(10, 2, missing=4)])
    assert found == {**without, "answers": found["answers"]}
    assert found["classes"] == [0] * 10 + [1] * 2 + [None] * 4
    request = GroupRequest(
        prompt="p",
        responses=[GroupResponse(text=t, finished=not c) for t, c in zip(responses(10, 6), cut, strict=True)],
    )
    method = build(parse_settings({"name": "restrain", "prompt_weight": "none"}))
    trained = score_whole_group(GroupScorer(method), request)
    assert found["advantage_pos"] == trained.pair.positive.tolist()
