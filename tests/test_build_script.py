"""`docker/build.sh` with a stand-in for docker: digests looked up, builds pushed, the kustomization written last."""

import os
import shutil
import subprocess

import pytest
import yaml

from tests.conftest import ROOT
from tests.processes import program

BASES = {"ubuntu": "a" * 64, "nvidia/cuda": "b" * 64, "python": "c" * 64}
PUSHED = {"restrain-train": "1" * 64, "restrain-reward": "2" * 64}
# Keeps its words in a file; answers as buildx does; fails where BROKEN is in them.
DOCKER = """
echo "$*" >> "$ASKED"
case "$*" in *"$BROKEN"*) echo 'failed to solve' >&2; exit 1;; esac
case "$*" in
  "buildx version") echo github.com/docker/buildx v0.29;;
  *"imagetools inspect docker.io/library/ubuntu"*) echo "sha256:{ubuntu}";;
  *"imagetools inspect docker.io/nvidia/cuda"*) echo "sha256:{cuda}";;
  *"imagetools inspect docker.io/library/python"*) echo "$PYTHON_DIGEST";;
  "buildx build "*)
    while [ "$1" != --metadata-file ]; do shift; done
    case "$2" in *train*) digest={train};; *) digest={reward};; esac
    printf '{{\\n  "containerimage.config.digest": "sha256:{other}",\\n' > "$2"
    printf '  "containerimage.digest": "sha256:%s",\\n  "image.name": "x"\\n}}\\n' "$digest" >> "$2";;
esac
"""
TREE = "k8s/components/images/kustomization.yaml"
NAMES = {"ubuntu": BASES["ubuntu"], "cuda": BASES["nvidia/cuda"], "other": "9" * 64}


@pytest.fixture
def build(tmp_path):
    """Runs the script in a copy of what it reads; the words that docker was asked are in `asked`."""
    for name in ("docker/build.sh", TREE, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    made = DOCKER.format(**NAMES, train=PUSHED["restrain-train"], reward=PUSHED["restrain-reward"])
    program(tmp_path / "bin", "docker", made)
    given = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "ASKED": str(tmp_path / "asked")}

    def run(*words, broken="nothing of this kind", python=f"sha256:{BASES['python']}"):
        environment = {**os.environ, **given, "BROKEN": broken, "PYTHON_DIGEST": python}
        command = [tmp_path / "docker" / "build.sh", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    return run


def test_both_images_are_built_on_looked_up_bases_pushed_and_written(build, tmp_path):
    done = build("registry.example:5000/team", "--tag", "1.2")
    assert done.returncode == 0, done.stderr
    train, reward = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("buildx build")]
    assert f"--build-arg BASE_IMAGE=docker.io/library/ubuntu:24.04@sha256:{BASES['ubuntu']}" in train
    assert "--push" in train
    assert f"BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm@sha256:{BASES['python']}" in reward
    images = {each["name"]: each for each in yaml.safe_load((tmp_path / TREE).read_text())["images"]}
    for name, digest in PUSHED.items():
        assert images[name] == {
            "name": name,
            "newName": f"registry.example:5000/team/{name}",
            "digest": f"sha256:{digest}",
        }


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (("registry.example/team",), {"broken": "restrain-reward:0.1.0"}, "failed to solve"),
        (("registry.example/team",), {"python": "latest"}, "the registry's digest of"),
        (("registry.example/team", "--sign", "cosign.key"), {}, "cosign is not on PATH"),
        (("https://registry.example/team",), {}, "is no registry"),
        (("registry.example/team", "--only", "serve"), {}, "train or reward"),
        ((), {}, "usage:"),
    ],
)
def test_what_fails_leaves_the_kustomization_as_it_was(build, tmp_path, words, more, said):
    """Also after the first of two builds went well."""
    before = (tmp_path / TREE).read_bytes()
    done = build(*words, **more)
    assert (done.returncode != 0, said in done.stderr) == (True, True), done.stderr
    assert (tmp_path / TREE).read_bytes() == before
