"""SmolLM2's own tokenizer on every way to vLLM: with which tokens a model is asked, and what is read of a response."""

import asyncio
import json
from copy import deepcopy
from functools import cache
from itertools import chain
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
SAID, MORE, END, CUT = "The capital is Paris.", " No, it is Lyon.", "<|im_end|>", None
# The parts of each response that the policy writes, tokens for themselves, and what is read of it.
SPELLED = (SAID, "<|im", "_end|>", END)
WRITTEN = [((SAID, END), SAID), ((SAID, END, MORE, END), SAID), (SPELLED, SAID + END), ((SAID,), CUT)]


@cache
def tokenizer():
    from transformers import AutoTokenizer

    make_smollm2()
    return AutoTokenizer.from_pretrained(smollm2_folder())


def completion(place, prompt, parameters):
    """What vLLM makes of a response: its scheduler ends it, or it goes on to the limit; its detokenizer writes it."""
    from vllm.v1.core.sched.utils import check_stop
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer
    from vllm.v1.request import Request

    (parts, _), parameters = WRITTEN[place % len(WRITTEN)], deepcopy(parameters)
    parameters.update_from_generation_config({}, tokenizer().eos_token_id)
    request = Request("1", list(prompt), parameters, None)
    text = IncrementalDetokenizer.from_new_request(tokenizer() if parameters.detokenize else None, request)
    for token in chain.from_iterable(tokenizer()(part)["input_ids"] for part in (*parts, MORE * 9)):
        request.append_output_token_ids(token)
        has_ended = check_stop(request, max_model_len=4096)
        text.update([token], stop_terminated=str(request.get_finished_reason()) == "stop")
        if has_ended:
            break
    said, reason = text.get_next_output_text(finished=True, delta=False), str(request.get_finished_reason())
    return SimpleNamespace(text=said, token_ids=list(request.output_token_ids), finish_reason=reason, logprobs=None)


@pytest.fixture
def ways(tmp_path, stand_ins, monkeypatch):
    """Of each engine, in order: its model, the token ids of each prompt, and what is read of the responses."""
    import vllm

    from restrain_openrlhf.evaluation import job
    from restrain_openrlhf.reference import offline_engine, offline_pass

    ways = []

    class LLM(SimpleNamespace):
        def generate(self, requests, parameters, use_tqdm):
            asked = [each["prompt_token_ids"] for each in requests]
            ways.append([self.model, asked])
            pairs = zip(asked, parameters, strict=True)
            return [SimpleNamespace(outputs=[completion(n, *pair) for n in range(pair[1].n)]) for pair in pairs]

    class Engine(offline_engine.RolloutEngine):
        def rollouts(self, prompts):
            found = super().rollouts(prompts)
            ways[-1].append([[CUT if each.truncated else each.text for each in group[:4]] for group in found])
            return found

    monkeypatch.setitem(vars(vllm), "LLM", lambda model, **_: LLM(model=model))
    for module in (offline_pass, job):
        monkeypatch.setattr(module, "RolloutEngine", Engine)
    stand_ins.plan(tmp_path / "out")
    (tmp_path / "agent.yaml").write_text("method: {name: ttrl}\nanswers: {name: text}\n")
    monkeypatch.setenv("RESTRAIN_CONFIG", str(tmp_path / "agent.yaml"))
    return ways


def in_training(row):
    """The token ids and what is read: the host's reading of a row and its single turn, in our agent."""
    from openrlhf.datasets.prompts_dataset import preprocess_data
    from vllm import SamplingParams

    from restrain_openrlhf.hook.agent import AgentExecutor, texts_of

    asked, executor = [], AgentExecutor()

    async def generate(prompt_token_ids, sampling_params, multi_modal_data=None):
        asked.append(prompt_token_ids)
        return SimpleNamespace(outputs=[completion(len(asked) - 1, prompt_token_ids, sampling_params)])

    async def draw(**call):
        return await asyncio.gather(*[executor.execute(**call) for _ in WRITTEN])

    how = SamplingParams(max_tokens=32, min_tokens=1, skip_special_tokens=False)
    prompt, label = preprocess_data(row, None, "problem", None, tokenizer().apply_chat_template)
    given = {"sampling_params": how, "max_length": 160, "hf_tokenizer": tokenizer()}
    drawn = asyncio.run(draw(prompt=prompt, label=label, llm_engine=SimpleNamespace(generate=generate), **given))
    assert asked == asked[:1] * len(WRITTEN)
    texts = zip(drawn, texts_of(drawn, tokenizer()), strict=True)
    return asked[0], [CUT if each["truncated"] else text for each, text in texts]


def test_every_way_asks_with_the_tokens_of_transformers_and_reads_the_same_of_a_response(tmp_path, ways):
    """Votes, evaluation and training. The end token ends a response wherever it is; in letters it is text."""
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out"
    rows = [{"id": str(n), "problem": problem, "answer": "Paris"} for n, problem in enumerate(PROBLEMS)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--model", smollm2_folder(), "--answers", "text")
    given = ("--prompts", prompts, "--config", "cpu/demo_capitals", "--no-boxed", "--steps", 1, "--votes", 4)
    done = run_test_time("adapt", *words, *given, "--out", out)
    assert done.returncode == 0, done.stderr
    given = ("--benchmarks", f"own={prompts}", "--template", "chat", "--n", 4, "--max-new-tokens", 32)
    done = restrain("eval", *words, *given, "--out", tmp_path / "eval")
    assert done.returncode == 0, done.stderr
    read = json.loads((out / "reads.json").read_text())
    assert "--data.apply_chat_template" in read["words"]
    trained = [in_training(json.loads(line)) for line in read["files"]["prompts.jsonl"].splitlines()]
    base, adapted, template = str(smollm2_folder()), str(out / "train" / "model"), tokenizer().apply_chat_template
    assert [way for way, *_ in ways] == [base, base, adapted, base]
    chats = [problem if problem is CHAT else [{"role": "user", "content": problem}] for problem in PROBLEMS]
    expected = [template(chat, add_generation_prompt=True)["input_ids"] for chat in chats]
    for way, asked, found in (*ways, ("training", *map(list, zip(*trained, strict=True)))):
        assert asked == expected, way
        assert found == [[read for _, read in WRITTEN]] * len(PROBLEMS), way
