"""Configuration files: what is read, what is refused, and how errors name the key."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import KINDS
from restrain_openrlhf.config.command_line import (
    choose_agent,
    find_config,
    parse_overrides,
)
from restrain_openrlhf.config.documents import dump_yaml, parse_yaml
from restrain_openrlhf.config.yaml_file import load_hook_config, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import METHODS
from tests.config.presets import REPRESENTATIVES


def write(tmp_path, text, name="run.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


GOOD = "run_dir: runs/x\nmethod: {name: restrain, kappa: 2}\nopenrlhf: {actor.adam.lr: 1e-6}\n"


def test_a_run_is_typed_and_its_paths_are_absolute(tmp_path):
    config = load_run_config(write(tmp_path, GOOD + "reference: ref.jsonl\n"))
    assert config.method.kappa == 2
    assert config.run_dir.is_absolute()
    assert config.reference.is_absolute()
    assert config.metrics == config.run_dir / "metrics.jsonl"


def test_the_home_folder_is_meant_in_every_path_of_the_hosts_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    flags = '{data.prompt_dataset: ~/p.jsonl, eval.dataset: "~/a.jsonl,~/b.jsonl", data.input_template: "{} is ~/"}'
    found = load_run_config(write(tmp_path, f"run_dir: r\nmethod: {{name: ttrl}}\nopenrlhf: {flags}\n")).openrlhf
    assert list(found.values()) == ["/home/me/p.jsonl", "/home/me/a.jsonl,/home/me/b.jsonl", "{} is ~/"]


def test_a_file_may_extend_files_of_ones_own_at_any_depth_block_by_block(tmp_path):
    write(tmp_path, GOOD, "base.yaml")
    write(tmp_path, "extends: base.yaml\nmethod: {name: restrain, sigma: 2}\n", "child.yaml")
    (tmp_path / "more").mkdir()
    grandchild = write(tmp_path / "more", "extends: ../child.yaml\nmethod: {delta: 3}\n", "grandchild.yaml")
    config = load_run_config(grandchild)
    assert (config.method.kappa, config.method.sigma, config.method.delta) == (2, 2, 3)
    # A method of another name starts from its own defaults, and so does what extends that.
    write(tmp_path, "extends: child.yaml\nmethod: {name: srt_offline}\n", "other.yaml")
    back = write(tmp_path, "extends: other.yaml\nmethod: {name: restrain}\n", "back.yaml")
    assert load_run_config(back).method == METHODS["restrain"]()


def test_a_file_that_extends_itself_is_refused(tmp_path):
    first = write(tmp_path, "extends: second.yaml\n", "first.yaml")
    write(tmp_path, "extends: first.yaml\n", "second.yaml")
    with pytest.raises(ConfigError, match=r"first.yaml: extends itself, through .*second.yaml\. Take `extends` out"):
        load_run_config(first)


def test_a_file_may_extend_a_preset_by_its_name(tmp_path):
    """One that extends another, and only where no file has this path."""
    text = "extends: one_gpu/24gb/qwen3-0.6b-base\nmethod: {name: restrain, kappa: 7}\nrun_dir: mine\n"
    config = load_run_config(write(tmp_path, text, "mine.yaml"))
    assert config.method.kappa == 7
    assert config.openrlhf["actor.model_name_or_path"] == "Qwen/Qwen3-0.6B-Base"
    (tmp_path / "one_gpu" / "24gb").mkdir(parents=True)
    write(tmp_path / "one_gpu" / "24gb", GOOD, "qwen3-0.6b-base")
    assert "actor.model_name_or_path" not in load_run_config(tmp_path / "mine.yaml").openrlhf


@pytest.mark.parametrize("word", ["cpu/dmeo", "cpu/study/premise/_base"])
def test_what_cannot_be_extended_is_named_with_its_file(tmp_path, word):
    with pytest.raises(ConfigError, match=f"c.yaml: extends '{word}', and there is no file .* no preset"):
        load_run_config(write(tmp_path, f"extends: {word}\n", "c.yaml"))


def test_a_whole_block_replaces_the_settings_given_before_it(tmp_path):
    """Overrides count in their order; a script's own come before its user's."""
    given = {"method.kappa": 2.0, "method.prompt_weight": "online", "method": {"name": "srt_offline"}}
    assert load_run_config(write(tmp_path, GOOD), given).method.name == "srt_offline"
    with pytest.raises(ConfigError, match=r"--set method\.kappa: 'kappa' is not a setting of srt_offline"):
        load_run_config(write(tmp_path, GOOD), {"method": {"name": "srt_offline"}, "method.kappa": 2.0})


@pytest.mark.parametrize("preset", REPRESENTATIVES)
def test_a_block_of_another_name_replaces_the_presets(tmp_path, preset):
    """Each method over each preset, in a file and by --set: its own defaults, and no setting of the preset's method."""
    plain = load_run_config(find_config(preset))
    for name, settings in METHODS.items():
        file = write(tmp_path, f"extends: {preset}\nmethod: {{name: {name}, missing: penalize}}\n")
        typed = {"method.missing": "penalize", "method.name": name}
        of_preset = plain.method.model_dump() if name == plain.method.name else {}
        expected = settings(**{**of_preset, "missing": "penalize"})
        assert load_run_config(file).method == load_run_config(find_config(preset), typed).method == expected


