"""The agent draws what the method plans, by the host's own executor over a made-up engine, and scores it."""

import asyncio
import math
import pickle
from types import SimpleNamespace

import pytest
import yaml

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.errors import ReferencePassError
from tests.hook.in_process import ScriptedActor, asked
from tests.reference.test_doors import METHODS, NINE_TO_SEVEN, OTHERS, PROMPT, made_by_hand

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from openrlhf.trainer.ray import vllm_engine
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from restrain_openrlhf.config.host_flags import agent_path
from restrain_openrlhf.config.yaml_file import EngineLimits
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.hook.agent import AgentExecutor, texts_of
from restrain_openrlhf.hook.rollout import samples
from restrain_openrlhf.hook.rollout.group_columns import EFFECTIVE_LABELS
from restrain_openrlhf.hook.rollout.training_data import TrainingRow, mark_training, refuse_unlabelled
from restrain_openrlhf.machine.patching import ORIGINAL
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, POSITIVE
from tests.hook.in_process import CUT, Letters, written
from tests.hook.test_methods_in_the_host import boxed

TRAINING = TrainingRow()
NEW_TOKENS = 8
TREES = {"name": "ettrl", "trees": 1, "forks": 1, "branches": 2, "entropy_top_k": 2}


class Actor(RolloutRayActor.__ray_metadata__.modified_class):
    """The host's actor over an engine that writes "#d!", d from a list, and is unsure of d alone."""

    def __init__(self, digits):
        self.executor = AgentExecutor()
        self.digits = iter(digits)
        self.requests = []

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        text = "".join(map(chr, prompt_token_ids))
        self.requests.append((text, sampling_params.max_tokens, sampling_params.logprobs))
        return written(self.response(text.removeprefix("1+1=")), sampling_params)

    def response(self, begun):
        return "#" + next(self.digits) + "!" if not begun else next(self.digits) + "!" if begun == "#" else "!"


class Scripted(Actor):
    """Writes whole responses; one that ends with ~ was cut off there."""

    def response(self, _begun):
        return next(self.digits)


def drawn_by(actor, label, n, parameters=None):
    parameters = parameters or SamplingParams(max_tokens=NEW_TOKENS, min_tokens=1)
    return asyncio.run(asked(actor, "1+1=", label, n, parameters))


@pytest.fixture
def draw(hooked):
    def draw(kind, digits, n, label=TRAINING, **method):
        hooked(method)
        actor = kind(digits)
        return actor, drawn_by(actor, label, n)

    return draw


def responses_of(drawn):
    return [Letters().decode(row["observation_tokens"], True).removeprefix("1+1=") for row in drawn]


def test_a_tree_forks_at_the_token_the_policy_is_unsure_of(draw):
    actor, drawn = draw(Actor, "234", 3, **TREES)
    assert responses_of(drawn) == ["#2!", "#3!", "#4!"]
    assert actor.requests == [("1+1=", 8, 2), ("1+1=#", 7, 2), ("1+1=#", 7, 2)]
    assert [row["action_ranges"] for row in drawn] == [[(4, 8)]] * 3


@pytest.mark.parametrize("method", [{"name": "ttrl"}, TREES], ids=["plain", "trees"])
def test_every_training_rollout_brings_its_log_probabilities(draw, method):
    """Four tokens of prompt, then "#", the digit of probability one half, "!" and the end; both in arrays."""
    _, drawn = draw(Actor, "234", 3, **method)
    for row in drawn:
        assert (row["observation_tokens"].dtype, row["rollout_log_probs"].dtype) == ("int64", "float32")
        assert row["rollout_log_probs"] == pytest.approx([0.0] * 4 + [0.0, math.log(0.5), 0.0, 0.0])


@pytest.mark.parametrize(
    ("method", "label", "log_probs"),
    [
        ({"name": "ttrl"}, TrainingRow(), 0),
        ({"name": "ttrl", "votes": 2}, TrainingRow(), 0),
        ({"name": "ttrl"}, "1", None),
    ],
    ids=["plain", "votes", "evaluation"],
)
def test_rollouts_are_asked_for_without_text_and_the_hosts_parameters_stay_as_they_are(
    hooked, method, label, log_probs
):
    hooked(method)
    asked, given = [], SamplingParams(max_tokens=NEW_TOKENS)

    class Noting(Scripted):
        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            asked.append((sampling_params.logprobs, sampling_params.detokenize))
            return await super().generate(prompt_token_ids, sampling_params)

    drawn_by(Noting(boxed("1", "2")), label, 2, given)
    assert asked == [(log_probs, False)] * 2
    assert (given.logprobs, given.detokenize) == (None, True)


