"""Presets have the values that the paper states, and every value of a preset names its source."""

import pytest

from restrain_openrlhf.config.host_flags import host_flags
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.data.sources import TRAINING_SETS
from restrain_openrlhf.evaluation.job import PAPER
from restrain_openrlhf.method import parse_settings
from tests.config import stated
from tests.conftest import ROOT

CONFIGS = ROOT / "configs"
EVERY = sorted(path for path in CONFIGS.rglob("*.yaml") if "cpu" not in path.parts)


def number(value):
    """YAML reads 1e-6 as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def presets(entry):
    """Those that the words are about. ETTRL has trees of its own, which the paper did not run."""
    for path in EVERY:
        name = str(path.relative_to(CONFIGS))
        trees = entry.key == "rollout.n_samples_per_prompt" and path.stem == "ettrl"
        if name.startswith(entry.folders) and "ttrl_protocol" not in name and path.name[0] != "_" and not trees:
            yield path


@pytest.mark.parametrize("entry", stated.RUNS, ids=lambda entry: f"{entry.key}={entry.value}")
def test_a_run_has_the_value_that_the_paper_states(entry):
    values = {path: number(host_flags(load_run_config(path))[entry.key]) for path in presets(entry)}
    assert values == dict.fromkeys(values, number(entry.value))
    assert len(values) >= 5


@pytest.mark.parametrize("entry", stated.METHOD, ids=lambda entry: entry.key)
def test_restrain_has_the_values_that_are_best_in_the_paper(entry):
    preset = load_run_config(CONFIGS / entry.folders[0] / "restrain.yaml").method
    assert getattr(preset, entry.key) == getattr(parse_settings({"name": "restrain"}), entry.key) == entry.value


@pytest.mark.parametrize("entry", stated.EVALUATION, ids=lambda entry: entry.key)
def test_the_evaluation_protocol_is_the_papers(entry):
    assert getattr(PAPER, entry.key) == entry.value


@pytest.mark.parametrize("entry", stated.SIZES, ids=lambda entry: entry.key)
def test_data_sets_have_the_size_that_the_paper_gives(entry):
    if entry.key in TRAINING_SETS:
        assert TRAINING_SETS[entry.key].count // 1000 == entry.value
    else:
        assert BENCHMARKS[entry.key].sizes == (entry.value,)


@pytest.fixture
def paper(shared):
    """The paper's source, each run of white space one blank."""
    file = shared / "paper.tex"
    if not file.is_file():
        pytest.skip("needs the paper's source as ../shared/paper.tex")
    return " ".join(file.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("group", ["RUNS", "METHOD", "EVALUATION", "SIZES"])
def test_the_words_stand_in_the_paper(paper, group):
    assert [entry.words for entry in getattr(stated, group) if entry.words not in paper] == []


def test_the_benchmarks_are_those_that_the_paper_names(paper):
    suite = paper[paper.index(r"\subsection{Benchmarks}") : paper.index(r"\subsection{Implementation Details}")]
    assert [words for words in stated.BENCHMARKS.values() if words not in suite] == []
