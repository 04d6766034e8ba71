"""Every way into training, on the real stack; and what one run of `restrain train` leaves behind."""

import json
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, training_problems
from restrain_openrlhf.records.kept import read_kept
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, Trained, layout, restrain, run, skip_without, small_disk, with_this_checkout
from tests.method.test_baselines import grpo

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
TWO_STEPS = "openrlhf.data.max_samples=16"


def test_restrain_trains_for_the_steps_it_was_planned_for(trained: Trained):
    rows = trained.rows()
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["actor_lr"] for row in rows] == pytest.approx([2e-4 / 3, 1e-4 / 3, 0.0])
    assert [row["votes"]["voters"] for row in rows] == [64] * 3
    assert all(row["restrain/advantage_pos"] > 0 > row["restrain/advantage_neg"] for row in rows)
    assert all(0 < row["votes"]["prompt_weight_mean"] < 1 for row in rows), "weighed by the reference's votes"


def test_vllm_has_the_policys_weights_at_every_step(trained: Trained):
    """By its log-probabilities: about 1 % apart in bf16. With a stale output head it was 5 % after six steps."""
    gaps = [row["restrain/logprob_gap_relative"] for row in trained.rows()]
    assert len(gaps) == 3
    assert max(gaps) < 0.03


def test_every_row_has_the_times_of_all_phases_and_the_speed(trained: Trained):
    phases = ("generation", "make_experience", "ppo_train", "broadcast")
    for row in trained.rows():
        assert row["timing/step_total"] == pytest.approx(sum(row[f"timing/{phase}"] for phase in phases))
        tokens = row["rollout/response_length_mean"] * row["rollout/num_samples"]
        assert row["restrain/generated_tokens"] == row["restrain/trained_tokens"] == pytest.approx(tokens)
        assert row["restrain/generated_tokens_per_second"] == pytest.approx(tokens / row["timing/generation"])
        assert row["restrain/trained_tokens_per_second"] == pytest.approx(tokens / row["timing/ppo_train"])
        assert row["restrain/policy_entropy"] > 0
        assert row["restrain/kl"] >= 0