def test_a_response_decoded_at_once_is_the_text_that_vllm_would_have_given():
    tokenizer = AutoTokenizer.from_pretrained(ADDITION.model)
    words = [token for token in range(len(tokenizer)) if token not in tokenizer.all_special_ids]
    for response in (*(words[start : start + 9] for start in range(0, len(words), 9)), words[::-1]):
        asked = SimpleNamespace(
            request_id="1",
            sampling_params=SamplingParams(skip_special_tokens=True),
            prompt_token_ids=words[:4],
            prompt_embeds=None,
        )
        vllms = IncrementalDetokenizer.from_new_request(tokenizer, asked)
        vllms.update([*response, tokenizer.eos_token_id], stop_terminated=True)
        tokens = [*words[:4], *response, tokenizer.eos_token_id]
        output = {"observation_tokens": tokens, "action_ranges": [(4, len(tokens))]}
        assert texts_of([output], tokenizer) == [vllms.get_next_output_text(finished=True, delta=False)]


@pytest.mark.parametrize("limits", [{}, {"max_num_seqs": 256, "max_num_batched_tokens": 8192}])
def test_the_engine_reports_log_probabilities_of_what_it_samples_from_and_has_the_runs_limits(hooked, limits):
    hooked({"name": "ttrl"}, engine=EngineLimits(**limits))
    given = {}

    class Engine:
        llm = SimpleNamespace(logger_manager=SimpleNamespace(stat_loggers=[]))

    async def host_init(actor, *args, **kwargs):
        given.update(kwargs)

    setattr(Engine, ORIGINAL + "__init__", host_init)
    asyncio.run(samples.initialise(Engine(), model="m"))
    assert given == {"model": "m", "logprobs_mode": "processed_logprobs", **limits}


def test_a_continuation_never_passes_the_limit_of_new_tokens(draw):
    class Talker(Actor):
        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            return written("1" * sampling_params.max_tokens + CUT, sampling_params)

    _, drawn = draw(Talker, "", 5, **{**TREES, "forks": 2})
    assert [len(row["observation_tokens"]) for row in drawn] == [4 + NEW_TOKENS] * 5
    assert all(row["truncated"] for row in drawn)


def test_another_number_of_rollouts_than_the_host_expects_is_refused(draw):
    with pytest.raises(
        ConfigError, match=r"draws 3 rollouts of a prompt and trains on 3 of them, but .* is 16\. Set it to 3"
    ):
        draw(Actor, "234", 16, **TREES)


