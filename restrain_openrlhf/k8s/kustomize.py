"""Runs Kustomize over a generated kustomization: `kustomize build`, or the one inside kubectl."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.errors import ConfigError

OLDEST = 5
# libyaml is ten times as fast on thousands of lines, where PyYAML has it.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def build(folder: Path) -> list[dict[str, Any]]:
    """All objects of a kustomization. Raises ConfigError with Kustomize's own words, or where there is no Kustomize."""
    done = _run([*kustomize_command(), str(folder)])
    if done.returncode != 0:
        raise ConfigError(f"Kustomize refuses {folder}: {done.stderr.strip()}")
    return [each for each in yaml.load_all(done.stdout, LOADER) if each]


def kustomize_command() -> list[str]:
    """The words that render a folder. Raises ConfigError where neither program is there, or only an old one."""
    tried = []
    for version, words in ((["kustomize", "version"], ["kustomize", "build"]), (KUBECTL_VERSION, KUBECTL_BUILD)):
        if shutil.which(words[0]) is None:
            continue
        found = re.search(r"(?:Kustomize Version: )?v(\d+)\.\d+\.\d+\s*$", _run(version).stdout.strip(), re.MULTILINE)
        if found and int(found[1]) >= OLDEST:
            return words
        tried.append(words[0])
    old = f" {' and '.join(tried)} brings an older one." if tried else ""
    raise ConfigError(
        f"Kustomize {OLDEST} or newer is needed to render.{old} Install kubectl 1.29 or newer, or kustomize."
    )


KUBECTL_VERSION = ["kubectl", "version", "--client"]
KUBECTL_BUILD = ["kubectl", "kustomize"]


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)
