"""Real runs on the oldest OpenRLHF release that the hook works on, with this environment's vLLM, Ray and DeepSpeed."""

import shutil
from pathlib import Path

import pytest

from restrain_openrlhf.machine.host_releases import Way, supported
from tests.host_releases import folder_of
from tests.own_folder import python_with

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
RUNS = [
    "tests/e2e/test_training.py::test_an_existing_command_needs_one_module_and_one_flag",
    "tests/e2e/test_agent.py::test_unmodified_openrlhf_trains_with_the_agents_file_alone",
]
# Of the release, what the trainer, the policy and the rollout actors are made of.
IMPORTED = ("trainer/ppo_trainer.py", "trainer/ray/ppo_actor.py", "trainer/ray/vllm_engine.py")


def watched(release: str, folder: Path, log: Path) -> Path:
    """A copy of the release whose modules write down each process that imports them."""
    shutil.copytree(folder_of(release), folder)
    for name in IMPORTED:
        with (folder / "openrlhf" / name).open("a") as module:
            module.write(f"\nimport sys\nwith open({str(log)!r}, 'a') as log: print({name!r}, sys.argv[0], file=log)\n")
    return folder


@pytest.mark.parametrize("real_run", RUNS, ids=["hook", "agent alone"])
def test_the_oldest_release_trains_on_the_real_stack(real_run, tmp_path):
    """All other real runs are on the newest release."""
    folder = watched(supported(Way.HOOK)[-1], tmp_path / "release", tmp_path / "imported")
    done = python_with(folder, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", real_run)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert "1 passed" in done.stdout
    lines = (tmp_path / "imported").read_text().splitlines()
    in_workers = {line.split()[0] for line in lines if line.endswith("default_worker.py")}
    assert in_workers == set(IMPORTED), "the models' processes must not have the newest release"
