"""Rollouts drawn as the method plans them, by the host's own generate_responses over a made-up engine."""

import asyncio
import math
import pickle
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack: make install")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.devices import detect  # noqa: E402

detect().install()

from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor  # noqa: E402
from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.logprobs import Logprob  # noqa: E402

from restrain_openrlhf.errors import ConfigError, HookNotActiveError  # noqa: E402
from restrain_openrlhf.hook import carried, rollouts  # noqa: E402
from restrain_openrlhf.hook.carried import Vote  # noqa: E402
from restrain_openrlhf.hook.groups import group_rollouts  # noqa: E402
from restrain_openrlhf.hook.settings import HookSettings  # noqa: E402
from restrain_openrlhf.host_methods import ORIGINAL  # noqa: E402
from restrain_openrlhf.method import build, parse_settings  # noqa: E402
from restrain_openrlhf.scoring import GroupScorer  # noqa: E402

HOST = RolloutRayActor.__ray_metadata__.modified_class
EOS = 0
NEW_TOKENS = 8


class Letters:
    """Token i is the character chr(i), 0 the end."""

    all_special_ids = (EOS,)

    def __call__(self, text, add_special_tokens, return_tensors):
        assert type(text) is str
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, tokens, skip_special_tokens):
        return "".join(chr(token) for token in tokens if token != EOS)

    def batch_decode(self, sequences, skip_special_tokens):
        return [self.decode(tokens, skip_special_tokens) for tokens in sequences]


class Actor(HOST):
    """The host's actor over an engine that writes r"\\boxed{d}", d from a list, and is unsure of d alone."""

    def __init__(self, digits):
        self.executor = SingleTurnAgentExecutor(None)
        self.digits = iter(digits)
        self.requests, self.least = [], []

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        self.requests.append((self.text(prompt_token_ids), sampling_params.max_tokens, sampling_params.logprobs))
        self.least.append(sampling_params.min_tokens)
        written = self.text(prompt_token_ids).removeprefix("1+1=")
        rest = "#" + next(self.digits) + "!" if not written else next(self.digits) + "!" if written == "#" else "!"
        tokens = [*(ord(letter) for letter in rest), EOS]
        logprobs = [self.top(token) for token in tokens] if sampling_params.logprobs is not None else None
        completion = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=logprobs)
        return SimpleNamespace(outputs=[completion])

    @staticmethod
    def text(tokens):
        return "".join(map(chr, tokens))

    @staticmethod
    def top(token):
        if token == EOS:
            return {EOS: Logprob(logprob=0.0, rank=1)}
        if not chr(token).isdigit():
            return {token: Logprob(logprob=0.0, rank=1), EOS: Logprob(logprob=-math.inf, rank=2)}
        other = ord("9") if token != ord("9") else ord("8")
        half = math.log(0.5)
        return {token: Logprob(half, rank=2), other: Logprob(half, rank=1), EOS: Logprob(-9.0, rank=3)}


setattr(Actor, ORIGINAL + "generate_responses", HOST.generate_responses)


@pytest.fixture
def draw(monkeypatch):
    def draw(actor, prompt, n, **method):
        settings = HookSettings(method=parse_settings(method))
        for name, value in settings.to_environment().items():
            monkeypatch.setenv(name, value)
        return asyncio.run(
            rollouts.generate_responses(
                actor,
                prompt=prompt,
                label="2",
                sampling_params=SamplingParams(max_tokens=NEW_TOKENS, min_tokens=1),
                max_length=64,
                hf_tokenizer=Letters(),
                num_samples=n,
            )
        )

    return draw


TRAINING = rollouts.TrainingPrompt("1+1=")
TREES = {"name": "ettrl", "trees": 1, "forks": 1, "branches": 2, "entropy_top_k": 2}


def responses_of(drawn):
    return [Letters().decode(row["observation_tokens"], True).removeprefix("1+1=") for row in drawn]


