"""The options of the offline pass are the same for its command, for a run's own pass, and for the manifests."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from restrain_openrlhf.commands.main import app
from restrain_openrlhf.config.host_flags import host_parser
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reference.offline_pass import OfflineOptions

FLAGS = {name: field.alias for name, field in OfflineOptions.model_fields.items() if field.alias}
REQUIRED = {"model": "m", "prompts": "p.jsonl", "out": Path("r.jsonl")}
OTHER_THAN_DEFAULT = {
    "answers": "{name: text, read: tag}",
    "agent": "{path: /agent.py, turns: all}",
    "n": 3,
    "split": "test",
    "max_samples": 5,
    "input_key": "question",
    "input_template": "Q: {} $(X)",
    "temperature": 0.6,
    "top_p": 0.95,
    "max_new_tokens": 14,
    "max_len": 32,
    "seed": 7,
    "tensor_parallel_size": 2,
    "max_num_seqs": 512,
    "max_num_batched_tokens": 4096,
    "apply_chat_template": True,
}


def read_by_the_command(words):
    """The options of a pass that were typed."""
    found = get_command(app).commands["reference"].make_context("reference", list(words)).params
    return {name: value for name, value in found.items() if name in OfflineOptions.model_fields and value is not None}


def test_every_option_is_one_of_the_command_and_nothing_that_was_not_typed_is_read():
    assert read_by_the_command(OfflineOptions(**REQUIRED).words()) == REQUIRED
    command = {option.name for option in get_command(app).commands["reference"].params}
    assert command == {*OfflineOptions.model_fields, "config", "shard", "overrides"}
    assert set(OfflineOptions.model_fields) == {*REQUIRED, *OTHER_THAN_DEFAULT}


@given(st.sets(st.sampled_from(sorted(OTHER_THAN_DEFAULT))))
def test_the_command_reads_from_the_words_what_they_were_made_from(names):
    options = OfflineOptions(**REQUIRED, **{name: OTHER_THAN_DEFAULT[name] for name in names})
    assert OfflineOptions(**read_by_the_command(options.words())) == options


def test_only_given_options_are_words():
    expected = ["--model=m", "--prompts=p.jsonl", "--out=r.jsonl", "--n=16"]
    assert OfflineOptions(**REQUIRED, n=16).words() == expected
    flags = {FLAGS[name]: REQUIRED[name] for name in ("model", "prompts")} | {"data.prompt_split": "train"}
    assert OfflineOptions.from_flags(flags, out="r.jsonl", n=16).words() == expected


def test_the_flags_are_openrlhfs():
    known = {option.removeprefix("--") for option in host_parser()._option_string_actions}
    assert set(FLAGS.values()) <= known


def test_options_follow_the_flags_where_nothing_else_is_given():
    flags = {FLAGS[name]: value for name, value in {**REQUIRED, **OTHER_THAN_DEFAULT}.items() if name in FLAGS}
    options = OfflineOptions.from_flags(flags, out="r.jsonl", n=5, seed=None)
    assert options.n == 5
    assert options.seed == 42
    assert options.input_template == "Q: {} $(X)"


@pytest.mark.parametrize("value", ["hot", -1])
def test_a_value_that_an_option_does_not_take_names_the_flag(value):
    flags = {"actor.model_name_or_path": "m", "data.prompt_dataset": "p", "rollout.temperature": value}
    with pytest.raises(ConfigError, match=rf"rollout\.temperature is {value!r}"):
        OfflineOptions.from_flags(flags, out="r.jsonl")
