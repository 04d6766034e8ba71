"""The platform as an OCI artefact, built as the page says: one layer, with every file of the rendered folder in it."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.command_line import restrain
from tests.commands.k8s.manifests import needs_kustomize
from tests.conftest import ROOT

pytestmark = pytest.mark.host

PAGE = (ROOT / "docs" / "operations" / "kubernetes_details.md").read_text(encoding="utf-8")
# Argo CD's default for ARGOCD_REPO_SERVER_OCI_LAYER_MEDIA_TYPES has this one; docker's own media types are not in it.
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@pytest.fixture
def layout(tmp_path):
    """The artefact as an OCI image layout, and the folder that it was built from; by buildah, which needs no engine."""
    needs_kustomize()
    if os.geteuid() != 0 or shutil.which("buildah") is None:
        pytest.skip("needs root and buildah to build an image without a container engine")
    source, made = tmp_path / "platform", tmp_path / "layout"
    done = restrain("k8s", "platform", "--overlay", "8xa100-80g", "--argo-cd", "--out", source)
    assert done.returncode == 0, done.stderr
    (text,) = re.findall(r"printf '(FROM scratch\\n.*)' > platform\.Dockerfile", PAGE)
    (tmp_path / "platform.Dockerfile").write_text(text.replace("\\n", "\n"))
    stores = ["--root", tmp_path / "store", "--runroot", tmp_path / "run", "--storage-driver", "vfs"]
    build = ["build", "--isolation", "chroot", "--file", tmp_path / "platform.Dockerfile", "--tag", "artefact", source]
    for words in (build, ["push", "artefact", f"oci:{made}:0.1.0"]):
        command = [str(word) for word in ("buildah", *stores, *words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return made, source


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / Path(*digest.split(":"))


def test_the_artefact_is_the_rendered_folder(layout, tmp_path):
    made, source = layout
    (entry,) = json.loads((made / "index.json").read_text())["manifests"]
    (layer,) = json.loads(blob(made, entry["digest"]).read_text())["layers"]
    assert layer["mediaType"] == LAYER
    with tarfile.open(blob(made, layer["digest"])) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "unpacked").iterdir()} == files
    assert len(files) == 3


def test_the_page_pushes_it_with_media_types_that_argo_cd_takes():
    (command,) = re.findall(r"^    docker buildx build .*(?:\\\n.*)?platform\.Dockerfile.*", PAGE, re.MULTILINE)
    assert "oci-mediatypes=true" in command
    assert "--provenance=false" in command
