"""Each row of the page's troubleshooting table: its symptom is provoked, its commands are run, and the run goes on."""

import re
import shlex
from pathlib import Path
from subprocess import Popen

import pytest

from tests.commands.k8s.experiments import PRESET
from tests.commands.k8s.runs import Place, folder
from tests.commands.k8s.stand_in.api import StandIn
from tests.commands.k8s.stand_in.pods import lose, occupy
from tests.commands.k8s.stand_in.store import GPU
from tests.conftest import ROOT

pytestmark = pytest.mark.host

PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
NAME = "one-gpu-qwen3-0-6b-base-8d5f6f"
DATA, PASS = ("--only", "data"), ("--only", "reference")
EIGHT = {"overlay": "single-node-8gpu"}
QUEUED = {"config": PRESET, "overlay": "multi-node-h100"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
TESTED: set[str] = set()


def row(symptom: str) -> pytest.MarkDecorator:
    """The row of the table that a test is about."""
    TESTED.add(symptom)
    return pytest.mark.parametrize("symptom", [symptom])


def rows() -> dict[str, list[str]]:
    """The commands of each row by its symptom."""
    section = PAGE.read_text(encoding="utf-8").partition("\n### Why a job waits\n")[2].partition("\n### ")[0]
    table = re.findall(r"^\| `(.+?)` \| .+ \| (.+) \|$", section, re.MULTILINE)
    return {symptom: re.findall(r"`((?:kubectl|manifests/run\.sh) [^`]+)`", advice) for symptom, advice in table}


class Operator:
    """Who runs a rendering's `run.sh`, meets a symptom, and does what its row says."""

    def __init__(self, home: Path, cluster: StandIn) -> None:
        self.place, self.cluster, self.manifests = Place(home, cluster), cluster, home / "manifests"

    def render(self, *words: object, administrate: bool = True, **rendering: str) -> None:
        """Another rendering is the one in manifests/, as on the page."""
        self.manifests.unlink(missing_ok=True)
        self.manifests.symlink_to(folder(*words, **rendering))
        if administrate:
            self.place.administrate(self.manifests)

    def meets(self, symptom: str, *options: str) -> None:
        """`run.sh` ends with an error, and has printed the symptom."""
        with self.place.running(self.manifests, *options) as process:
            _read_to(symptom, process)
            assert process.wait() == 1

    def waits_through(self, symptom: str, **names: str) -> None:
        """`run.sh` prints the symptom and waits while the row's commands are run; then it ends well."""
        with self.place.running(self.manifests) as process:
            _read_to(symptom, process)
            self.follows(symptom, **names)
            rest = process.stdout.read()
            assert process.wait() == 0, rest

    def follows(self, symptom: str, **names: str) -> None:
        """Runs the row's commands, with the words in capitals that a reader replaces."""
        for command in rows()[symptom]:
            words = [
                re.sub(r"[A-Z]{3,}", lambda word: names.get(word[0], word[0]), each) for each in shlex.split(command)
            ]
            if "secret" in words:
                # kubectl sends this one in protobuf, which the stand-in does not read.
                words.append("--dry-run=client")
            done = self.place.call(*(["sh"] if words[0] == "manifests/run.sh" else []), *words)
            assert done.returncode == 0, f"{command}\n{done.stderr}"

    def succeeds(self) -> None:
        done = self.place.run(self.manifests, patience=0)
        assert done.returncode == 0, done.stdout + done.stderr


def _read_to(symptom: str, process: "Popen[str]") -> None:
    """What a symptom says in capitals, and each number, is any text."""
    pattern, lines = re.sub(r"\b[A-Z]{4,}\b|\d+", ".+", re.escape(symptom)), []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return
    raise AssertionError(f"{pattern} is not in:\n{''.join(lines)}")


@pytest.fixture
def operator(tmp_path):
    def made(**settings: object) -> Operator:
        return Operator(tmp_path, StandIn(**settings))

    return made


def job(name: str) -> str:
    return f"job/{name}-{NAME}"


def freed(cluster: StandIn) -> None:
    cluster.drop("Pod", "other")


@row('storageclass.storage.k8s.io "NAME" not found')
def test_a_storage_class_that_is_not_there(operator, symptom):
    one = operator()
    one.render(*DATA, "--storage-class", "fast")
    one.meets(symptom)
    one.follows(symptom)
    one.render(*DATA, "--storage-class", "standard")
    one.succeeds()


@row("no storage class is set")
def test_no_default_class(operator, symptom):
    one = operator(classes={"slow": False})
    one.render(*DATA)
    one.meets(symptom)
    one.follows(symptom)
    one.render(*DATA, "--storage-class", "slow")
    one.succeeds()


@row("ImagePullBackOff")
def test_an_image_that_needs_a_secret(operator, symptom):
    one = operator(private=("registry.example",))
    one.render(*DATA)
    one.meets(symptom)
    one.render(*DATA, "--pull-secrets", "regcred")
    one.follows(symptom, JOB=job("data"))
    one.succeeds()


@row('serviceaccount "NAME" not found')
def test_a_missing_service_account(operator, symptom):
    one = operator()
    one.render(*DATA)
    one.place.kubectl("apply", "--server-side", "-f", "manifests/02-platform.yaml")
    one.cluster.drop("ServiceAccount", "prefetch")
    one.meets(symptom)
    one.follows(symptom)
    one.succeeds()


@row("(more than the whole quota)")
def test_a_quota_that_is_smaller_than_a_pod(operator, symptom):
    one = operator()
    one.render(*PASS, **EIGHT)
    one.cluster.find("ResourceQuota", "restrain")["spec"]["hard"][f"requests.{GPU}"] = "0"
    one.meets(symptom)
    one.follows(symptom)
    one.succeeds()


@row("exceeded quota: restrain")
def test_a_quota_that_others_use(operator, symptom):
    one = operator(events={8: freed})
    one.render(*PASS, **EIGHT)
    occupy(one.cluster, "node-a")
    one.waits_through(symptom)


@row("nodes are available")
def test_nodes_without_the_label_that_is_asked_for(operator, symptom):
    """Another node comes, or another configuration is rendered."""
    one = operator(node_labels=H100)
    one.render(*PASS, "--gpu-product", "NVIDIA-H100-PCIe")
    comes = {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}
    one.cluster.events = {8: lambda cluster: cluster.find("Node", "node-a")["metadata"]["labels"].update(comes)}
    one.waits_through(symptom)


@row("more needed")
def test_a_queue_that_others_fill(operator, symptom):
    one = operator(events={8: freed}, nodes={"a": 8, "b": 8}, node_labels=H100)
    one.render(*PASS, "--max-nodes", 1, **QUEUED)
    occupy(one.cluster, "node-a")
    one.waits_through(symptom)


@row("> maximum capacity (8)")
def test_more_than_a_queue_will_ever_give(operator, symptom):
    one = operator(nodes={"a": 8, "b": 8}, node_labels=H100)
    one.render(*PASS, "--max-nodes", 2, "--shards", 16, **QUEUED)
    one.place.administrate(folder(*PASS, "--max-nodes", 1, **QUEUED))
    one.meets(symptom, "--keep-platform")
    one.follows(symptom)
    one.succeeds()


@row("Terminating since TIME on node NODE")
def test_a_lost_node(operator, symptom):
    """The shard on it is replaced once the node is said to be out of service, not before."""
    one = operator(nodes={"a": 1, "b": 1}, lasts={"reference": 3})
    shards_after_loss = []
    one.cluster.events = {
        6: lambda cluster: lose(cluster, "a"),
        7: lambda cluster: shards_after_loss.append(len(cluster.of("Pod"))),
    }
    one.render(*PASS, "--shards", 2, **EIGHT)
    one.waits_through(symptom, NODE="a")
    assert shards_after_loss == [2], "two pods would write the same files"
    (ended,) = one.cluster.of("Job")
    assert ended["status"]["conditions"][-1]["type"] == "Complete"
    assert {pod["spec"]["nodeName"] for pod in one.cluster.owned(ended)} == {"b"}
    # The node is back.
    one.place.kubectl("taint", "nodes", "a", "node.kubernetes.io/out-of-service-")
    assert not one.cluster.find("Node", "a")["spec"]["taints"]


@row("There are no rayjobs in restrain that you may see")
def test_a_missing_operator(operator, symptom):
    one = operator(without=("ray.io",), node_labels=A100)
    one.render("--only", "train", config=PRESET, overlay="8xa100-80g")
    one.meets(symptom)
    one.cluster.without = ()
    one.follows(symptom)
    one.succeeds()


@row("There is no namespace restrain yet")
def test_what_only_an_administrator_applies(operator, symptom):
    one = operator()
    one.render(*DATA, administrate=False)
    one.meets(symptom)
    one.follows(symptom)
    one.succeeds()


@row("was rendered with other settings")
def test_another_platform(operator, symptom):
    one = operator()
    one.render(*DATA)
    one.succeeds()
    one.render(*DATA, "--pull-secrets", "regcred", administrate=False)
    one.meets(symptom)
    one.render(*DATA, administrate=False)
    one.succeeds()


@row("was made from another configuration")
def test_another_configuration_under_an_old_name(operator, symptom):
    other = ("--set", "openrlhf.data.prompt_dataset=data/dapo14k.100.jsonl")
    one = operator()
    one.render(*DATA)
    one.succeeds()
    one.render(*DATA, *other)
    one.meets(symptom)
    one.render(*DATA, *other, "--set", "run_dir=runs/other")
    one.succeeds()


@row("restrain premise warns")
def test_a_warning_of_premise(operator, symptom):
    one = operator(prints={"premise": "warning: one answer is 40% of all\n"})
    one.render("--only", "premise")
    one.meets(symptom)
    one.follows(symptom)


@row("job/NAME failed")
def test_a_job_that_failed(operator, symptom):
    one = operator(ends={"data": [1] * 5})
    one.render(*DATA)
    one.meets(symptom)
    one.follows(symptom, JOB=job("data"))
    one.succeeds()


@row("The cluster has Kubernetes 1.29; 1.30 or newer is needed")
def test_an_old_server(operator, symptom):
    one = operator(version="1.29")
    one.render(*DATA)
    one.meets(symptom)
    one.cluster.version = "1.30"
    one.succeeds()


@row("The cluster does not answer")
def test_a_server_that_does_not_answer(operator, symptom):
    one = operator()
    one.render(*DATA)
    one.cluster.down = True
    one.meets(symptom)
    one.cluster.down = False
    one.follows(symptom)
    one.succeeds()


def test_each_row_of_the_page_has_a_test():
    assert set(rows()) == TESTED
