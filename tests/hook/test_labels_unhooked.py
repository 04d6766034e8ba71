"""Labels in an OpenRLHF without our entry point: what they do to a reward, by the host's own generate_responses."""

import asyncio

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from vllm import SamplingParams  # noqa: E402

from restrain_openrlhf.errors import ConfigError  # noqa: E402
from tests.hook.in_process import Letters, ScriptedActor  # noqa: E402
from tests.hook.test_methods_in_the_host import boxed  # noqa: E402

RESTRAIN = "method: {name: restrain, prompt_weight: online}\n"
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


@pytest.mark.parametrize(("temperature", "n"), [(0.6, 16), (1.0, 4), (0.6, 4)])
def test_an_evaluation_is_refused_whatever_its_label(agent_alone, temperature, n):
    """Its rows would vote, and the host would call their advantages accuracy."""
    agent_alone(RESTRAIN)
    run = Run()
    run.draw("13")
    said = (
        rf"temperature {temperature:g}, {n} rollouts of a prompt; training draws with temperature 1, 16 .*restrain eval"
    )
    with pytest.raises(ConfigError, match=said):
        run.draw("13", boxed(*["13"] * n), temperature=temperature)
    assert run.draw("") == Run().draw("")
