"""The paths of presets and of the Kubernetes tree, in the checkout or in a package installed from a wheel."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# setup.py copies the repository's folders here when it builds a wheel.
IN_A_WHEEL = PACKAGE / "repository"
REPOSITORY = IN_A_WHEEL if IN_A_WHEEL.is_dir() else PACKAGE.parent
CONFIGS = REPOSITORY / "configs"
KUBERNETES = REPOSITORY / "k8s"
# Estimated hours of presets, with a line `NAME,HOURS` for each; docs/reference_pages.py writes them.
HOURS_FILE = CONFIGS / "hours.csv"


def preset_file(name: str) -> Path | None:
    """The file of the preset with this name, such as `cpu/demo`; None if there is none."""
    file = CONFIGS / f"{name}.yaml"
    return file if file.is_file() and not file.name.startswith("_") else None


def own_path(path: str) -> str:
    """The installed path of `restrain_openrlhf/...`, as presets write it; any other path unchanged."""
    here = PACKAGE.parent / path
    is_ours = path.startswith(f"{PACKAGE.name}/") and here.exists()
    return str(here) if is_ours and not Path(path).exists() else path