def test_a_tree_forks_at_the_token_the_policy_is_unsure_of(draw):
    actor = Actor("234")
    drawn = draw(actor, TRAINING, 3, **TREES)
    assert responses_of(drawn) == ["#2!", "#3!", "#4!"]
    assert actor.requests == [("1+1=", 8, 2), ("1+1=#", 7, 2), ("1+1=#", 7, 2)]
    assert [row["action_ranges"] for row in drawn] == [[(4, 8)]] * 3
    assert [row["prompt"] for row in drawn] == ["1+1="] * 3
    assert type(drawn[0]["prompt"]) is str


def test_a_branch_may_end_right_after_its_fork(draw):
    """The host asks for one token at least, of a whole response; a branch has its fork's already."""
    actor = Actor("234")
    draw(actor, TRAINING, 3, **TREES)
    assert actor.least == [1, 0, 0]


def test_every_rollout_carries_its_mean_token_entropy(draw):
    drawn = draw(Actor("234"), TRAINING, 3, **TREES)
    assert [row["extra_logs"][carried.ENTROPY] for row in drawn] == pytest.approx([math.log(2) / 4] * 3)


@pytest.mark.parametrize(("method", "digits"), [({"name": "ttrl"}, "234"), (TREES, "234")], ids=["plain", "trees"])
def test_every_training_rollout_brings_its_log_probabilities(draw, method, digits):
    """Four tokens of prompt, then "#", the digit of probability one half, "!" and the end."""
    drawn = draw(Actor(digits), TRAINING, 3, **method)
    for row in drawn:
        assert row["rollout_log_probs"] == pytest.approx([0.0] * 4 + [0.0, math.log(0.5), 0.0, 0.0])


def test_log_probabilities_are_asked_for_without_text_and_the_hosts_parameters_stay_as_they_are():
    given = SamplingParams(max_tokens=NEW_TOKENS)
    asked = rollouts.with_log_probs(given)
    assert (asked.logprobs, asked.detokenize) == (0, False)
    assert (given.logprobs, given.detokenize) == (None, True)
    assert rollouts.with_log_probs(SamplingParams(logprobs=1)).logprobs == 1


def test_the_engine_reports_log_probabilities_of_what_it_samples_from():
    given = {}

    class Engine:
        pass

    async def host_init(actor, *args, **kwargs):
        given.update(kwargs)

    setattr(Engine, ORIGINAL + "__init__", host_init)
    asyncio.run(rollouts.initialise(Engine(), model="m"))
    assert given == {"model": "m", "logprobs_mode": "processed_logprobs"}


def test_distinct_forks_force_the_token_the_chain_did_not_take(draw):
    actor = Actor("234")
    drawn = draw(actor, TRAINING, 3, **TREES, fork_token="distinct")
    assert actor.requests[1][0] == "1+1=#9"
    assert responses_of(drawn)[1] == "#9!"


def test_rollouts_beyond_the_trained_ones_travel_as_votes(draw):
    drawn = draw(Actor("23344"), TRAINING, 2, name="ttrl", votes=5, train_on=2)
    assert responses_of(drawn) == ["#2!", "#3!"]
    assert drawn[0][carried.VOTES] == tuple(Vote(answer, truncated=False) for answer in ("#3!", "#4!", "#4!"))
    assert carried.ENTROPY not in drawn[0]["extra_logs"]


def test_evaluation_is_drawn_by_the_host_alone(draw):
    actor = Actor("23456")
    drawn = draw(actor, "1+1=", 4, **TREES)
    assert responses_of(drawn) == ["#2!", "#3!", "#4!", "#5!"]
    assert carried.VOTES not in drawn[0]
    assert {request[2] for request in actor.requests} == {None}


def test_a_method_without_a_plan_is_drawn_by_the_host_alone(draw):
    assert responses_of(draw(Actor("2345"), TRAINING, 4, name="restrain")) == ["#2!", "#3!", "#4!", "#5!"]


