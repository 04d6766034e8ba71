"""Every preset's resolved command; `python -m tests.config.presets` writes the golden file anew."""

from pathlib import Path

from restrain_openrlhf.config.host_defaults import host_flags
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.hook.host_flags import to_arguments
from tests.conftest import ROOT

GOLDEN = Path(__file__).with_name("commands.golden.txt")


def presets() -> list[Path]:
    """Those that can be run: a file with an underscore is what others extend."""
    return sorted(path for path in (ROOT / "configs").rglob("*.yaml") if not path.name.startswith("_"))


def command(path: Path) -> str:
    """Method, reference and flags, with paths relative to the checkout."""
    config = load_run_config(path)
    method = ", ".join(f"{key}={value}" for key, value in config.method.model_dump(mode="json").items())
    words = " ".join(to_arguments(host_flags(config))).replace(" --", "\n  --").replace("--", "  --", 1)
    reference = f"\n  reference={config.reference}" if config.reference else ""
    reference += f"\n  reference_n={config.reference_n}" if config.reference_n else ""
    return f"  {method}{reference}\n{words}\n".replace(f"{Path.cwd()}/", "")


def golden_text() -> str:
    return "\n".join(f"# {path.relative_to(ROOT)}\n{command(path)}" for path in presets())


if __name__ == "__main__":
    GOLDEN.write_text(golden_text(), encoding="utf-8")
