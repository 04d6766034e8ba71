"""A pretrained model with a chat template, SmolLM2-135M-Instruct, on the whole stack: killed, adapted, published."""

import json

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.smollm2 import make_smollm2, smollm2_folder
from restrain_openrlhf.data.demo_tasks.tasks import CAPITALS
from restrain_openrlhf.records.kept import KeptRollout, read_kept
from tests.conftest import ROOT
from tests.e2e.conftest import Job, kill_when, restrain, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3000)]

PROMPTS, ROLLOUTS, STEPS = 4, 8, 3
SETS = (
    "reference=",
    "method.prompt_weight=online",
    "seeded_rollouts=true",
    "rollouts.keep=all",
    f"steps={STEPS}",
    f"openrlhf.rollout.batch_size={PROMPTS}",
    f"openrlhf.rollout.n_samples_per_prompt={ROLLOUTS}",
    f"openrlhf.rollout.micro_batch_size={PROMPTS * ROLLOUTS}",
    f"openrlhf.train.batch_size={PROMPTS * ROLLOUTS}",
    f"openrlhf.train.micro_batch_size={PROMPTS * ROLLOUTS}",
    "openrlhf.rollout.max_new_tokens=24",
    # So that a sync of these few steps changes more than rounding.
    "openrlhf.actor.adam.lr=3e-5",
    "openrlhf.ckpt.save_steps=1",
)
LORA = ("openrlhf.ds.lora.rank=8", "openrlhf.ds.lora.alpha=16", "openrlhf.ds.lora.target_modules=all-linear")


class RealJob(Job):
    """Training SmolLM2 on capitals; the preset names the model's folder in the cache."""

    def command(self, *extra: str) -> list[str]:
        items = (f"run_dir={self.run_dir}", f"openrlhf.data.prompt_dataset={self.prompts}", *SETS, *extra)
        model = f"openrlhf.actor.model_name_or_path={smollm2_folder()}"
        words = [word for item in (model, *items) for word in ("--set", item)]
        return restrain("train", ROOT / "configs" / "cpu" / "demo_capitals.yaml", *words)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    make_smollm2()
    path = tmp_path_factory.mktemp("capitals") / "prompts.jsonl"
    write_prompts(path, CAPITALS.training_set(PROMPTS * STEPS))
    return path


@pytest.fixture(scope="module")
def whole(prompts, tmp_path_factory) -> RealJob:
    """Three steps with the digests of vLLM's weights; many tests read its folder."""
    job = RealJob(tmp_path_factory.mktemp("whole"), prompts)
    done = job.train("weight_digests=true")
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    return job


def weights(job: Job) -> bytes:
    return (job.run_dir / "model" / "model.safetensors").read_bytes()


def test_killed_and_resumed_is_the_same_run(whole, prompts, tmp_path):
    job = RealJob(tmp_path, prompts)
    saved = job.run_dir / "checkpoints" / "_actor" / "latest"
    kill_when(job.command(), saved.exists, job.log)
    assert len(job.rows()) < STEPS
    done = job.train()
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    assert "Loading the checkpoint" in job.log()
    assert job.measured() == whole.measured()
    assert weights(job) == weights(whole)


def test_every_weight_in_vllm_is_the_policys_after_the_last_sync(whole, tmp_path):
    """vLLM holds what it would load from the saved model, bit for bit, and the run has moved that model."""
    from safetensors.torch import load_file

    from restrain_openrlhf.commands.gpu_check.small_run import check_digests
    from restrain_openrlhf.records.folder import RunFolder

    found = check_digests(RunFolder(whole.run_dir), tmp_path / "log")
    assert found.verdict == "pass", found
    base, trained = (
        load_file(smollm2_folder() / "model.safetensors"),
        load_file(whole.run_dir / "model/model.safetensors"),
    )
    head = trained.pop("lm_head.weight")
    assert (head == trained["model.embed_tokens.weight"]).all(), "the head is tied to the embedding"
    assert base.keys() == trained.keys()
    moved = sum(int((base[name] != trained[name]).sum()) for name in base)
    assert moved > 1_000_000


def test_vllm_and_the_policy_agree_at_every_step(whole):
    assert [row["step"] for row in whole.rows()] == list(range(1, STEPS + 1))
    assert max(row["restrain/logprob_gap_relative"] for row in whole.rows()) < 0.03


def rollouts(job: Job) -> list[KeptRollout]:
    return [rollout for group in read_kept(job.run_dir) for rollout in group.rollouts]


def test_the_chat_template_is_applied_once_and_its_tokens_are_trained_on(whole, prompts):
    """By the tokenizer alone: what a user of this model sends, counted against what the host trained on."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    asked = [json.loads(line)["problem"] for line in prompts.read_text().splitlines()]
    chats = [[{"role": "user", "content": text}] for text in asked]
    expected = {tuple(tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]) for chat in chats}
    groups = list(read_kept(whole.run_dir))
    trained = [tuple(tokenizer(group.prompt, add_special_tokens=False)["input_ids"]) for group in groups]
    assert set(trained) <= expected
    for row in whole.rows():
        lengths = [len(ids) for ids, group in zip(trained, groups, strict=True) if group.step == row["step"]]
        assert row["total_length"] - row["response_length"] == pytest.approx(sum(lengths) / len(lengths))


def test_answers_that_end_and_answers_that_are_cut_off(whole):
    """The end token ends an answer and is no part of it; without it, an answer is cut off and has no vote."""
    ended, cut = ([each for each in rollouts(whole) if each.finished is is_ended] for is_ended in (True, False))
    assert len(ended) > 10
    assert cut, "24 tokens are too few for some"
    assert all("<|im_" not in each.response for each in ended)
    assert any(each.answer is not None for each in ended)
    assert all(each.answer is None for each in cut)


def test_the_published_folder_answers_in_plain_transformers(whole):
    done = run(restrain("publish", whole.run_dir))
    assert done.returncode == 0, done.stderr
    assert "Paris" in greedily(whole.run_dir / "hub", "What is the capital of France? Answer in one short sentence.")


def greedily(folder, question: str) -> str:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": question}]
    asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    (found,) = model.generate(asked, do_sample=False, max_new_tokens=24)
    assert found[-1] == tokenizer.eos_token_id, "it ends by itself"
    return str(tokenizer.decode(found[asked.shape[1] :], skip_special_tokens=True))


def test_an_adapter_is_merged_for_vllm_and_in_the_saved_model(prompts, tmp_path):
    job = RealJob(tmp_path, prompts)
    done = job.train(*LORA, "openrlhf.actor.adam.lr=3e-4")
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    rows = job.rows()
    assert rows[0]["restrain/kl"] < 2e-3, "a new adapter changes nothing but rounding, for rollouts in another order"
    assert rows[-1]["restrain/kl"] > rows[0]["restrain/kl"]
    assert max(row["restrain/logprob_gap_relative"] for row in rows) < 0.03, "vLLM drew with the merged weights"
    assert "Paris" in greedily(job.run_dir / "model", "What is the capital of France? Answer in one short sentence.")
