"""SmolLM2's own tokenizer on every way to vLLM: with which tokens a model is asked, and what is read of a response."""

import asyncio
import json
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from restrain_openrlhf.data.demo_tasks.smollm2 import make_smollm2, smollm2_folder
from tests.command_line import restrain
from tests.test_time.conftest import run_test_time

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.long

ASKED = "What is the capital of {}? Answer in one short sentence."
CHAT = [{"role": "system", "content": "You name capitals."}, {"role": "user", "content": ASKED.format("Peru")}]
PROBLEMS = [ASKED.format("France"), f"\n {ASKED.format('Chad')} ", "Say <|im_end|> and no more.", CHAT]
SAID, MORE, NEW_TOKENS = "The capital is Paris.", " No, it is Lyon.", 32


@dataclass(frozen=True)
class Policy:
    """Writes the same responses to every prompt, each with more text behind it, for engines that do not end it."""

    tokenizer: object
    responses: tuple[list[int], ...]

    def output(self, prompt, parameters, place):
        """What vLLM makes of it: where its scheduler ends the response, and which text its detokenizer gives."""
        from vllm.v1.core.sched.utils import check_stop
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer
        from vllm.v1.request import Request

        end = self.tokenizer.eos_token_id
        parameters = deepcopy(parameters)
        parameters.update_from_generation_config({"eos_token_id": end}, end)
        request = Request("1", list(prompt), parameters, None)
        text = IncrementalDetokenizer.from_new_request(self.tokenizer if parameters.detokenize else None, request)
        for token in chain(self.responses[place % len(self.responses)], self.tokenizer(MORE * 9)["input_ids"]):
            request.append_output_token_ids(token)
            has_ended = check_stop(request, max_model_len=4096)
            reason = request.get_finished_reason()
            text.update([token], stop_terminated=str(reason) == "stop")
            if has_ended:
                break
        said = text.get_next_output_text(finished=True, delta=False)
        tokens = list(request.output_token_ids)
        return SimpleNamespace(text=said, token_ids=tokens, finish_reason=str(reason), logprobs=None)


@dataclass(frozen=True)
class Way:
    """By prompt: the token ids that vLLM was given, and the text of each response that is read; None if cut off."""

    asked: list[list[int]]
    read: list[list[str | None]]


@pytest.fixture
def policy():
    """Ends with the end token, writes it inside, writes it in letters, ends an empty response, and never ends."""
    from transformers import AutoTokenizer

    make_smollm2()
    made = AutoTokenizer.from_pretrained(smollm2_folder())
    said, more, spelled = (made(text)["input_ids"] for text in (SAID, MORE, "<|im"))
    end, spelled = [made.eos_token_id], [*spelled, *made("_end|>")["input_ids"]]
    assert end[0] not in spelled
    return Policy(made, ([*said, *end], [*said, *end, *more, *end], [*said, *spelled, *end], [*end, *said, *end], said))