def test_evaluations_on_held_out_gold_are_kept_the_base_models_first(trained: Trained):
    rows = [json.loads(line) for line in (trained.run_dir / "evaluations.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 2]
    assert all(0 < row["eval_default_pass1"] <= 1 for row in rows)


def test_the_run_leaves_a_model_that_loads_and_the_command_that_made_it(trained: Trained):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(trained.run_dir / "model")
    assert sum(parameter.numel() for parameter in model.parameters()) > 700_000
    resolved = json.loads((trained.run_dir / "run.json").read_text())
    assert resolved["openrlhf"]["rollout.batch_size"] == SMALL["rollout.batch_size"]


def test_the_labels_of_a_run_against_gold_by_a_count_of_its_own(trained: Trained, tmp_path):
    """The demo's answers are sums of whole numbers, so that Python can say what is right."""
    write_gold(tmp_path / "gold.jsonl", training_problems(48))
    words = ("analyze", trained.run_dir, "--gold", tmp_path / "gold.jsonl", "--json")
    done = run(restrain(*words))
    assert done.returncode == 0, done.stderr
    labels = pushed = agrees = 0
    for group in read_kept(trained.run_dir):
        gold = sum(map(int, group.prompt.removesuffix("=").split("+")))
        votes = Counter(int(rollout.answer) for rollout in group.rollouts if (rollout.answer or "").isdigit())
        labels += max(votes, key=votes.__getitem__, default=None) == gold
        for rollout in group.rollouts:
            net = rollout.advantage_pos + rollout.advantage_neg
            pushed += abs(net) > 1e-9
            right = (rollout.answer or "").isdigit() and int(rollout.answer) == gold
            agrees += abs(net) > 1e-9 and (net > 0) == right
    total = json.loads(done.stdout)["total"]
    assert (total["groups"], total["label_accuracy"]) == (9, pytest.approx(labels / 9))
    assert (total["signals"], total["reward_accuracy"]) == (pushed, pytest.approx(agrees / pushed))


@pytest.mark.long
def test_an_existing_command_needs_one_module_and_one_flag(job, tmp_path):
    """What a deployment that runs `python -m openrlhf.cli.train_ppo_ray FLAGS` changes; here for ETTRL's trees."""
    from restrain_openrlhf.config.host_flags import to_arguments

    (tmp_path / "method.yaml").write_text(
        f"method: {{name: ettrl, trees: 2, forks: 1, branches: 3}}\nmetrics: {tmp_path / 'metrics.jsonl'}\n"
    )
    flags = {
        **SMALL,
        "actor.model_name_or_path": ADDITION.model,
        "data.prompt_dataset": job.prompts,
        "data.input_key": "problem",
        "data.label_key": "answer",
        "data.max_len": 32,
        "data.max_samples": 16,
        "rollout.max_new_tokens": 14,
        **layout(),
        "algo.advantage.estimator": "group_norm",
        "algo.kl.init_coef": 0.001,
        "ckpt.output_dir": tmp_path / "model",
        "ckpt.path": tmp_path / "checkpoints",
    }
    words = to_arguments(flags)
    command = [sys.executable, "-m", "restrain_openrlhf.hook.train_ppo_ray", "--restrain.config"]
    done = run([*command, str(tmp_path / "method.yaml"), *words, "--algo.kl.use_loss"])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert [row["votes"]["voters"] for row in rows] == [64, 64]
    assert any(row["restrain/advantage_pos"] > 0 > row["restrain/advantage_neg"] for row in rows)
    assert all(0 < row["restrain/entropy"] < 3 for row in rows), "by vLLM's own probabilities"
    assert max(row["restrain/logprob_gap_relative"] for row in rows) < 0.05, "the leaves' tokens have the policy's"
    leaves = [leaf for group in read_kept(tmp_path) for leaf in group.rollouts]
    assert len(leaves) == 2 * 64
    assert all(leaf.entropy is not None and leaf.log_prob_gap is not None for leaf in leaves)
    assert (tmp_path / "model" / "config.json").exists()


@pytest.mark.long
def test_the_asynchronous_trainer_takes_corrected_steps(job):
    """Through the other trainer of the host. Twelve prompts, batches of eight: the last one is filled."""
    skip_without(3)
    sets = ("openrlhf.train.async_enable=true", "openrlhf.algo.advantage.is_correction_level=token")
    done = job.train(*sets, "openrlhf.data.max_samples=12", "seeded_rollouts=false")
    assert done.returncode == 0, job.log()[-3000:]
    rows = job.rows()
    assert [row["step"] for row in rows] == [1, 2]
    assert [row["votes"]["voters"] for row in rows] == [64, 64]
    assert [row["rollout/num_samples"] for row in rows] == [64, 64]
    assert any(row["restrain/advantage_neg"] < 0 for row in rows)
    assert all(row["vllm_kl"] != 0 for row in rows), "the ratio is against the policy that drew"
    kept = list(read_kept(job.run_dir))
    for row in rows:
        groups = [group for group in kept if group.step == row["step"]]
        sizes = Counter(group.majority_count for group in groups)
        assert [sizes[size] for size in range(9)] == row["votes"]["majority_histogram"], "all eight groups are kept"
        gaps = [rollout.log_prob_gap for group in groups for rollout in group.rollouts]
        assert min(gaps) < row["restrain/logprob_gap"] < max(gaps)


UNHOOKED = """
import sys
from restrain_openrlhf.hook import train_ppo_ray
train_ppo_ray.SETUP_HOOK = "tests.e2e.test_training.cpu_only"
train_ppo_ray.main(sys.argv[1:])
"""


def cpu_only() -> None:
    """A worker set-up that forgets the hook."""
    from restrain_openrlhf.machine.devices import detect

    detect().install()


@pytest.mark.long
def test_workers_without_the_hook_stop_the_run_before_it_trains(job):
    from restrain_openrlhf.config.command_line import parse_overrides
    from restrain_openrlhf.config.host_flags import host_flags, to_arguments
    from restrain_openrlhf.config.this_machine import on_this_machine
    from restrain_openrlhf.config.yaml_file import load_run_config
    from restrain_openrlhf.records.folder import RunFolder, RunRecord

    sets = job.sets("reference=", TWO_STEPS)[1::2]
    config = on_this_machine(load_run_config(ROOT / "configs" / "cpu" / "demo_addition.yaml", parse_overrides(sets)))
    flags = host_flags(config)
    RunFolder(config.run_dir).claim(RunRecord(config, flags))
    words = ["--restrain.config", str(job.run_dir / "hook.yaml"), *to_arguments(flags)]
    done = run([sys.executable, "-c", UNHOOKED, *words], env=with_this_checkout())
    assert done.returncode != 0
    assert "processes run without the RESTRAIN hook" in done.stderr
    assert job.rows() == []


@pytest.mark.long
def test_every_engine_gets_the_weights_of_a_policy_that_is_sharded(job):
    """ZeRO 3 gathers each parameter before it is sent; both engines draw rollouts."""
    skip_without(4)
    done = job.train(TWO_STEPS, "openrlhf.ds.zero_stage=3", "openrlhf.vllm.num_engines=2")
    assert done.returncode == 0, job.log()[-3000:]
    assert [row["step"] for row in job.rows()] == [1, 2]
    assert max(row["restrain/logprob_gap_relative"] for row in job.rows()) < 0.03


def take_the_rest(path, after):
    """Fill the disk, as another program would, once a file is there; give up after ten minutes."""
    end = time.monotonic() + 600
    while not after.exists() and time.monotonic() < end:
        time.sleep(0.01)
    with suppress(OSError):
        path.write_bytes(bytes(200 << 20))


@pytest.mark.long
def test_a_full_disk_loses_nothing_and_the_run_goes_on_with_more_space(job):
    with small_disk(job.folder / "disk", 16) as disk:
        extra = ("openrlhf.data.max_samples=32", f"openrlhf.ckpt.path={disk / 'checkpoints'}")
        refused = job.train(*extra)
        assert (refused.returncode, "GiB are free, but the run saves about" in refused.stderr) == (2, True)
        run(["mount", "-o", "remount,size=200m", str(disk)])
        latest, taken = disk / "checkpoints" / "_actor" / "latest", disk / "taken"
        with ThreadPoolExecutor() as other:
            other.submit(take_the_rest, taken, after=latest)
            done = job.train(*extra)
        assert done.returncode == 2
        assert re.search(r"checkpoint under .* could not be written", done.stderr)
        assert latest.read_text() == "global_step2"
        assert [row["step"] for row in job.rows()] == [1, 2, 3, 4]
        taken.unlink()
        again = job.train(*extra)
        assert again.returncode == 0, job.log()[-3000:]
        assert [row["step"] for row in job.rows()] == [1, 2, 3, 4]
        assert (disk / "checkpoints" / "_actor" / "latest").read_text() == "global_step4"


@pytest.mark.long
def test_gold_where_it_is_given_is_trained_on_and_a_stop_rule_names_the_last_good_model(job, tmp_path):
    """Every other prompt has gold: its net advantages are GRPO's on right and wrong, by a computation of its own."""
    problems = training_problems(48)
    rows = [{"problem": p.text, "answer": p.answer if place % 2 else ""} for place, p in enumerate(problems)]
    job.prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    labelled = {row["problem"] for row in rows if row["answer"]}
    taught = ("method.gold=where_given", "openrlhf.data.label_key=answer", "rollouts.keep=all")
    stops = ("stop.kl=1e-12", "stop.patience=2", "openrlhf.ckpt.save_hf=true", "openrlhf.ckpt.save_steps=1")
    done = job.train(*taught, *stops)
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    assert json.loads((job.run_dir / "run.json").read_text())["contents"]["gold answers"] == "24 of 48 prompts"
    groups = [(group.prompt in labelled, group) for group in read_kept(job.run_dir)]
    assert {is_labelled for is_labelled, _ in groups} == {True, False}
    for is_labelled, group in groups:
        net = [each.advantage_pos + each.advantage_neg for each in group.rollouts]
        gold = sum(map(int, group.prompt.removesuffix("=").split("+")))
        right = [float((each.answer or "").isdigit() and int(each.answer) == gold) for each in group.rollouts]
        if is_labelled:
            assert group.prompt_weight == 1.0
            assert net == pytest.approx(grpo(right), abs=1e-5)
        else:
            assert group.prompt_weight < 1.0 or group.majority_count == group.voters
    completed = json.loads((job.run_dir / "completed.json").read_text())
    assert completed["stopped"] == completed["alarm"]
    assert "the KL to the base model passed its limit" in completed["alarm"]
    assert completed["chosen_step"] < completed["steps"]
    assert "A stop rule ended training early" in done.stderr
    if completed["chosen_step"]:
        assert run(restrain("publish", job.run_dir)).returncode == 0
    else:
        assert "has no model but the base model" in run(restrain("publish", job.run_dir)).stderr
