"""The host's training set is shortened to the prompts a method selects, and needs no column of answers."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from openrlhf.datasets.prompts_dataset import PromptDataset, preprocess_data

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import ReferencePassError
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.rollout import training_data
from restrain_openrlhf.hook.rollout.training_data import TrainingRow
from restrain_openrlhf.method import parse_settings
from tests.reference.made import write_reference

# Majority shares of 4: .5, 1, .75, 1, .25, 0
ANSWERS = [["1", "1", "2", "3"], ["1"] * 4, ["1", "1", "1", None], ["2"] * 4, ["1", "2", "3", "4"], [None] * 4]


@pytest.fixture
def reference(tmp_path):
    return write_reference(tmp_path / "ref.jsonl", {f"Q {i}?": answers for i, answers in enumerate(ANSWERS)})


def dataset(count=6):
    data = SimpleNamespace(input_key="problem", label_key=None, apply_chat_template=False)
    strategy = SimpleNamespace(args=SimpleNamespace(data=data), is_rank_0=lambda: False)
    rows = [{"problem": f"{i}?"} for i in range(count)]
    return PromptDataset(rows, None, strategy, input_template="Q {}")


def settings(reference, **method):
    return HookConfig(method=parse_settings(method), reference=reference)


def test_srt_easy_trains_on_the_top_third(reference):
    prompts = dataset()
    training_data.keep_selected(prompts, settings(reference, name="srt_easy"))
    assert prompts.prompts == ["Q 1?", "Q 3?"]
    assert len(prompts) == len(prompts.labels) == len(prompts.images) == len(prompts.datasources) == 2


def test_a_prompt_without_a_row_is_named(reference):
    with pytest.raises(ReferencePassError, match=r"no row for the prompt 'Q 6\?'"):
        training_data.keep_selected(dataset(7), settings(reference, name="srt_easy"))


def test_a_cutoff_that_keeps_nothing_is_refused(tmp_path, reference):
    rows = [json.loads(line) for line in reference.read_text().splitlines()]
    reference.write_text("".join(json.dumps({**row, "majority_share": 0.5}) + "\n" for row in rows))
    with pytest.raises(ReferencePassError, match=r"keeps none of the 6 prompts: the highest majority share is 0\.500"):
        training_data.keep_selected(dataset(), settings(reference, name="srt_easy", easy_cutoff=0.9))


@pytest.mark.parametrize(("prompts", "batch", "length"), [(6, 4, 8), (6, 3, 6), (5, 8, 8), (1, 4, 4), (7, 1, 7)])
def test_an_episode_is_a_whole_number_of_batches_and_every_prompt_is_in_it(prompts, batch, length):
    made = dataset(prompts)
    training_data.fill_last_batch(made, batch, seed=3)
    assert len(made) == length
    assert made.prompts[:prompts] == [f"Q {i}?" for i in range(prompts)]
    assert set(made.prompts[prompts:]) <= set(made.prompts[:prompts])
    again = dataset(prompts)
    training_data.fill_last_batch(again, batch, seed=3)
    assert again.prompts == made.prompts


class Strategy:
    seed = 3
    args = SimpleNamespace(rollout=SimpleNamespace(batch_size=2))


@pytest.mark.parametrize(("shuffle", "kept"), [(True, 2), (False, 6)])
def test_the_evaluation_set_is_left_whole(reference, monkeypatch, shuffle, kept):
    graded = dataset()
    graded.labels = ["1"] * len(graded)
    for name, value in to_environment(settings(reference, name="srt_easy")).items():
        monkeypatch.setenv(name, value)
    made = training_data.setup_dataloader(lambda data, *_: data, Strategy(), (graded, 1, True, shuffle, None), {})
    assert len(made) == kept
    assert {type(label) for label in made.labels} == {TrainingRow if shuffle else str}


def preprocessed(row):
    return training_data.preprocess_data(preprocess_data, None, (row, None, "problem", "answer", None), {})


def test_a_row_without_the_label_column_has_the_empty_label(monkeypatch):
    for name, value in to_environment(HookConfig(method=parse_settings({"name": "ttrl"}))).items():
        monkeypatch.setenv(name, value)
    row = {"problem": "1+1=", "answer": "2"}
    assert preprocessed(row) == (
        "1+1=",
        "2",
    )
    bare = {"problem": "1+1="}
    assert preprocessed(bare) == (
        "1+1=",
        "",
    )
    assert bare == {"problem": "1+1="}
    kind = {"method": {"name": "ttrl"}, "answers": {"name": "choice"}}
    monkeypatch.setenv("RESTRAIN_HOOK", json.dumps(kind))
    prompt, label = preprocessed({**row, "options": ["1", "2"]})
    assert (prompt, label.label) == ("1+1=", "2")
    assert label.row == {"problem": "1+1=", "options": ["1", "2"]}, "the gold is no part of what the scorer gets"


@pytest.mark.parametrize(
    ("labelled", "share", "copies"),
    # Of 6 prompts: 2 of 6 are a third already; 2 * 2 of 8 are half; 1 * 5 of 10 are half; the nearest to .9 of 5 others
    [(2, 1 / 3, 1), (2, 0.5, 2), (1, 0.5, 5), (1, 0.9, 45), (6, 0.5, 1), (0, 0.5, 1), (2, None, 1)],
)
def test_prompts_with_gold_are_repeated_until_they_are_the_share_that_was_asked_for(labelled, share, copies):
    made = dataset()
    made.labels = ["1"] * labelled + [""] * (6 - labelled)
    training_data.repeat_labelled(made, share)
    assert len(made) == 6 + labelled * (copies - 1)
    assert made.labels.count("1") == labelled * copies
    assert all(made.prompts.count(f"Q {i}?") == (copies if i < labelled else 1) for i in range(6))
