"""The RayJob's entrypoint on a Ray cluster of two hosts, submitted from a third as KubeRay does, two kept out."""

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from restrain_openrlhf.data.demo_tasks.addition import training_problems
from restrain_openrlhf.data.demo_tasks.problems import write_gold
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from tests.commands.k8s.firewall import rules_for
from tests.commands.k8s.manifests import Object, Pod, of_kind, pick, pods
from tests.commands.k8s.rules_experiments import identity, own
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL
from tests.e2e.hosts import Host, hosts
from tests.e2e.ray_cluster import TOKEN, Cluster, http, takes_connections, wait_for

pytestmark = [pytest.mark.host, pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]
DIGEST = "registry.example/restrain-train@sha256:" + "1" * 64
STEPS = 10
WATCHED = {"ray_restrain_majority_share_mean", "ray_restrain_policy_loss", "ray_restrain_last_step_timestamp_seconds"}


MACHINES = ("head", "worker", "submitter", "intruder", "neighbour")
# Not of the cluster: another pod of its experiment, and a worker of another experiment with rules of its own.
STRANGERS = ("intruder", "neighbour")


def rendered(run: str = "two-hosts") -> list[Object]:
    """The demo's manifests, by the real command."""
    sets = {
        "run_dir": f"/mnt/work/runs/{run}",
        "reference": "",
        "method.prompt_weight": "online",
        "method.kappa": 2,
        "openrlhf.data.prompt_dataset": "/mnt/work/data/prompts.jsonl",
        **{f"openrlhf.{name}": value for name, value in SMALL.items()},
    }
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    command = [
        sys.executable,
        "-m",
        "restrain_openrlhf.commands.main",
        "k8s",
        "render",
        "configs/cpu/demo_addition.yaml",
        *words,
    ]
    with tempfile.TemporaryDirectory() as out:
        options = ["--overlay", "8xa100-80g", "--image", f"restrain-train={DIGEST}", "--out", out]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode == 2 and "Kustomize" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        texts = [path.read_text() for path in sorted(Path(out).glob("*.yaml"))]
    return [each for text in texts for each in yaml.safe_load_all(text)]


def both() -> list[Object]:
    """Two experiments, applied one after the other."""
    objects = [*rendered("neighbour"), *rendered()]
    return list({identity(each): each for each in objects}.values())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    with hosts(*MACHINES) as machines:
        objects = rendered()
        prepare(objects, tmp_path)
        keep_policies(both(), machines)
        job = pick(objects, "RayJob", "train-two-hosts")["spec"]
        made = Cluster(job, pick(objects, "ConfigMap", "runtime-environment")["data"], machines, tmp_path)
        with killed_in_the_end(made):
            made.start()
            yield made


