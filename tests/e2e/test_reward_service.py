"""Real runs that train against a real `restrain serve` over HTTP, with the advantage hook and without it."""

import json
import os
import sys

import pytest
import yaml

from restrain_openrlhf.demo.run import MODEL
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, run
from tests.reward.conftest import services  # noqa: F401 - a fixture

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]
TWO_STEPS = "openrlhf.data.max_samples=16"
METHOD = {"name": "restrain", "prompt_weight": "online", "kappa": 2}
N = SMALL["rollout.n_samples_per_prompt"]
ROLLOUTS = 2 * SMALL["rollout.batch_size"] * N

# Each step of the hooked trainer is scored a second time, in process, and both scores are written down.
COMPARING = """
import sys
from restrain_openrlhf.hook import train_ppo_ray
train_ppo_ray.SETUP_HOOK = "tests.e2e.test_reward_service.compare_in_worker"
train_ppo_ray.main(sys.argv[1:])
"""

# OpenRLHF's own trainer with the CPU's stand-ins and nothing of ours else.
UNHOOKED = """
import os, runpy, sys
import ray
from restrain_openrlhf.devices import detect
from restrain_openrlhf.hook.train_ppo_ray import HOST_ENVIRONMENT
device = detect()
device.install()
environment = {**HOST_ENVIRONMENT, **device.environment}
os.environ.update(environment)
setup = {"env_vars": environment, "worker_process_setup_hook": "tests.e2e.test_training.cpu_only"}
ray.init(runtime_env=setup, num_gpus=3, num_cpus=7, include_dashboard=False)
sys.argv[0] = "openrlhf.cli.train_ppo_ray"
runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)
"""


def compare_in_worker() -> None:
    """The hook's own worker set-up; where the trainer then runs, its scores are compared."""
    import wrapt

    from restrain_openrlhf.hook import worker

    wrapt.register_post_import_hook(_compare, "restrain_openrlhf.hook.experience")
    worker.setup()


def _compare(experience) -> None:
    wrapped = experience.score_groups

    def score_groups(groups, settings):
        served = wrapped(groups, settings)
        ours = wrapped(groups, settings.model_copy(update={"advantages": "hook"}))
        with settings.metrics.with_name("compared.jsonl").open("a") as file:
            for group, theirs, own in zip(groups, served, ours, strict=True):
                row = {
                    "prompt": group.prompt,
                    "truncated": sum(group.truncated),
                    "service": [theirs.pair.positive.tolist(), theirs.pair.negative.tolist(), theirs.rewards.tolist()],
                    "hook": [own.pair.positive.tolist(), own.pair.negative.tolist(), own.rewards.tolist()],
                    "weights": [theirs.prompt_weight, own.prompt_weight, theirs.kl_weight, own.kl_weight],
                    "penalized": [theirs.penalized, own.penalized],
                }
                file.write(json.dumps(row) + "\n")
        return served

    experience.score_groups = score_groups


def flags(job, url: str, **extra: object) -> dict[str, object]:
    from restrain_openrlhf.config.host_defaults import host_flags
    from restrain_openrlhf.config.overrides import parse_overrides
    from restrain_openrlhf.config.yaml_file import load_run_config

    sets = job.sets("reference=", TWO_STEPS, f"openrlhf.reward.remote_url={url}")[1::2]
    config = load_run_config(ROOT / "configs" / "cpu" / "demo.yaml", parse_overrides(sets))
    return {**host_flags(config), **extra}


def words(host_flags: dict[str, object]) -> list[str]:
    from restrain_openrlhf.hook.host_flags import to_arguments

    return to_arguments(host_flags)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def check_service(service) -> None:
    assert service.metric("restrain_seats_total") == ROLLOUTS
    assert service.metric("restrain_groups_total") == ROLLOUTS // N
    assert service.metric('restrain_groups_total{outcome="full"}') == ROLLOUTS // N
    assert service.metric('restrain_requests_total{path="/get_reward",status="200"}') == ROLLOUTS


def test_with_the_hook_the_services_advantages_equal_those_made_in_process(job, services):  # noqa: F811
    service = services.start(method=METHOD, group_size=N, end_of_text=None, model=str(MODEL))
    job.run_dir.mkdir(parents=True)
    hook = job.run_dir / "hook.yaml"
    hook.write_text(
        yaml.safe_dump({"method": METHOD, "advantages": "service", "metrics": str(job.run_dir / "metrics.jsonl")})
    )
    command = [sys.executable, "-c", COMPARING, "--restrain.config", str(hook)]
    # A right solution has eleven tokens; at this temperature some have more, and are cut off.
    noisy = {"rollout.max_new_tokens": 11, "rollout.temperature": 2.0}
    done = run([*command, *words(flags(job, service.reward_url, **noisy))], env=environment())
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    check_service(service)
    rows = [json.loads(line) for line in (job.run_dir / "compared.jsonl").read_text().splitlines()]
    assert len(rows) == ROLLOUTS // N
    for row in rows:
        for theirs, own in zip(row["service"], row["hook"], strict=True):
            assert theirs == pytest.approx(own, rel=1e-6, abs=1e-7)
        theirs_u, own_u, theirs_kl, own_kl = row["weights"]
        assert (theirs_u, theirs_kl) == pytest.approx((own_u, own_kl), rel=1e-6)
        assert row["penalized"][0] == row["penalized"][1]
    # The comparison says something: advantages of both signs, and rollouts that were cut off.
    assert any(value > 0.1 for row in rows for value in row["service"][0])
    assert any(value < -0.1 for row in rows for value in row["service"][1])
    assert sum(row["truncated"] for row in rows) > 0
    assert [row["step"] for row in job.rows()] == [1, 2]


def test_without_the_hook_the_hosts_own_trainer_trains_on_the_services_rewards(job, services):  # noqa: F811
    service = services.start(method=METHOD, group_size=N, end_of_text=None, model=str(MODEL), token="t" * 20)
    url = service.reward_url.replace("http://", f"http://restrain:{'t' * 20}@")
    estimator = {"algo.advantage.estimator": "flash_reinforce"}
    from restrain_openrlhf.devices import detect

    host_flags = {**detect().host_flags, **flags(job, url, **estimator)}
    done = run([sys.executable, "-c", UNHOOKED, *words(host_flags)], env=environment())
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-5000:]
    check_service(service)
    assert (job.run_dir / "model" / "config.json").exists()
    assert "RESTRAIN hook" not in output


def test_a_service_that_does_not_answer_stops_the_hooked_run(job, services):  # noqa: F811
    """Training on what the service did not score is never an option."""
    service = services.start(method=METHOD, group_size=N, end_of_text=None, model=str(MODEL), token="t" * 20)
    extra = ("advantages=service", f"openrlhf.reward.remote_url={service.reward_url}")
    done = job.train(TWO_STEPS, *extra)
    assert done.returncode == 2
    assert "rollouts came without 'restrain/advantage_pos'" in done.stderr
    assert job.rows() == []