def test_another_number_of_rollouts_than_the_host_expects_is_refused(draw):
    with pytest.raises(ConfigError, match=r"draws 3 rollouts of a prompt to train on 3, and .* is 16\. Set it to 3"):
        draw(Actor("234"), TRAINING, 16, **TREES)


def test_a_continuation_never_passes_the_limit_of_new_tokens(draw):
    class Talker(Actor):
        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            self.requests.append(sampling_params.max_tokens)
            tokens = [ord("1")] * sampling_params.max_tokens
            completion = SimpleNamespace(
                token_ids=tokens, finish_reason="length", logprobs=[self.top(token) for token in tokens]
            )
            return SimpleNamespace(outputs=[completion])

    setattr(Talker, ORIGINAL + "generate_responses", HOST.generate_responses)
    actor = Talker("")
    drawn = draw(actor, TRAINING, 5, **{**TREES, "forks": 2, "fork_token": "distinct"})
    assert [len(row["observation_tokens"]) for row in drawn] == [4 + NEW_TOKENS] * 5
    assert all(row["truncated"] for row in drawn)


def generator():
    made = SamplesGenerator.__new__(SamplesGenerator)
    made.args = SimpleNamespace(train=SimpleNamespace(seed=42))
    return made


def test_only_what_training_dispatches_is_marked(monkeypatch):
    made, dispatched = generator(), []
    for name, value in HookSettings(method=parse_settings({"name": "ttrl"})).to_environment().items():
        monkeypatch.setenv(name, value)

    def dispatch():
        rollouts.dispatch_prompts(lambda prompts, labels: dispatched.append(prompts), made, (["1+1="], [""]), {})
        return [], None, 1, False

    rollouts.generate_samples(dispatch, made, (), {})
    dispatch()
    assert [type(prompts[0]) for prompts in dispatched] == [rollouts.TrainingPrompt, str]


def test_the_mark_survives_the_way_to_another_process():
    assert type(pickle.loads(pickle.dumps(TRAINING))) is rollouts.TrainingPrompt


def experience(response):
    made = generator()
    return carried.keep_votes(made._process_response_into_experience, made, (response,), {"max_len": 64})


def test_answers_that_only_vote_reach_the_score(draw):
    class Boxed(Actor):
        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            digit = next(self.digits)
            tokens = [*map(ord, rf"\boxed{{{digit}}}"), EOS]
            completion = SimpleNamespace(
                token_ids=tokens,
                finish_reason="length" if digit == "9" else "stop",
                logprobs=[self.top(token) for token in tokens],
            )
            return SimpleNamespace(outputs=[completion])

    setattr(Boxed, ORIGINAL + "generate_responses", HOST.generate_responses)
    drawn = draw(Boxed("23339"), TRAINING, 2, name="ttrl", votes=5, train_on=2)
    samples = [pickle.loads(pickle.dumps(experience(row))) for row in drawn]
    (group,) = group_rollouts(samples, 2, Letters())
    assert group.answers == ("2", "3", "3", "3", None)
    assert group.truncated == (False, False, False, False, True)
    method = build(parse_settings({"name": "ttrl", "votes": 5, "train_on": 2}))
    score = GroupScorer(method).score(group.prompt, group.answers)
    assert score.rewards.tolist() == [0.0, 1.0]


def test_entropies_reach_the_group(draw):
    samples = [experience(row) for row in draw(Actor("234"), TRAINING, 3, **TREES)]
    (group,) = group_rollouts(samples, 3, Letters())
    assert group.entropies == pytest.approx([math.log(2) / 4] * 3)
    assert (
        group_rollouts([experience(row) for row in draw(Actor("23"), "1+1=", 2, name="ttrl")], 2, Letters())[
            0
        ].entropies
        is None
    )


def test_rollouts_drawn_without_the_plan_stop_the_run():
    plan = build(parse_settings(TREES)).rollouts
    with pytest.raises(HookNotActiveError, match="rollout actors that drew them are not hooked"):
        rollouts.refuse_undrawn(plan, has_entropies=False)