@contextmanager
def killed_in_the_end(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.kill(*list(cluster.running))


def prepare(objects: list[Object], folder: Path) -> None:
    """What the volumes and the ConfigMap hold."""
    (config,) = [each for each in of_kind(objects, "ConfigMap") if "experiment.yaml" in each["data"]]
    for name in ("work/data", "work/runs", "config"):
        (folder / name).mkdir(parents=True)
    (folder / "config" / "experiment.yaml").write_text(config["data"]["experiment.yaml"])
    write_gold(folder / "work" / "data" / "prompts.jsonl", training_problems(STEPS * SMALL["rollout.batch_size"]))
    shutil.copytree(
        ADDITION.model, folder / "work" / "restrain_openrlhf" / "data" / "demo_tasks" / "models" / "addition"
    )


def keep_policies(objects: list[Object], machines: dict[str, Host]) -> None:
    """The NetworkPolicies of all these objects on every host; the intruder is the evaluation's pod."""
    found: dict[str, Pod] = {pod.role: pod for pod in pods_of(objects, "train-two-hosts")}
    (found["intruder"],) = pods_of(objects, "evaluation-two-hosts")
    for pod in pods_of(objects, "train-neighbour"):
        found |= {"neighbour": pod} if pod.role == "worker" else {}
    peers = [(pod, machines[role].address) for role, pod in found.items()]
    for name in found:
        if name not in STRANGERS:  # their own kernels may be lying: the others must keep them out
            machines[name].firewall(rules_for(objects, found[name], peers))


def pods_of(objects: list[Object], name: str) -> list[Pod]:
    return [pod for pod in pods(objects) if pod.owner["metadata"]["name"] == name]


def test_train_on_two_hosts_survives_a_lost_worker_and_keeps_an_intruder_out(cluster):
    the_policies_and_the_token_hold(cluster)

    first = cluster.submit("first")
    wait_for(lambda: newest_step(cluster) >= 3 or first.poll() is not None, "step 3", 900)
    before = cluster.rows()
    assert 3 <= len(before) < STEPS, cluster.logs()
    cluster.kill("worker")
    wait_for(lambda: cluster.status("first") == "FAILED", "the job to notice that its worker is gone")
    assert first.wait(120) is not None
    assert "ray.exceptions.Actor" in (cluster.folder / "first.log").read_text(errors="replace"), "says why it ended"
    assert not (cluster.run_dir / "completed.json").exists()
    cluster.kill("head")

    # What KubeRay's backoffLimit does: a new cluster, the same entrypoint, the same volumes.
    cluster.start()
    second = cluster.submit("second")
    published: set[str] = set()
    wait_for(lambda: second.poll() is not None or sees_metrics(cluster, published), "the metrics", 900)
    assert second.wait(900) is not None
    sees_metrics(cluster, published)
    assert cluster.status("second") == "SUCCEEDED", cluster.logs()
    rows = cluster.rows()
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert rows[:2] == before[:2]
    assert "Loading the checkpoint" in (cluster.run_dir / "train.log").read_text(errors="replace")
    assert (cluster.run_dir / "model" / "model.safetensors").exists()
    assert published == WATCHED


def the_policies_and_the_token_hold(cluster: Cluster) -> None:
    """While the cluster is up: nobody but its own may talk to it, and nobody without the token."""
    machines = cluster.machines
    head, worker = (machines[name].address for name in ("head", "worker"))
    assert takes_connections(machines["submitter"], head, 8265)
    assert not takes_connections(machines["submitter"], head, 6379)
    for address, ports in ((head, (6379, 8080, 8265)), (worker, (8080, 52365))):
        friend = "worker" if address == head else "head"
        assert all(takes_connections(machines[friend], address, port) for port in ports)
        assert not any(takes_connections(machines[name], address, port) for name in STRANGERS for port in ports)
    assert not any(takes_connections(machines["worker"], machines[name].address, 22) for name in STRANGERS)
    assert http(machines["submitter"], f"{cluster.address}/api/jobs/")[0] == 401
    assert http(machines["submitter"], f"{cluster.address}/api/jobs/", "a-wrong-token-of-the-same-length")[0] in {
        401,
        403,
    }
    assert http(machines["submitter"], f"{cluster.address}/api/jobs/", TOKEN)[0] == 200


def newest_step(cluster: Cluster) -> int:
    return max((row["step"] for row in cluster.rows()), default=0)


def sees_metrics(cluster: Cluster, published: set[str]) -> bool:
    """Whether the worker's metrics port, which Prometheus asks, has the run's numbers; their names join `published`."""
    text = http(cluster.machines["worker"], f"http://{cluster.machines['worker'].address}:8080/metrics")[1]
    published |= {line.partition("{")[0] for line in text.splitlines() if 'run="two-hosts"' in line} & WATCHED
    return published == WATCHED


def test_it_is_the_policies_that_keep_strangers_out(tmp_path):
    with hosts(*MACHINES) as machines, serving(machines["head"], tmp_path) as head:
        for name in STRANGERS:
            wait_for(lambda name=name: takes_connections(machines[name], head, 6379), "a server without policies")
        keep_policies(both(), machines)
        assert who_reaches(machines, head) == {"worker"}


def test_ending_one_experiment_leaves_the_others_network_as_it_was(tmp_path):
    with hosts(*MACHINES) as machines, serving(machines["head"], tmp_path) as head:
        ended = {identity(each) for each in own(rendered("neighbour"))}
        left = [each for each in both() if identity(each) not in ended]
        assert {"NetworkPolicy", "RayJob"} <= {kind for kind, *_ in ended}
        keep_policies(left, machines)
        assert who_reaches(machines, head) == {"worker"}


def who_reaches(machines: dict[str, Host], address: str) -> set[str]:
    """Ray's own port on the head."""
    return {name for name in MACHINES if name != "head" and takes_connections(machines[name], address, 6379)}


@contextmanager
def serving(head: Host, folder: Path) -> Iterator[str]:
    """Something that takes connections on Ray's port; gives the address."""
    prepare(rendered(), folder)
    volumes = (folder / "work", folder / "config", {}, folder / "server.log")
    server = head.start_pod([sys.executable, "-m", "http.server", "6379"], *volumes)
    try:
        wait_for(lambda: takes_connections(head, head.address, 6379), "the server")
        yield head.address
    finally:
        server.kill()
        server.wait()


def test_the_entrypoint_is_the_manifests_own():
    """What the test submits is what the RayJob runs, with its configuration where the pod mounts it."""
    job: dict[str, Any] = pick(rendered(), "RayJob", "train-two-hosts")["spec"]
    assert shlex.split(job["entrypoint"]) == ["restrain", "train", "/etc/restrain/experiment.yaml"]
    for group in (job["rayClusterSpec"]["headGroupSpec"], job["rayClusterSpec"]["workerGroupSpecs"][0]):
        mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "experiment", "mountPath": "/etc/restrain", "readOnly": True} in mounts
