"""Stands for srun, scontrol, ray, restrain and others on PATH: starts processes here as Slurm would on its nodes.

What was called is kept in $STAND_IN/calls, with what the environment said.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PLACE = Path(os.environ.get("STAND_IN", "."))
LAST_STEP = 5
NAMED = (
    "SLURMD_NODENAME",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "CUDA_VISIBLE_DEVICES",
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN_PATH",
)


def main(program, words):
    note = {"program": program, "words": words, "environment": {name: os.environ.get(name) for name in NAMED}}
    with (PLACE / "calls").open("a") as calls:
        calls.write(json.dumps(note) + "\n")
    sys.exit(PROGRAMS[program](words))


def srun(words):
    """As many processes as tasks, task by task on the nodes; SIGTERM goes to all of them."""
    options, command = {}, list(words)
    while command[0].startswith("-"):
        name, _, value = command.pop(0).removeprefix("--").partition("=")
        options[name] = value
    hosts = [options["nodelist"]] if "nodelist" in options else os.environ["SLURM_JOB_NODELIST"].split(",")
    output = options.get("output")
    running, told = [], []

    def end(*_):
        told.append(1)
        for each in running:
            each.terminate()

    signal.signal(signal.SIGTERM, end)
    for task in range(int(options["ntasks"])):
        mine = {"SLURM_NODEID": str(task), "SLURM_PROCID": str(task), "SLURMD_NODENAME": hosts[task % len(hosts)]}
        file = open(output, "a") if output else None  # noqa: SIM115 - the child's
        running.append(subprocess.Popen(command, env={**os.environ, **mine}, stdout=file, stderr=file))
        # Told between the start of a process and its place in the list.
        if told:
            running[-1].terminate()
    return next((status for status in [each.wait() for each in running] if status), 0) % 256


def scontrol(words):
    if words[:2] == ["show", "hostnames"]:
        print(words[2].replace(",", "\n"))
    return 0


def ray(words):
    """Until it is told to end; a node that $STAND_IN/dies names ends by itself once training has begun."""
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    host, dies = os.environ["SLURMD_NODENAME"], PLACE / "dies"
    while not told:
        time.sleep(0.02)
        if (PLACE / "checkpoint").exists() and dies.exists() and dies.read_text() == host:
            return 1
    (PLACE / f"ray-ended-{host}").touch()
    return 0


def restrain(words):
    if words[0] == "reference":
        name = words[words.index("--shard") + 1].replace("/", "-of-") if "--shard" in words else "whole"
        (PLACE / f"part-{name}").touch()
    elif words[:2] == ["data", "merge-reference"]:
        Path(words[words.index("--out") + 1]).write_text("rows")
    elif words[0] == "train":
        return train()
    return 0


def train():
    """Steps from the checkpoint on. It waits for the test's leave to go beyond step 2."""
    if (PLACE / "fails").exists():
        return 3
    checkpoint = PLACE / "checkpoint"
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in range(first + 1, LAST_STEP + 1):
        print(f"step {step}", flush=True)
        checkpoint.write_text(str(step))
        while step == 2 and not (PLACE / "go").exists():
            time.sleep(0.02)
    return 0


def hostname(_words):
    print("10.1.2.3 fe80::1")
    return 0


def through(words):
    """`apptainer exec OPTIONS IMAGE COMMAND...`: becomes the command."""
    image = next(index for index, word in enumerate(words) if word.endswith(".sif"))
    os.execvp(words[image + 1], words[image + 1 :])


PROGRAMS = {
    "srun": srun,
    "scontrol": scontrol,
    "ray": ray,
    "restrain": restrain,
    "hostname": hostname,
    "apptainer": through,
    "python": lambda _words: 0,
}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