def test_a_kind_of_another_name_replaces_the_one_that_is_extended(tmp_path):
    write(tmp_path, GOOD + "answers: {name: text, read: tag}\n", "base.yaml")
    for block, typed in (("{name: choice}", {}), ("{}", {"answers.name": "choice"})):
        file = write(tmp_path, f"extends: base.yaml\nanswers: {block}\n")
        assert load_run_config(file, typed).answers == KINDS["choice"]()
    assert load_run_config(tmp_path / "base.yaml", {"answers.read": "last_line"}).answers == KINDS["text"](
        read="last_line"
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{1: a.py}", "path is missing"),
        ("{turns: all}", "path is missing. The Python file with a class AgentExecutor"),
        ("{path: a.py, turn: all}", "unknown key 'turn'. Did you mean 'turns'?"),
    ],
)
def test_a_wrong_agent_is_named(word, message):
    with pytest.raises(ConfigError, match=re.escape(f"--agent {word!r}: {message}")):
        choose_agent(word)


def test_numbers_and_texts_that_are_what_they_look_like_are_read():
    clear = {
        **{"1e-5": 1e-5, "1E5": 1e5, "1.5e5": 1.5e5, "-.5": -0.5, "5.": 5.0, "+5": 5, "0": 0, "0x1F": 31},
        ".inf": math.inf,
        **{word: word for word in ("0.11.2", "10.0.0.1", "..", "./x", "8000:8000", "none", "y", "1,5", "2Gi", "5-6")},
        **{"true": True, "False": False, "~": None, "": None},
    }
    assert {word: parse_yaml(word, "x") for word in clear} == clear


WORDS = (
    st.text()
    | st.sampled_from(["1e5", "1.5e5", "016", "1:20", "yes", "2024-01-02", "~"])
    | st.floats(allow_nan=False)
    | st.integers()
    | st.none()
)


