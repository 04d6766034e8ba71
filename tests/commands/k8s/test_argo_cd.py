"""`--argo-cd`: the rendered steps as waves, which Argo CD applies one after the other in place of run.sh."""

import pytest
import yaml

from tests.command_line import restrain
from tests.commands.k8s.experiments import IMAGE, render, rendered
from tests.commands.k8s.manifests import needs_kustomize, pick

pytestmark = pytest.mark.host

WAVE = "argocd.argoproj.io/sync-wave"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The objects of each file of an experiment's folder, in the files' order."""
    needs_kustomize()
    out = tmp_path_factory.mktemp("argo") / "experiment"
    done = render("--image", IMAGE, "--argo-cd", out=out)
    assert done.returncode == 0, done.stderr
    assert all(path.suffix == ".yaml" for path in out.iterdir())
    return {path.stem: list(yaml.safe_load_all(path.read_text())) for path in sorted(out.iterdir())}


def name_of(each):
    return each["kind"], each["metadata"]["name"]


def test_every_object_has_the_wave_of_its_step_and_is_there_once(files):
    steps = [stem.partition("-")[2] for stem in files]
    assert steps[:4] == ["prefetch", "data", "benchmarks", "reference"]
    assert steps[-4:] == ["premise", "train", "evaluation", "regrade"]
    waves = [{each["metadata"]["annotations"][WAVE] for each in objects} for objects in files.values()]
    assert waves == [{str(wave)} for wave in range(len(files))]
    names = [name_of(each) for objects in files.values() for each in objects]
    assert len(names) == len(set(names))


def test_it_is_what_run_sh_applies_but_for_what_argo_cd_needs(files):
    made = {name_of(each): each for objects in files.values() for each in objects}
    expected = {name_of(each): each for each in rendered()}
    left_out = {"Namespace", "PriorityClass", "ResourceQuota", "PersistentVolumeClaim", "ServiceAccount"}
    missing = [each for name, each in expected.items() if name not in made]
    assert left_out <= {each["kind"] for each in missing}
    assert all("restrain-experiment" not in each["metadata"].get("labels", {}) for each in missing)
    changed = {name for name, each in made.items() if without_argo_cd(each) != plain(expected[name])}
    assert changed == {("Job", "premise-dapo14k-qwen3-4b-restrain")}


def plain(each):
    """Without what `run.sh` knows a job by, and without the end of a job's time."""
    annotations = {
        name: text for name, text in each["metadata"].get("annotations", {}).items() if name != "restrain-digest"
    }
    spec = dict(each.get("spec", {}))
    if each["kind"] == "Job":
        del spec["ttlSecondsAfterFinished"]
    return {**each, "metadata": {**each["metadata"], "annotations": annotations}, "spec": spec}


def without_argo_cd(each):
    annotations = dict(each["metadata"]["annotations"])
    del annotations[WAVE]
    return {**each, "metadata": {**each["metadata"], "annotations": annotations}, "spec": dict(each.get("spec", {}))}


def test_a_job_that_has_ended_stays_and_the_premise_step_fails_on_a_warning(files):
    objects = [each for step in files.values() for each in step]
    jobs = [each for each in objects if each["kind"] == "Job"]
    assert len(jobs) == len(files) - 1
    assert not any("ttlSecondsAfterFinished" in each["spec"] for each in jobs)
    premise = pick(objects, "Job", "premise-dapo14k-qwen3-4b-restrain")
    container = premise["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["--config=/etc/restrain/experiment.yaml", "--strict"]
    # Status 2 is what --strict ends with (tests/commands/premise/test_command.py), and ends the Job too.
    on_exit = premise["spec"]["podFailurePolicy"]["rules"][1]
    assert (on_exit["action"], on_exit["onExitCodes"]["values"]) == ("FailJob", [2])


def test_the_platform_is_an_application_of_its_own_and_ends_with_its_claims(tmp_path):
    """A class of volumes that waits for a first pod binds nothing before: no wave comes after the claims'."""
    needs_kustomize()
    done = restrain("k8s", "platform", "--overlay", "8xa100-80g", "--argo-cd", "--out", tmp_path / "platform")
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "platform").iterdir())
    assert [path.name for path in files] == ["01-admin.yaml", "02-platform.yaml", "03-claims.yaml"]
    waves = [{each["metadata"]["annotations"][WAVE] for each in yaml.safe_load_all(path.read_text())} for path in files]
    assert waves == [{"0"}, {"1"}, {"2"}]
    again = restrain("k8s", "platform", "--overlay", "8xa100-80g", "--argo-cd", "--out", tmp_path / "platform")
    assert again.returncode == 2
    assert "is not empty" in again.stderr
