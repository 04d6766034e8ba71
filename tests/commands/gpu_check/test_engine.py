"""What is asked of an engine, asked of one of a few lines: honest, and broken in each way that a line is about."""

import asyncio
import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.commands.gpu_check.engine import (  # noqa: E402
    LENGTH,
    Question,
    _is_whole,
    ask_ranks,
    ask_seeds,
    ask_sleep,
    ask_stops,
    examine,
    judge_tree,
)
from restrain_openrlhf.method.rollout_plans import Chain  # noqa: E402

EOS, VOCABULARY = 0, 30


@dataclass
class Parameters:
    """What the case sets of vLLM's SamplingParams."""

    temperature: float = 1.0
    max_tokens: int = LENGTH
    min_tokens: int = 1
    seed: int | None = None
    logprobs: int | None = None
    stop_token_ids: list[int] = field(default_factory=list)


def distribution(context):
    """Log-probabilities of the next token by the tokens so far; the end gets likelier with them."""
    weights = [1 + (sum(context) * 7 + token * 5) % 13 for token in range(VOCABULARY)]
    weights[EOS] = 400 if len(context) > 8 else 1
    return [math.log(weight / sum(weights)) for weight in weights]


class ToyEngine:
    """Draws from that distribution. `fault` breaks one thing."""

    def __init__(self, fault=""):
        self.fault, self.used, self.calls, self.running, self.stale = fault, 100, 0, 0, False

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        self.calls += 1
        self.running += 1
        await asyncio.sleep(0)
        seed = {"seeds ignored": self.calls, "one seed": 1}.get(self.fault, sampling_params.seed)
        if self.fault == "batches differ" and self.running > 1:
            seed += 1000
        if self.fault == "one seed ignored" and seed == 107:
            seed = self.calls
        is_branch = len(prompt_token_ids) > len(QUESTION.prompt)
        seen = QUESTION.prompt if self.fault == "chain forgotten" else prompt_token_ids
        generator, context = random.Random(seed), list(seen)
        tokens, entries, reason = [], [], "length"
        limit = sampling_params.max_tokens + (self.fault == "limit ignored")
        while len(tokens) < limit and reason == "length":
            found = distribution(context)
            greedy = max(range(VOCABULARY), key=lambda token: found[token])
            token = greedy if sampling_params.temperature == 0 else self._draw(generator, found)
            tokens.append(token)
            entries.append(self._entries(found, token))
            context.append(token)
            stops = [] if self.fault == "stops ignored" else sampling_params.stop_token_ids
            ends = token == EOS and self.fault != "end ignored"
            reason = "stop" if ends or token in stops else "length"
        self.running -= 1
        unsaid = self.fault == "says nothing" or (self.fault == "end unsaid in a tree" and is_branch)
        reason = "" if unsaid else reason
        logprobs = entries if sampling_params.logprobs is not None else None
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason=reason, logprobs=logprobs)])

    def _draw(self, generator, found):
        if self.stale:
            generator.random()
        return generator.choices(range(VOCABULARY), [math.exp(value) for value in found])[0]

    def _entries(self, found, token):
        shift = {"another model": 0.5, "too likely": -0.5}.get(self.fault, 0.0)
        order = sorted(range(VOCABULARY), key=lambda each: -found[each])
        kept = order[: 19 if self.fault == "nineteen" else 20]
        ranks = {each: order.index(each) + 1 for each in {*kept, token}}
        if self.fault == "ranks swapped":
            ranks[order[0]], ranks[order[1]] = 2, 1
            # No more than 1 in all, and no two of them alike.
            found = [value - 0.1 * (each == order[1]) for each, value in enumerate(found)]
        return {each: SimpleNamespace(logprob=found[each] - shift, rank=rank) for each, rank in ranks.items()}

    async def sleep(self, level=1):
        self.used = 90 if self.fault == "keeps its memory" else 10

    async def wake_up(self, tags=None):
        self.used, self.stale = 100, self.fault == "wakes up another"


def policy(prompt, response):
    context, found = list(prompt), []
    for token in response:
        found.append(distribution(context)[token])
        context.append(token)
    return found


QUESTION = Question([3, 4, 5], Parameters, EOS)


