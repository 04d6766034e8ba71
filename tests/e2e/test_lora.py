"""LoRA on the real stack: it learns, vLLM has the policy's whole weights at every step, and a killed run goes on."""

import json

import pytest

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from tests.e2e.conftest import Job, kill_after_step, restrain, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

# By its name, as a preset has it: peft knows the word alone, and argparse hands it a list.
LORA = ("openrlhf.ds.lora.rank=16", "openrlhf.ds.lora.alpha=32", "openrlhf.ds.lora.target_modules=all-linear")
FAST = "openrlhf.actor.adam.lr=1e-3"
# The distance of two neighbours, as a share of the number.
BFLOAT16 = 2**-7


def test_the_demo_learns_with_an_adapter(tmp_path):
    import torch
    from safetensors.torch import load_file

    sets = [word for item in (*LORA, FAST) for word in ("--set", item)]
    done = run(restrain("demo", "--task", "addition", "--out", tmp_path, "--steps", 12, *sets))
    assert done.returncode == 0, done.stderr[-3000:]
    folder = tmp_path / "restrain" / "train"
    before, after = (
        accuracy(tmp_path / "before.jsonl", tmp_path),
        accuracy(tmp_path / "restrain" / "after.jsonl", tmp_path),
    )
    assert after - before >= 0.06
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["restrain/kl"] == 0.0, "a new adapter changes nothing, and the reference policy is the base"
    assert rows[-1]["restrain/kl"] > 0.0
    assert max(row["restrain/logprob_gap_relative"] for row in rows) < 0.03, "rounding, after every sync"

    arrived = [row["restrain/update_arrived"] for row in rows if "restrain/update_arrived" in row]
    assert arrived, "an update far above rounding has a share"
    assert min(arrived) > 0.85, "vLLM has the policy's update"

    base, whole = (load_file(path / "model.safetensors") for path in (ADDITION.model, folder / "model"))
    exact = merged_by_peft(folder / "model" / "adapter")
    for name, tensor in whole.items():
        assert ((tensor.float() - exact[name]).abs() <= exact[name].abs() * BFLOAT16).all(), name
    kept, made = (
        torch.cat([(weights[name].float() - tensor.float()).flatten() for name, tensor in base.items()])
        for weights in (whole, exact)
    )
    assert float(kept @ made / (made @ made)) == pytest.approx(1.0, abs=0.01), "what the adapter learned"


def merged_by_peft(adapter):
    """The exact sum of the base model and the adapter, as docs/journeys/train.md prints it."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype="float32")
    return PeftModel.from_pretrained(base, adapter).merge_and_unload().state_dict()


def accuracy(rollouts, folder) -> float:
    """pass@1 on the demo's held-out problems."""
    from restrain_openrlhf.data.gold import load_gold
    from restrain_openrlhf.evaluation.result import accuracy as of
    from restrain_openrlhf.reference import load_reference

    gold = load_gold(folder / "heldout.jsonl").by_problem
    return of(load_reference(rollouts).rows, gold).pass_at_1


# Five steps with a checkpoint after the third; policy, reference and ZeRO 2 as on one GPU.
SEEDED = (
    *LORA,
    FAST,
    "seeded_rollouts=true",
    "steps=5",
    "openrlhf.ckpt.save_steps=3",
    "openrlhf.train.batch_size=32",
    "openrlhf.train.colocate_actor_ref=true",
    "openrlhf.ds.zero_stage=2",
)


def test_killed_and_resumed_is_the_same_run(job, tmp_path):
    whole, resumed = (Job(tmp_path / name, job.prompts) for name in ("whole", "resumed"))
    done = whole.train(*SEEDED)
    assert done.returncode == 0, done.stderr[-2000:] + whole.log()[-3000:]
    kill_after_step(resumed, 4, *SEEDED)
    assert "Loading the checkpoint" not in resumed.log()
    done = resumed.train(*SEEDED)
    assert done.returncode == 0, done.stderr[-2000:] + resumed.log()[-3000:]
    assert "Loading the checkpoint" in resumed.log()
    assert resumed.measured() == whole.measured()
    for path in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert (resumed.run_dir / "model" / path).read_bytes() == (whole.run_dir / "model" / path).read_bytes()
    assert not resumed_base(resumed), "the base is not in checkpoints"


def resumed_base(job: Job) -> list[str]:
    """What a checkpoint's weights have beside the adapter."""
    import torch

    folder = job.run_dir / "checkpoints" / "_actor"
    saved = torch.load(folder / "global_step3" / "mp_rank_00_model_states.pt", weights_only=False)
    return [name for name in saved["module"] if "lora_" not in name]
