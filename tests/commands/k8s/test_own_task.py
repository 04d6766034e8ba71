"""One's own task on 8 H100 without internet, by the cluster file and the commands of docs/operations/offline.md."""

import shlex
import tempfile
from contextlib import chdir
from functools import cache
from pathlib import Path

import pytest
import yaml

from restrain_openrlhf.commands.k8s.experiment import load_experiment
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.gpu_layout import NodeShape
from tests.command_line import restrain
from tests.commands.k8s.experiments import IMAGE
from tests.commands.k8s.manifests import needs_kustomize, pick, pods, worker_gpus
from tests.commands.k8s.schemas import problems
from tests.commands.k8s.test_names import command_lines, unmounted, unresolved
from tests.conftest import ROOT
from tests.docs.printed import fenced, typed

PAGE = (ROOT / "docs" / "operations" / "offline.md").read_text(encoding="utf-8")
(CLUSTER,) = fenced(PAGE, "yaml")
COMMANDS = [each.command for each in typed(PAGE)]
(RENDER,) = [each for each in COMMANDS if each.startswith("restrain k8s render")]
NAME, CA = "dapo14k-qwen3-4b-restrain", "/etc/restrain-ca/ca.crt"
VARIABLES = yaml.safe_load(CLUSTER)["environment"] | dict.fromkeys(
    ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), CA
)


@cache
def walk(*more):
    """The commands that render prints for copying, the steps of run.sh, and all objects."""
    needs_kustomize()
    with tempfile.TemporaryDirectory() as made:
        Path(made, "cluster.yaml").write_text(CLUSTER)
        done = restrain(*shlex.split(RENDER)[1:], "--image", IMAGE, *more, cwd=Path(made))
        assert done.returncode == 0, done.stderr
        texts = [path.read_text() for path in sorted(Path(made, "manifests").glob("*.yaml"))]
        script = Path(made, "manifests/run.sh").read_text().partition("\nready\n")[2]
    copies = [line.strip() for line in done.stderr.splitlines() if " cp " in line]
    steps = [line.split()[1][3:].removesuffix(".yaml") for line in script.splitlines() if ".yaml" in line]
    return copies, steps, [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize(("more", "graded"), [((), ["evaluation", "regrade"]), (("--benchmarks", "none"), [])])
def test_the_steps_fetch_nothing_and_what_to_copy_is_printed(more, graded):
    copies, steps, objects = walk(*more)
    offline = ["reference", "merge-reference", "subset-reference", "premise"]
    assert steps == ["admin", "platform", "claims", "files", "gpu-check", *offline, "train", *graded]
    assert copies == [each for each in COMMANDS if " cp " in each and (graded or "held_out" not in each)]
    found = [problem for _, words in command_lines(objects) for problem in unresolved(words)]
    assert [*found, *unmounted(objects)] == []
    checked, trained = (worker_gpus(pick(objects, "RayJob", f"{each}-{NAME}")) for each in ("gpu-check", "train"))
    assert checked == trained


def test_the_sets_of_evaluations_in_training_are_copied_and_read_where_they_are_copied_to(tmp_path):
    nodes = NodeShape(gpus_per_node=8, max_nodes=4, cpus_per_node=80)
    sets = {"openrlhf.eval.dataset": f"{tmp_path}/held.jsonl, /mnt/work/more.jsonl"}
    with chdir(tmp_path):
        found = load_experiment(find_config("dapo14k/qwen3-4b-base/restrain"), sets, nodes)
    assert found.document["openrlhf"]["eval.dataset"] == "/mnt/work/held.jsonl,/mnt/work/more.jsonl"
    assert list(map(str, found.copied)) == ["/mnt/work/held.jsonl", "/mnt/work/more.jsonl"]


def needed(pod):
    """The kinds and names of the objects that a pod cannot start without."""
    yield "ServiceAccount", pod.spec["serviceAccountName"]
    for each in pod.spec["volumes"]:
        if claim := each.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", claim["claimName"]
        if "configMap" in each:
            yield "ConfigMap", each["configMap"]["name"]


def test_every_pod_has_the_variables_and_the_certificates_and_all_that_it_needs_but_these():
    objects = walk()[2]
    there = {(each["kind"], each["metadata"]["name"]) for each in objects}
    for pod in pods(objects):
        assert {*needed(pod)} - there == {("ConfigMap", "company-ca")}
        for each in pod.containers:
            pairs = [(one["name"], one.get("value")) for one in each["env"]]
            assert (VARIABLES.items() <= set(pairs), len(dict(pairs))) == (True, len(pairs))
            assert any(Path(CA).parent == Path(mount["mountPath"]) for mount in each["volumeMounts"])


def test_an_api_server_would_accept_it(shared):
    found = [(each["metadata"]["name"], problems(each, shared / "k8s" / "crds")) for each in walk()[2]]
    assert [each for each in found if each[1]] == []