def failures(engine, policy=policy):
    return failed_lines(asyncio.run(examine(engine, QUESTION, policy)))


def failed_lines(outcomes):
    return [line.name for line in outcomes if line.verdict == "fail"]


@pytest.mark.parametrize(
    ("fault", "lines"),
    [
        ("seeds ignored", ["vLLM: seeds"]),
        ("one seed", ["vLLM: seeds"]),
        ("nineteen", ["vLLM: top-20 ranks"]),
        ("ranks swapped", ["vLLM: top-20 ranks"]),
        ("another model", ["vLLM: top-20 ranks", "vLLM: one tree"]),
        ("chain forgotten", ["vLLM: one tree"]),
        ("end unsaid in a tree", ["vLLM: one tree"]),
        ("stops ignored", ["vLLM: stop tokens"]),
        ("limit ignored", ["vLLM: stop tokens"]),
    ],
)
def test_a_broken_engine_fails_where_it_is_broken(fault, lines):
    assert failures(ToyEngine(fault)) == lines


def test_a_policy_whose_log_probabilities_are_no_numbers_fails():
    found = failures(ToyEngine(), lambda _prompt, response: [math.nan for _ in response])
    assert found == ["vLLM: top-20 ranks", "vLLM: one tree"]


def test_probabilities_of_more_than_one_in_all_fail_whatever_the_policy_has():
    def likelier(prompt, response):
        return [value + 0.5 for value in policy(prompt, response)]

    line = asyncio.run(ask_ranks(ToyEngine("too likely"), QUESTION, likelier))
    assert (line.verdict, line.numbers["gap"]) == ("fail", pytest.approx(0))


@pytest.mark.parametrize(
    ("tokens", "reason", "whole"),
    [
        ([5] * (LENGTH - 1) + [EOS], "stop", True),
        ([5] * LENGTH, "length", True),
        ([5, EOS], "length", False),
        ([5, 5], "stop", False),
        ([5, 5], "length", False),
        ([5] * LENGTH + [EOS], "stop", False),
        ([5] * (LENGTH + 1), "length", False),
        ([], "stop", False),
    ],
)
def test_a_leaf_ends_by_its_end_or_at_the_limit(tokens, reason, whole):
    assert _is_whole(Chain(tuple(tokens), reason, ()), QUESTION) == whole


def test_a_batch_may_change_an_engines_tokens():
    line = asyncio.run(ask_seeds(ToyEngine("batches differ"), QUESTION))
    assert line.verdict == "pass"
    assert line.numbers["in_a_batch"] < 1


def test_one_seed_of_eight_that_draws_something_else_fails():
    line = asyncio.run(ask_seeds(ToyEngine("one seed ignored"), QUESTION))
    assert (line.verdict, line.numbers["alone"]) == ("fail", 0.875)


@pytest.mark.parametrize("line", [judge_tree(5, 1, 0.02), judge_tree(4, 0, 0.02), judge_tree(5, 0, 0.3)])
def test_a_tree_whose_leaves_have_no_end_or_are_missing_or_another_models_fails(line):
    assert failed_lines([line]) == ["vLLM: one tree"]


@pytest.mark.parametrize(
    ("fault", "missed"),
    [
        ("stops ignored", "a stop token"),
        ("limit ignored", "the length limit"),
        ("end ignored", "the end token"),
        ("says nothing", "a stop token, the length limit, the end token"),
    ],
)
def test_an_end_that_is_missed_is_named(fault, missed):
    line = asyncio.run(ask_stops(ToyEngine(fault), QUESTION))
    assert (line.verdict, line.found) == ("fail", f"does not end at {missed}")


@pytest.mark.parametrize(
    ("fault", "freed", "verdict"),
    [("", 0.9, "pass"), ("keeps its memory", 0.1, "fail"), ("wakes up another", 0.9, "fail")],
)
def test_sleep_is_measured_by_the_memory_and_by_what_is_written_afterwards(fault, freed, verdict):
    engine = ToyEngine(fault)
    line = asyncio.run(ask_sleep(engine, QUESTION, lambda: engine.used))
    assert (line.name, line.verdict) == ("vLLM: sleep and wake", verdict)
    assert line.numbers == {"freed": pytest.approx(freed)}