@given(st.recursive(WORDS | st.booleans(), st.lists))
def test_what_is_written_is_read_as_it_was(value):
    assert parse_yaml(dump_yaml(value), "x") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "methd: 1\n", "unknown key 'methd'. Did you mean 'method'"),
        (GOOD + "RUN_DIR: x\n", "unknown key 'RUN_DIR'. Did you mean 'run_dir'"),
        (GOOD + "kappa: 2\n", "unknown key 'kappa'. Did you mean 'method.kappa'"),
        ("run_dir: x\n", "`method:` is missing"),
        ("method: {name: restrain}\n", "run_dir is missing. Folder for checkpoints, metrics, logs"),
        ("run_dir: x\nmethod: restrain\n", "method must be a block"),
        ("run_dir: x\nmethod: {name: ttrl, kappa: 3}\n", "'kappa' is not a setting of ttrl"),
        ("run_dir: x\nmethod: {name: restrain}\nopenrlhf: 3\n", "openrlhf must be a block"),
        ("run_dir: x\nrun_dir: y\n", "'run_dir' appears twice"),
        ("run_dir: [\n", "not valid YAML"),
        ("just text\n", "keys and values"),
        *((GOOD + f"steps: {wrong}\n", f"steps is {wrong}") for wrong in ("0", "-3", "2.5", "'2'")),
        (GOOD + "steps: true\n", "steps is True"),
        (GOOD + "reference_n: 0\n", "reference_n is 0: input should be greater than or equal to 1"),
        (GOOD + "evaluate_first: 3\n", "evaluate_first is 3"),
        (GOOD + "logprob_gap_limit: 0\n", "logprob_gap_limit is 0: input should be greater than 0"),
        (GOOD + "logprob_gap_limit: .nan\n", "logprob_gap_limit is nan"),
        *((GOOD + f"rollouts: {{keep: {x}}}\n", "rollouts.keep is ") for x in ("0", "-1", "2.5", "true", "some")),
        (GOOD + "rollouts: {keep: null}\n", "rollouts.keep is None: give a number of groups (1 or more), all"),
        (GOOD + "rollouts: {at_most_mib: 0}\n", "rollouts.at_most_mib is 0: input should be greater than or equal"),
        (GOOD + "rollouts: {kept: 3}\n", "unknown key 'rollouts.kept'. Did you mean 'rollouts.keep'?"),
        (GOOD + "rollouts: none\n", "rollouts is 'none'"),
        (GOOD + "agent: {turns: all}\n", "agent.path is missing"),
        (GOOD + "agent: {path: a.py, turns: first}\n", "agent.turns is 'first': input should be 'last' or 'all'"),
        (GOOD + "agent: {path: a.py, tag: <x>}\n", "agent.tag is '<x>', which is not in the form that is needed. Read"),
        (GOOD + "agent: 3\n", "agent is 3"),
        (GOOD + "metrics: m.jsonl\n", "unknown key 'metrics'"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_file_and_the_key(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        load_run_config(write(tmp_path, text))
    assert message in str(error.value)
    assert "run.yaml" in str(error.value)


def test_a_hook_config_has_no_flags_of_the_host(tmp_path):
    with pytest.raises(ConfigError, match="openrlhf"):
        load_hook_config(write(tmp_path, "method: {name: restrain}\nopenrlhf: {}\n"))
    for path, message in (
        (tmp_path / "absent.yaml", "no such file. Check the path"),
        (tmp_path, "is a folder; a YAML"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_hook_config(path)


WRONG = {"kappa": 2, "kapa": 2, "method.kapa": 2, "metod.kappa": 2, "actor.adam.lr": 1e-5, "rundir": "x"}
WRONG |= {"openrhlf.actor.adam.lr": 1e-5, "rollouts.kep": 3}


@pytest.mark.parametrize("key", WRONG)
def test_the_key_that_is_suggested_is_accepted(tmp_path, key):
    path = write(tmp_path, GOOD)
    with pytest.raises(ConfigError) as refused:
        load_run_config(path, {key: WRONG[key]})
    found = re.search(r"Did you mean '(.*)'\?", str(refused.value))
    assert found, refused.value
    load_run_config(path, {found[1]: WRONG[key]})


@pytest.mark.parametrize("method", METHODS)
def test_the_example_of_an_item_without_a_value_is_accepted(tmp_path, method):
    for item in ("=3", "kappa=[1", "kappa"):
        with pytest.raises(ConfigError, match=re.escape(item)) as refused:
            parse_overrides([item])
    example = re.search(r"for example (\S+)\.$", str(refused.value))[1]
    text = f"run_dir: x\nmethod: {{name: {method}}}\n"
    assert load_run_config(write(tmp_path, text), parse_overrides([example])).method.eps == 1e-6
