"""What stands in for programs that need a network, a cluster or another environment: each looks at its words first."""

import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from restrain_openrlhf.config.host_flags import parse
from restrain_openrlhf.config.yaml_file import load_hook_config
from restrain_openrlhf.hook.install.environment import refuse_lost_rewards
from tests.command_line import Done
from tests.conftest import ROOT
from tests.test_build_script import DOCKER

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "ASKED": "asked", "BROKEN": "nothing", "PYTHON_DIGEST": f"sha256:{'c' * 64}"}
SCRIPTS = {
    "make": f'exec /usr/bin/make -C {ROOT} --dry-run "$@"',
    "python": f"""case "$1 $2" in tools/*) exec test -e {ROOT}/"$1";; esac
        case "$1 $2" in "-m "*) exec module "$@";; esac; exec {sys.executable} "$@\"""",
    "pytest": f'for each in "$@"; do case $each in tests/*) test -e {ROOT}/"$each" || exit 1;; esac; done',
    "kubectl": f"""{shutil.which("kubectl")} --server=http://127.0.0.1:1 "$@" 2> "$0.said" && exit
        cat "$0.said" >&2; grep -qE "was refused|connection refused|no network" "$0.said\"""",
    # The job on one node, and the same job on two: this machine stands for the first.
    "sbatch": """for nodes in 1 2; do
        SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=4 SLURM_JOB_NUM_NODES=$nodes bash "$@" || exit; done""",
    "srun": 'while case $1 in -*) ;; *) false;; esac; do shift; done; exec "$@"',
    "ray": 'test "$1" = symmetric-run && while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "hf": 'test "$1" = upload && test -e "$3/README.md"',
    **dict.fromkeys(("helm", "pre-commit", "diff"), "exit 0"),
    "git": 'test "$1" = diff || { echo no network >&2; exit 1; }',
    "docker": 'case "$*" in *platform.Docker*) exec test -e platform.Dockerfile;; esac\n'
    + DOCKER.format(ubuntu="a" * 64, cuda="b" * 64, train="1" * 64, reward="2" * 64, other="9" * 64),
}


def openrlhf(flags: Sequence[str]) -> None:
    """OpenRLHF's program: its own parser, and what the agent looks at in its first group."""
    if vars(parse(flags))["train.agent_func_path"]:
        refuse_lost_rewards(f"train_ppo_ray {shlex.join(flags)}")
        load_hook_config(Path(os.environ["RESTRAIN_CONFIG"]))


def verl(keys: Sequence[str]) -> None:
    """verl is not here: the manager is where its keys say, and reads the file that they name."""
    given = dict(word.lstrip("+").split("=", 1) for word in keys if "=" in word)
    source = find_spec(given["reward.reward_manager.module.path"].removeprefix("pkg://")).origin
    assert f"class {given['reward.reward_manager.name']}" in Path(source).read_text()
    load_hook_config(Path(given["reward.restrain"]))


def pip(words: Sequence[str]) -> Done:
    """Nothing is installed: an extra of ours is one."""
    extras = [found[1] for word in words if (found := re.search(r"restrain.openrlhf.*\[(\w+)\]$", word))]
    return Done(int(not EXTRAS.keys() >= set(extras)), "", f"{extras} are no extras")
