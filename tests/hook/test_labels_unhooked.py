"""Labels in an OpenRLHF without our entry point: what they do to a reward, by the host's own generate_responses."""

import asyncio
import logging

import pytest

pytest.importorskip("torch", reason="needs the training stack: make install")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from restrain_openrlhf.machine.devices import detect  # noqa: E402

detect().install()

from vllm import SamplingParams  # noqa: E402

from restrain_openrlhf.errors import ConfigError, DataError  # noqa: E402
from tests.hook.in_process import Letters, ScriptedActor  # noqa: E402
from tests.hook.test_methods_in_the_host import boxed  # noqa: E402

RESTRAIN = "method: {name: restrain, prompt_weight: online}\n"
EVALUATION = "evaluation: {temperature: 0.6, n: 4}\n"
NINE_TO_SEVEN = boxed(*["12"] * 9, *["13"] * 7)
PROMPT = "1+1="


class Run:
    """One rollout actor of a run: groups are drawn in turn by the host's own code."""

    def __init__(self):
        self.actor = ScriptedActor({})

    def draw(self, label, responses=NINE_TO_SEVEN, temperature=1.0):
        """The rewards of one prompt's rollouts."""
        self.actor.script = {PROMPT: iter(responses)}
        drawing = self.actor.generate_responses(
            prompt=PROMPT,
            label=label,
            sampling_params=SamplingParams(max_tokens=40, temperature=temperature),
            max_length=64,
            hf_tokenizer=Letters(),
            num_samples=len(responses),
        )
        return [row["reward"] for row in asyncio.run(drawing)]


def test_a_label_on_a_training_row_changes_no_reward(agent_alone):
    agent_alone(RESTRAIN)
    unlabelled, labelled = Run().draw(""), Run().draw("13")
    assert unlabelled == pytest.approx([0.072] * 9 + [-0.093] * 7, abs=5e-4)
    assert labelled == unlabelled


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    answers=st.lists(st.sampled_from(["12", "13", "14", None]), min_size=2, max_size=6),
    label=st.sampled_from(["12", "13", "14", 12, 13.0, "no answer"]),
    method=st.sampled_from(["{name: restrain, prompt_weight: online, kappa: 1}", "{name: ttrl}"]),
    evaluates=st.booleans(),
)
def test_gold_never_changes_a_label_free_reward(agent_alone, answers, label, method, evaluates):
    agent_alone(f"method: {method}\n" + ("evaluation: {temperature: 0.6, n: 16}\n" if evaluates else ""))
    assert Run().draw(label, boxed(*answers)) == Run().draw("", boxed(*answers))


def test_that_labels_are_ignored_is_said_once_with_the_key_that_grades(agent_alone, caplog):
    agent_alone(RESTRAIN)
    run = Run()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            run.draw("13")
    (said,) = [record.getMessage() for record in caplog.records if "label" in record.getMessage()]
    assert "evaluation: {temperature: " in said


def test_rows_drawn_as_the_configuration_says_evaluation_is_drawn_are_graded(agent_alone):
    agent_alone(RESTRAIN + EVALUATION)
    run = Run()
    trained = run.draw("13")
    assert run.draw("13", boxed("13", "12", None, "26/2"), temperature=0.6) == [1.0, 0.0, 0.0, 1.0]
    assert run.draw("13") == trained == Run().draw("")


def test_evaluation_that_the_configuration_does_not_name_is_refused(agent_alone):
    """Its rows would vote, and the host would call their advantages accuracy."""
    agent_alone(RESTRAIN)
    run = Run()
    run.draw("13")
    with pytest.raises(ConfigError, match=r"temperature 0\.6, 4 .* temperature 1, 16 .*`evaluation: \{temperature: 0"):
        run.draw("13", boxed("13", "12", "12", "12"), temperature=0.6)
    with pytest.raises(ConfigError, match=r"`evaluation: \{temperature: 1, n: 1\}`"):
        run.draw("13", boxed("13"))


def test_rows_drawn_in_a_third_way_are_refused(agent_alone):
    agent_alone(RESTRAIN + EVALUATION)
    run = Run()
    run.draw("13")
    with pytest.raises(ConfigError, match=r"temperature 0\.6, 8 "):
        run.draw("13", boxed(*["13"] * 8), temperature=0.6)


def test_training_that_is_drawn_as_evaluation_cannot_be_told_from_it(agent_alone):
    """OpenRLHF trains first, so that the first group of a run is never evaluation's."""
    agent_alone(RESTRAIN + EVALUATION)
    with pytest.raises(ConfigError, match=r"Give eval\.temperature another value"):
        Run().draw("13", boxed("13", "12", "12", "12"), temperature=0.6)


def test_an_evaluation_row_without_a_label_cannot_be_graded(agent_alone):
    agent_alone(RESTRAIN + EVALUATION)
    run = Run()
    run.draw("")
    with pytest.raises(DataError, match=r"has no label.*data\.label_key"):
        run.draw("", boxed("13", "12", "12", "12"), temperature=0.6)