def test_evaluation_is_drawn_as_it_is_and_graded(draw):
    actor, drawn = draw(Scripted, [*boxed("2", "3", None), r"\boxed{2}~"], 4, label="2", **TREES)
    assert [(row["reward"], row["scores"]) for row in drawn] == [(1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (1.0, 1.0)]
    assert [row["extra_logs"] for row in drawn] == [{}] * 4
    assert {request[2] for request in actor.requests} == {None}
    assert [row["label"] for row in drawn] == ["2"] * 4


def test_gold_reaches_a_method_that_reads_it_and_the_host_has_it_again(draw):
    _, drawn = draw(Scripted, boxed("2", "3"), 2, label=TrainingRow("3"), name="grpo_gold")
    assert [row["reward"] for row in drawn] == [0.0, 1.0]
    assert (drawn[0]["label"].request.gold, drawn[1]["label"]) == ("3", "3")


def test_a_label_free_methods_training_rows_have_no_gold():
    dataset = SimpleNamespace(prompts=["a", "b", "c"], labels=["1", "", 3])
    mark_training(dataset, reads_gold=False)
    assert dataset.labels == [TrainingRow(None)] * 3
    dataset.labels = ["1", "", 3]
    mark_training(dataset, reads_gold=True)
    assert dataset.labels == [TrainingRow("1"), TrainingRow(None), TrainingRow("3")]
    assert pickle.loads(pickle.dumps(dataset.labels)) == dataset.labels


def test_a_problem_without_an_answer_in_the_evaluation_set_is_refused():
    refuse_unlabelled(SimpleNamespace(prompts=["a"], labels=[0]))
    with pytest.raises(DataError, match=r"1 of 2 problems of eval\.dataset have no gold answer, for example 'b'"):
        refuse_unlabelled(SimpleNamespace(prompts=["a", "b"], labels=["1", ""]))


def test_without_our_entry_point_the_reward_is_the_net_advantage(agent_alone):
    agent_alone("method: {name: restrain, kappa: 2, prompt_weight: online}")
    actor = Scripted(boxed("2", "2", "3", None))
    drawn = drawn_by(actor, "", 4)
    for row in drawn:
        assert row["reward"] == row["extra_logs"][POSITIVE] + row["extra_logs"][NEGATIVE]
        assert 0 <= row["scores"] <= 1
        assert row["extra_logs"][KL_WEIGHT] < 1
        assert row["extra_logs"][EFFECTIVE_LABELS] == pytest.approx(math.exp(math.log(3) - 2 / 3 * math.log(2)))
        assert row["label"] == ""
    assert {request[2] for request in actor.requests} == {None}, "the host reads no log-probabilities"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("method: {name: grpo_gold}", "learns from gold answers, which the agent cannot do without the hook"),
        ("method: {name: srt_easy}", "trains on some of the prompts only, which the agent cannot"),
        ("method: {name: ttrl}\nsteps: 3", "steps is set, which the agent cannot do without the hook"),
        ("method: {name: ttrl}\nmetrics: m.jsonl", "metrics is set, which the agent cannot do without the hook"),
        ("method: {name: ttrl}\nreferense: ref.jsonl", "Did you mean 'reference'"),
        ("method: {name: restrain}", "needs the frozen model's vote"),
    ],
)
def test_what_the_agent_alone_cannot_do_is_refused(agent_alone, text, problem):
    agent_alone(text)
    with pytest.raises(Exception, match=problem):
        AgentExecutor()


def test_without_a_configuration_the_agent_says_what_to_set(monkeypatch):
    monkeypatch.delenv("RESTRAIN_CONFIG", raising=False)
    with pytest.raises(
        ConfigError, match=r"RESTRAIN_CONFIG is not set where the rollouts are drawn\. On every Ray node set it"
    ):
        AgentExecutor()


def test_openrlhf_loads_the_agent_by_its_path(agent_alone):
    agent_alone("method: {name: ttrl}")
    loaded = vllm_engine._load_agent_executor(str(agent_path()))
    assert type(loaded).__name__ == "AgentExecutor"


@pytest.mark.parametrize(("temperature", "n"), [(0.6, 16), (1.0, 4), (0.6, 4)])
def test_without_our_entry_point_an_evaluation_is_refused_whatever_its_label(agent_alone, temperature, n):
    """Its rows would vote, and the host would call their advantages accuracy."""
    agent_alone("method: {name: restrain, prompt_weight: online}")
    training = boxed(*"2" * 9, *"3" * 7)
    actor = Scripted([*training, *boxed(*"3" * n), *training])
    first = [row["reward"] for row in drawn_by(actor, "3", 16)]
    said = (
        rf"temperature {temperature:g}, {n} rollouts of a prompt; training draws with temperature 1, 16 .*restrain eval"
    )
    with pytest.raises(ConfigError, match=said):
        drawn_by(actor, "3", n, SamplingParams(max_tokens=NEW_TOKENS, temperature=temperature))
    assert [row["reward"] for row in drawn_by(Scripted(training), "", 16)] == first, "no label changes a reward"


@pytest.fixture
def first_group(agent_alone):
    """The first group of the agent alone, drawn by the host's own generate_responses."""

    def first_group(document):
        agent_alone(yaml.safe_dump(document))
        actor = ScriptedActor({PROMPT: [rf"\boxed{{{answer}}}" for answer in NINE_TO_SEVEN]})
        actor.kwargs = {"model": str(ADDITION.model)}
        return [row["reward"] for row in asyncio.run(asked(actor, PROMPT, "", 16))]

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
