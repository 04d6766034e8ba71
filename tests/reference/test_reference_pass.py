"""A configuration's own offline pass: what it samples is what its training will ask for."""

import pytest
from rich.console import Console

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands.study import make_reference
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, training_problems
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.errors import ConfigError, ReferencePassError
from restrain_openrlhf.hook.launch.preflight import check_inputs
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference import offline_pass as made_by
from restrain_openrlhf.reference.offline_pass import offline_pass
from tests.command_line import refused
from tests.conftest import ROOT


def configured(tmp_path, **more):
    write_prompts(tmp_path / "p.jsonl", training_problems(4))
    return load_run_config(
        ROOT / "configs" / "cpu" / "demo_addition.yaml",
        {
            "run_dir": str(tmp_path / "run"),
            "reference": str(tmp_path / "ref.jsonl"),
            "openrlhf.actor.model_name_or_path": str(ADDITION.model),
            "openrlhf.data.prompt_dataset": str(tmp_path / "p.jsonl"),
            "openrlhf.data.input_template": "Q: {}",
            **more,
        },
    )


def sampled(job, path, answers=("1", "2")):
    kind = job.provenance.kind
    rows = [ReferenceRow.of_answers(prompt, list(answers), kind).model_dump(mode="json") for prompt in job.prompts]
    path.write_text("".join(map(dump, rows)))
    job.provenance.write(path)


def check(config):
    check_inputs(config, HostRun.of(config).flags)


def test_training_takes_the_reference_that_its_own_configuration_made(tmp_path):
    config = configured(tmp_path)
    job = offline_pass(config)
    assert job.prompts[0].text.startswith("Q: ")
    assert (job.options.n, job.options.max_new_tokens, job.options.max_len) == (16, 14, 32)
    sampled(job, tmp_path / "ref.jsonl", ["1"] * 9 + ["2"] * 7)
    check(config)


def test_training_refuses_a_reference_whose_rows_were_changed_since(tmp_path):
    """As where somebody corrects the prompts' unit, and not the file of the pass."""
    config = configured(tmp_path, answers={"name": "number"})

    def write(unit):
        (tmp_path / "p.jsonl").write_text("".join(dump({"problem": f"{n}+1=", "unit": unit}) for n in range(4)))

    write("km")
    sampled(offline_pass(config), tmp_path / "ref.jsonl", ["1"] * 9 + ["2"] * 7)
    check(config)
    write("m")
    with pytest.raises(ReferencePassError, match=r"line 1 'Q: 0\+1=': its column 'unit' is 'km' there and 'm' here"):
        check(config)


def test_training_by_an_agent_takes_no_reference_of_a_single_turn_and_no_file_without_an_agent(tmp_path):
    sampled(offline_pass(configured(tmp_path)), tmp_path / "ref.jsonl", ["1"] * 9 + ["2"] * 7)
    agent = ROOT / "examples" / "calculator_agent.py"
    with pytest.raises(
        ReferencePassError, match="another agent: it has 'a single turn', this run has 'calculator_agent"
    ):
        check(configured(tmp_path, agent=str(agent)))
    (tmp_path / "their_agent.py").write_text("TURNS = 2\n")
    with pytest.raises(ConfigError, match="has no class AgentExecutor"):
        check(configured(tmp_path, agent=str(tmp_path / "their_agent.py")))
    job = offline_pass(configured(tmp_path, agent=str(agent)))
    sampled(job, tmp_path / "ref.jsonl", ["1"] * 9 + ["2"] * 7)
    check(configured(tmp_path, agent=str(agent)))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"n": 2}, "another number of rollouts per prompt: it has 2, this run has 16"),
        ({"max_new_tokens": 8}, "another max_new_tokens: it has 8, this run has 14"),
    ],
)
def test_training_refuses_a_reference_that_was_sampled_otherwise_unless_the_configuration_says_so(
    tmp_path, made, message
):
    """As two greedy rollouts of 8 tokens for a run that draws 16 at T = 1."""
    job = offline_pass(configured(tmp_path))
    sampled(job, tmp_path / "ref.jsonl", ["1"] * made.get("n", 16))
    job.provenance.model_copy(update=made).write(tmp_path / "ref.jsonl")
    with pytest.raises(ReferencePassError, match=message):
        check(configured(tmp_path))
    check(configured(tmp_path, reference_n=made.get("n", 16), reference_sampling="any"))


def test_a_study_samples_a_missing_reference_with_that_number_of_the_prompts_that_are_trained_on(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(made_by, "run_command", lambda words, _log, _look: asked.append(words))
    rows = {"openrlhf.data.max_samples": 2, "openrlhf.data.prompt_split": "validation"}
    config = configured(tmp_path, reference_n=3, method={"name": "srt_offline"}, **rows)
    make_reference(config, Console(quiet=True))
    assert {"--n=3", "--max-samples=2", "--split=validation"} <= set(asked[0])


def test_an_option_beside_a_configuration_replaces_what_it_says(tmp_path):
    write_prompts(tmp_path / "other.jsonl", training_problems(7))
    config = configured(tmp_path, reference_n=3, **{"openrlhf.data.max_samples": 2})
    given = {"prompts": str(tmp_path / "other.jsonl"), "out": tmp_path / "o.jsonl", "temperature": 0.5, "n": 5}
    job = offline_pass(config, **given, input_template="R: {}", max_len=40)
    assert (job.path, job.options.n, job.options.temperature, job.options.max_len) == (given["out"], 5, 0.5, 40)
    assert len(job.prompts) == 2, "the configuration's own for the rest"
    assert job.prompts[0].text.startswith("R: ")
    assert job.provenance.prompt_count == 2
    assert job.provenance.temperature == 0.5


def test_a_reference_needs_a_configuration_or_its_three_options(tmp_path):
    out = ("--out", str(tmp_path / "o.jsonl"))
    assert "Name a CONFIG, or give --model, --prompts, --out." in refused("reference")
    assert "Name a CONFIG, or give --prompts." in refused("reference", "--model", "m", *out)
    given = ("--model", "m", "--prompts", "p.jsonl", *out)
    assert "no CONFIG is named" in refused("reference", *given, "--set", "reference=x")
