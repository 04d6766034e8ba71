"""Somebody else's reference under the agent alone: refused at the first group."""

import asyncio

import pytest
import yaml

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from vllm import SamplingParams

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ReferencePassError
from tests.hook.in_process import Letters, ScriptedActor
from tests.reference.test_doors import METHODS, NINE_TO_SEVEN, OTHERS, PROMPT, made_by_hand


@pytest.fixture
def first_group(agent_alone):
    """The first group of the agent alone, drawn by the host's own generate_responses."""

    def first_group(document):
        agent_alone(yaml.safe_dump(document))
        actor = ScriptedActor({PROMPT: [rf"\boxed{{{answer}}}" for answer in NINE_TO_SEVEN]})
        actor.kwargs = {"model": str(ADDITION.model)}
        drawing = actor.generate_responses(
            prompt=PROMPT,
            label="",
            sampling_params=SamplingParams(max_tokens=40, temperature=1.0, top_p=1.0),
            max_length=64,
            hf_tokenizer=Letters(),
            num_samples=16,
        )
        return [row["reward"] for row in asyncio.run(drawing)]

    return first_group


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("made", "message"), [OTHERS[2], ({}, None)])
def test_the_agent_alone_refuses_it_at_its_first_group(first_group, tmp_path, method, made, message):
    own = {"model_fingerprint": model_fingerprint(str(ADDITION.model)), **made}
    document = {"method": {"name": method}, "reference": str(made_by_hand(tmp_path, **own))}
    if message is None:
        assert first_group(document)[0] > 0
    else:
        with pytest.raises(ReferencePassError) as error:
            first_group(document)
        assert message in str(error.value)