@pytest.fixture
def ways(policy, tmp_path, stand_ins, monkeypatch):
    """`test-time adapt` and `restrain eval` over vLLM's stand-in, and the host's drawing of what adapt trains on."""
    import vllm

    from restrain_openrlhf.reference import offline_engine, offline_pass

    drawn = []

    class LLM:
        def __init__(self, model, **_):
            self.model = model

        def generate(self, requests, parameters, use_tqdm):
            asked = [request["prompt_token_ids"] for request in requests]
            drawn.append((self.model, asked))
            pairs = zip(asked, parameters, strict=True)
            return [SimpleNamespace(outputs=[policy.output(*pair, n) for n in range(pair[1].n)]) for pair in pairs]

    monkeypatch.setitem(vars(vllm), "LLM", LLM)
    monkeypatch.setattr(offline_pass, "RolloutEngine", offline_engine.RolloutEngine)
    rows = [{"id": str(n), "problem": problem, "answer": "Paris"} for n, problem in enumerate(PROBLEMS)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, count = tmp_path / "out", len(policy.responses)
    stand_ins.plan(out)
    words = ("--model", smollm2_folder(), "--answers", "text")
    given = ("--prompts", tmp_path / "p.jsonl", "--config", "cpu/demo_capitals", "--method", "ttrl", "--no-boxed")
    done = run_test_time("adapt", *words, *given, "--steps", 1, "--votes", count, "--out", out)
    assert done.returncode == 0, done.stderr
    given = ("--benchmarks", f"own={tmp_path / 'p.jsonl'}", "--template", "chat", "--out", tmp_path / "eval")
    done = restrain("eval", *words, *given, "--n", count, "--max-new-tokens", NEW_TOKENS)
    assert done.returncode == 0, done.stderr
    assert [model == str(smollm2_folder()) for model, _ in drawn] == [True, True, False, True]
    kept = [out / "before.jsonl", out / "base_vote.jsonl", out / "after.jsonl", tmp_path / "eval/own/responses.jsonl"]
    names = ("base vote", "base model's answers", "last vote", "evaluation")
    found = {name: Way(each, read_in(file)) for name, (_, each), file in zip(names, drawn, kept, strict=True)}
    return {**found, "training": in_training(out, policy, monkeypatch)}


def read_in(file, count=5):
    """The first responses to each prompt; a row of an evaluation says beside them which were cut off."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    cut = [row["truncated"] if isinstance(row["truncated"], list) else repeat(False) for row in rows]
    pairs = [zip(row["responses"][:count], each, strict=False) for row, each in zip(rows, cut, strict=True)]
    return [[None if is_cut else text for text, is_cut in each] for each in pairs]


def in_training(out, policy, monkeypatch):
    """The host's data set, agent and rollout actor, with the flags and prompts that the training of adapt gets."""
    from openrlhf.datasets.prompts_dataset import PromptDataset
    from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
    from openrlhf.utils.config import hierarchize
    from vllm import SamplingParams

    from restrain_openrlhf.config.host_flags import parse
    from restrain_openrlhf.hook import agent
    from restrain_openrlhf.hook.train_ppo_ray import split_words

    asked, read, score = [], [], agent.score_whole_group

    class Actor(RolloutRayActor.__ray_metadata__.modified_class):
        def __init__(self):
            self.executor = agent.AgentExecutor()

        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            asked.append(prompt_token_ids)
            return SimpleNamespace(outputs=[policy.output(prompt_token_ids, sampling_params, len(asked) - 1)])

    def noted(scorer, group):
        read.append([each.text if each.finished else None for each in group.responses])
        return score(scorer, group)

    monkeypatch.setattr(agent, "score_whole_group", noted)
    (out / "agent.yaml").write_text("method: {name: ttrl}\nanswers: {name: text}\n")
    monkeypatch.setenv("RESTRAIN_CONFIG", str(out / "agent.yaml"))
    given = json.loads((out / "reads.json").read_text())
    flags = hierarchize(parse(split_words(given["words"])[1]))
    rows = [json.loads(line) for line in given["files"]["prompts.jsonl"].splitlines()]
    strategy = SimpleNamespace(args=flags, is_rank_0=lambda: False)
    prompts = PromptDataset(rows, policy.tokenizer, strategy, flags.data.input_template).prompts
    actor, count = Actor(), len(policy.responses)
    for prompt in prompts:
        how = SamplingParams(max_tokens=flags.rollout.max_new_tokens, min_tokens=1, skip_special_tokens=False)
        asyncio.run(actor.generate_responses(prompt, "", how, flags.data.max_len, policy.tokenizer, count))
    assert all(ids == asked[place - place % count] for place, ids in enumerate(asked))
    return Way(asked[::count], read)


def test_every_way_asks_with_the_tokens_that_transformers_makes_and_reads_the_same_of_a_response(ways, policy):
    """The end token ends a response wherever it is, is no part of it, and nothing behind it is read."""
    chats = [problem if problem is CHAT else [{"role": "user", "content": problem}] for problem in PROBLEMS]
    expected = [policy.tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"] for chat in chats]
    for name, way in ways.items():
        assert way.asked == expected, name
        assert way.read == [[SAID, SAID, f"{SAID}<|im_end|>", "", None]] * len(PROBLEMS), name
