"""Rendered folders, and their `run.sh` run with the real kubectl against the stand-in for a cluster."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from tests.commands.k8s.experiments import IMAGE, render
from tests.commands.k8s.manifests import needs_kustomize
from tests.commands.k8s.stand_in.api import StandIn

ONE_GPU = "one_gpu/24gb/qwen3-0.6b-base"


@cache
def folder(*words: object, config: str = ONE_GPU, overlay: str = "single-node") -> Path:
    """What a rendering writes, made once."""
    needs_kustomize()
    made = Path(tempfile.mkdtemp()) / "manifests"
    done = render("--image", IMAGE, *words, config=config, overlay=overlay, out=made)
    assert done.returncode == 0, done.stderr
    return made


@dataclass
class Place:
    """A cluster that answers kubectl."""

    home: Path
    cluster: StandIn
    kubeconfig: Path = field(init=False)

    def __post_init__(self) -> None:
        self.kubeconfig = self.cluster.serve(self.home)

    def environment(self, path: str | None = None, patience: float = 600) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": path or os.environ["PATH"],
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.home),
            "RESTRAIN_POLL_SECONDS": "0",
            "RESTRAIN_PATIENCE_SECONDS": str(patience),
        }

    def call(self, *words: object, path: str | None = None, patience: float = 600) -> subprocess.CompletedProcess[str]:
        # It ends, or it is a test's failure: run.sh itself waits as long as it takes.
        return subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment(path, patience),
            cwd=self.home,
            timeout=100,
        )

    @contextmanager
    def running(self, manifests: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The script while it runs, both its outputs in one; it gives up at once what cannot end well."""
        command = ["/bin/sh", str(manifests / "run.sh"), *words]
        outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, env=self.environment(patience=0), cwd=self.home, **outputs) as process:
            try:
                yield process
            finally:
                process.kill()

    def kubectl(self, *words: object) -> str:
        done = self.call("kubectl", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def administrate(self, manifests: Path) -> None:
        self.kubectl("apply", "--server-side", "-f", manifests / "01-admin.yaml")

    def run(self, manifests: Path, *words: object, **more: object) -> subprocess.CompletedProcess[str]:
        """The script, from a folder that is not its own."""
        return self.call("/bin/sh", manifests / "run.sh", *words, **more)

    def jobs(self) -> dict[str, str]:
        """The last condition of each job by the step that it is of."""
        return {
            each["metadata"]["labels"]["app.kubernetes.io/component"]: [
                one["type"] for one in each.get("status", {}).get("conditions", [{"type": ""}])
            ][-1]
            for each in self.cluster.of("Job")
            if "app.kubernetes.io/component" in each["metadata"].get("labels", {})
        }

    def applied(self, kinds: str) -> list[str]:
        """The names of objects of a kind that were applied, in order."""
        found = re.findall(rf"^PATCH \S+/{kinds}/([^/\s]+)$", "\n".join(self.cluster.calls), re.MULTILINE)
        return [name for name, following in zip(found, [*found[1:], ""], strict=False) if name != following]


def objects_of(manifests: Path, file: str) -> list[dict]:
    (path,) = manifests.glob(f"*-{file}.yaml")
    return list(yaml.safe_load_all(path.read_text()))
