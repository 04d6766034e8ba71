"""Deadlines against time that a job waits: for nodes, for a plain quota, and in Kueue's queue."""

import pytest

from tests.k8s.experiments import PRESET
from tests.k8s.runs import Place, changed, folder
from tests.k8s.stand_in.api import StandIn
from tests.k8s.stand_in.pods import occupy

pytestmark = pytest.mark.host

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
RAY = {"config": PRESET, "overlay": "8xa100-80g"}
QUEUED = {"config": PRESET, "overlay": "multi-node-h100"}
PASS, TRAIN = ("--only", "reference"), ("--only", "train")
# Of a round of the controllers.
DAYS = 4


def free_after(days: int) -> dict:
    """The other job ends after so many days."""
    return {"events": {days // DAYS: lambda cluster: cluster.drop("Pod", "other")}, "hours": 24.0 * DAYS}


@pytest.mark.parametrize(
    ("words", "rendering", "labels", "days"),
    [(PASS, {"overlay": "single-node-8gpu"}, {}, 30), (TRAIN, RAY, A100, 20), (TRAIN, QUEUED, H100, 60)],
    ids=["a Job behind a quota", "a RayJob behind a quota", "a RayJob in Kueue's queue"],
)
def test_a_job_that_waits_longer_than_it_may_run_still_runs(words, rendering, labels, days, tmp_path):
    place, manifests = Place(tmp_path, StandIn(node_labels=labels, **free_after(days))), folder(*words, **rendering)
    if rendering is QUEUED:
        manifests = folder(*words, "--max-nodes", 1, **rendering)
    place.administrate(manifests)
    occupy(place.cluster, "elsewhere")
    done = place.run(manifests)
    assert done.returncode == 0, done.stdout + done.stderr
    # It did wait, and a RayJob has used up no retry by that.
    assert place.cluster.clock > days * 86_400
    assert [each["status"]["failed"] for each in place.cluster.of("RayJob")] in ([], [0])


def test_a_deadline_of_the_job_itself_would_have_ended_it(tmp_path):
    """As the tree had it: the clock of a Job runs while its pods wait."""
    before = changed(folder(*PASS, overlay="single-node-8gpu"), tmp_path, "reference", "  completions:",
                     "  activeDeadlineSeconds: 604800\n  completions:")  # fmt: skip
    place = Place(tmp_path, StandIn(**free_after(30)))
    place.administrate(before)
    occupy(place.cluster, "elsewhere")
    done = place.run(before)
    assert done.returncode == 1
    assert "DeadlineExceeded: Job was active longer than specified deadline" in done.stdout


def test_waits_of_an_hour_would_have_used_up_the_retries(tmp_path):
    before = changed(folder(*TRAIN, **RAY), tmp_path, "train", "preRunningDeadlineSeconds: 2419200",
                     "preRunningDeadlineSeconds: 3600")  # fmt: skip
    place = Place(tmp_path, StandIn(node_labels=A100, **free_after(60)))
    place.administrate(before)
    occupy(place.cluster, "elsewhere")
    assert place.run(before).returncode == 1
    (job,) = place.cluster.of("RayJob")
    assert (job["status"]["failed"], job["status"]["reason"]) == (4, "PreRunningDeadlineExceeded")


def test_a_pod_that_hangs_is_ended_and_its_shard_is_tried_again(tmp_path):
    """A week on its node is the offline pass's deadline; the clock begins there."""
    lasts = {"reference": 9}
    place, manifests = Place(tmp_path, StandIn(lasts=lasts, hours=24.0 * DAYS)), folder(*PASS)
    place.cluster.events = {4: lambda cluster: lasts.clear()}
    place.administrate(manifests)
    done = place.run(manifests)
    assert done.returncode == 0, done.stdout + done.stderr
    phases = [pod["status"].get("reason", pod["status"]["phase"]) for pod in place.cluster.of("Pod")]
    assert sorted(phases) == ["DeadlineExceeded", "Succeeded"]
