"""Deadlines against the time that a job waits for a plain quota, or in Kueue's queue; each round is a day."""

from collections.abc import Callable, Iterable

import pytest
import yaml

from tests.commands.k8s.experiments import PRESET
from tests.commands.k8s.runs import folder
from tests.commands.k8s.stand_in.api import StandIn
from tests.commands.k8s.stand_in.pods import occupy
from tests.commands.k8s.stand_in.store import Object

pytestmark = pytest.mark.host

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
A_JOB = (("--only", "reference"), {"overlay": "single-node-8gpu"})
A_RAY_JOB = (("--only", "train"), {"config": PRESET, "overlay": "8xa100-80g"})
A_QUEUED_ONE = (("--only", "train", "--max-nodes", 1), {"config": PRESET, "overlay": "multi-node-h100"})


def after(
    days: int,
    rendering: tuple,
    change: Callable[[Object], object] = lambda _: None,
    busy: Iterable[int] = (),
    **settings: object,
) -> Object:
    """The job of a rendering, with another job in the quota's place on the days of `busy`."""
    words, options = rendering
    cluster = StandIn(hours=24.0, **settings)
    for path in sorted(folder(*words, **options).glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            change(each)
            cluster.apply(each)
    for day in range(days):
        if day in busy and cluster.find("Pod", "other") is None:
            occupy(cluster, "elsewhere")
        if day not in busy and cluster.find("Pod", "other"):
            cluster.drop("Pod", "other")
        cluster.round()
    job = next(each for each in [*cluster.of("RayJob"), *cluster.of("Job")])
    return {**job, "pods": cluster.owned(job)}


def end_of(job: Object) -> tuple[str, str]:
    """How a job ended, and why."""
    status = job["status"]
    if job["kind"] == "RayJob":
        return status["jobDeploymentStatus"], status.get("reason", "")
    return status["conditions"][-1]["type"], status["conditions"][-1]["reason"]


@pytest.mark.parametrize(
    ("rendering", "labels", "days"),
    [(A_JOB, {}, 60), (A_RAY_JOB, A100, 20), (A_QUEUED_ONE, H100, 60)],
    ids=["a Job behind a quota", "a RayJob behind a quota", "a RayJob in Kueue's queue"],
)
def test_a_job_runs_after_a_long_wait(rendering, labels, days):
    waiting = after(days, rendering, busy=range(days), node_labels=labels)
    assert "Complete" not in str(waiting["status"])
    job = after(days + 8, rendering, busy=range(days), node_labels=labels)
    assert end_of(job)[0] == "Complete"
    # No retry was used up.
    assert job["status"].get("failed", 0) == 0


def deadline(name: str, seconds: int, kind: str) -> Callable[[Object], object]:
    return lambda each: each["kind"] == kind and each["spec"].update({name: seconds})


def test_a_deadline_of_the_job_itself_would_end_it_while_it_waits():
    before = deadline("activeDeadlineSeconds", 604_800, "Job")
    assert end_of(after(30, A_JOB, before, busy=range(30))) == ("Failed", "DeadlineExceeded")


def test_waits_of_an_hour_would_use_up_a_ray_jobs_retries():
    before = deadline("preRunningDeadlineSeconds", 3600, "RayJob")
    job = after(30, A_RAY_JOB, before, busy=range(30), node_labels=A100)
    assert (job["status"]["failed"], *end_of(job)) == (4, "Failed", "PreRunningDeadlineExceeded")


def test_a_pod_that_hangs_is_ended_and_its_shard_is_tried_again():
    """A week on its node is the offline pass's deadline, and its clock begins there."""
    job = after(60, A_JOB, busy=range(20), lasts={"reference": 100})
    assert end_of(job) == ("Failed", "FailedIndexes")
    assert {pod["status"]["reason"] for pod in job["pods"]} == {"DeadlineExceeded"}
    assert len(job["pods"]) == 8 * 4
