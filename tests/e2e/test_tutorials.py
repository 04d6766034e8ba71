"""The journeys' examples, typed on the real stack as their pages print them; a deployment, changed and changed back."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.config.host_flags import to_arguments
from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, training_problems
from restrain_openrlhf.machine.devices import detect
from tests.conftest import ROOT, rows_of
from tests.docs.printed import Typed, files_of, shape, typed

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folder in which a reader types."""
    for name in ("configs", "restrain_openrlhf"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def said(command: str, folder: Path) -> str:
    """What a command prints, when it is typed in a folder with `.venv` activated; paths as a page prints them."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": f"{folder}:{ROOT}"}
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}"
    return done.stdout.replace(f"{folder}/", "")


def part(page: str, first: str, until: str) -> list[Typed]:
    """The commands under the headings of a journey, from one up to another."""
    text = (ROOT / "docs" / "journeys" / page).read_text(encoding="utf-8")
    return typed(text[text.index(f"\n## {first}") : text.index(f"\n## {until}")])


def saves(page: str, folder: Path) -> None:
    for name, text in files_of((ROOT / "docs" / "journeys" / page).read_text(encoding="utf-8")):
        (folder / name).write_text(text)


def type_all(commands: list[Typed], folder: Path) -> dict[Typed, str]:
    """Type the commands and return what each printed. Fails if an output lacks what the page shows of it."""
    outputs = {}
    for each in commands:
        outputs[each] = output = said(each.command, folder)
        for piece in each.shown:
            if not piece.lstrip().startswith('{"id"'):
                assert shape(piece) in shape(output), f"{each.command}\n== the page\n{piece}\n== was printed\n{output}"
    return outputs


def right(folder: Path, gold: Path, column: str) -> int:
    """How many predictions are right, counted here: words, whatever their case and the full stop at the end."""
    answers = dict(list(csv.reader(gold.open()))[1:])
    found = {row["id"]: row[column] for row in rows_of(folder / "predictions.jsonl")}
    assert found.keys() == answers.keys()
    return sum((found[name] or "").lower().strip(" .") == answer.lower() for name, answer in answers.items())


def test_the_example_of_a_test_set(checkout):
    page = "adapt.md"
    saves(page, checkout)
    outputs = type_all(part(page, "A test set on two CPU cores", "Your own model"), checkout)
    for name in ("words", "words-ttrl"):
        run = checkout / "runs" / name
        after, before = (right(run, checkout / "gold.csv", column) for column in ("answer", "before"))
        (report,) = [text for each, text in outputs.items() if f"runs/{name} --gold" in each.command]
        assert f"({after} of 24)" in report
        assert f"({before} of 24) with such majorities" in report
        assert ("The base model is better: use it without" in report) == (after < before)
    assert right(checkout / "runs" / "words", checkout / "gold.csv", "answer") >= 18, "the base model's majority"
    predicted = rows_of(checkout / "runs" / "words" / "predictions.jsonl")
    shown = [line for each in outputs for line in each.output.splitlines() if line.startswith('{"id"')]
    assert len(shown) == 3
    for line in map(json.loads, shown):
        (same,) = [row for row in predicted if row["id"] == line["id"]]
        assert list(same) == list(line)


# The tutorial's script at the size of this machine: the same flags, and what a small model needs.
SMALLER = {
    "MODEL=Qwen/Qwen3-4B-Base": f"MODEL={ADDITION.model}",
    "--data.max_len 3072": "--data.max_len 32 --rollout.batch_size 8 --rollout.micro_batch_size 32",
    "--rollout.max_new_tokens 2048": "--rollout.max_new_tokens 14 --train.batch_size 64 --train.micro_batch_size 32",
    "--rollout.n_samples_per_prompt 16": "--rollout.n_samples_per_prompt 8 --ds.zero_stage 0",
    "--vllm.num_engines 8": "--vllm.num_engines 1 --vllm.gpu_memory_utilization 0.2",
    "--train.colocate_all": "--actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --logger.tensorboard_dir $BOARD",
    "http://reward:5000/get_reward": "reward.py",
    "ckpt/today": "ckpt/$BOARD",
}
REWARD = """
def reward_func(queries, prompts, labels):
    lengths = [float(len(each)) for each in queries]
    return {"rewards": lengths, "scores": lengths, "extra_logs": {}}
"""
# OpenRLHF alone needs the CPU's stand-ins where there is no GPU; Python reads a file of this name as it starts.
STAND_INS = """
import os, sys
if "openrlhf.cli.train_ppo_ray" in sys.orig_argv:
    import ray
    from restrain_openrlhf.machine.devices import detect
    device = detect()
    if not device.has_gpus:
        device.install()
        os.environ.update(device.environment)
        setup = {"env_vars": device.environment, "worker_process_setup_hook": "tests.e2e.test_training.cpu_only"}
        ray.init("local", runtime_env=setup, num_gpus=3, num_cpus=7, include_dashboard=False)
"""


def logged(folder: Path) -> set[str]:
    """The names of all numbers in a folder of TensorBoard's."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = folder.rglob("events.*")
    return set(EventAccumulator(str(events)).Reload().Tags()["scalars"])


def test_a_deployment_is_switched_on_and_back(checkout):
    """By what `restrain integrate` prints, and nothing else; going back is the script as it was."""
    script = dict(files_of((ROOT / "docs/journeys/integration.md").read_text(encoding="utf-8")))["train.sh"]
    for theirs, ours in SMALLER.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    script = script.replace(
        "--ds.zero_stage 0", shlex.join(["--ds.zero_stage", "0", *to_arguments(detect().host_flags)])
    )
    (checkout / "train.sh").write_text(script)
    (checkout / "reward.py").write_text(REWARD)
    (checkout / "sitecustomize.py").write_text(STAND_INS)
    write_prompts(checkout / "prompts.jsonl", training_problems(16))

    printed = said("restrain integrate --file train.sh", checkout).replace("/shared/", "")
    (checkout / "method.yaml").write_text(section(printed, "method.yaml"))
    said(section(printed, "Once, before").partition("method reads:\n")[2], checkout)
    (checkout / "change.diff").write_text(section(printed, "The change"))
    said("patch --output train-restrain.sh train.sh change.diff", checkout)
    assert "Nothing: the command already has" in said("restrain integrate --file train-restrain.sh", checkout)

    output = said("BOARD=with bash train-restrain.sh", checkout)
    assert "RESTRAIN is on: the method restrain, votes of 8 rollouts a prompt" in output.splitlines()
    of_ours = {name for name in logged(checkout / "with") if "restrain/" in name}
    assert "train/restrain/majority_share_mean" in of_ours

    said("BOARD=back bash train.sh", checkout)
    theirs = logged(checkout / "back")
    assert "train/reward" in theirs
    assert not any("restrain" in name for name in theirs)


def section(printed: str, title: str) -> str:
    """What `restrain integrate` prints under the title that begins so."""
    (found,) = [each for each in printed.split("\n== ") if each.startswith(title)]
    return found.partition("\n")[2]
