"""The presets, and the golden commands of four; `python -m tests.config.presets` writes the golden files anew."""

from pathlib import Path

from restrain_openrlhf.config.host_flags import host_flags, to_arguments
from restrain_openrlhf.config.yaml_file import load_run_config
from tests.conftest import ROOT

CONFIGS = ROOT / "configs"
GOLDEN = Path(__file__).with_name("golden")
# A training, an adaptation, one GPU and the CPU, written out in full for people to review.
REPRESENTATIVES = (
    "dapo14k/qwen3-4b-base/restrain",
    "test_time/llama3.1-8b-instruct/aime24/ttrl_protocol/ettrl",
    "one_gpu/24gb/qwen3-1.7b-base-lora",
    "cpu/demo",
)


def presets() -> list[str]:
    """Those that can be run, by name: a file with an underscore is what others extend."""
    paths = (path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.yaml") if not path.name.startswith("_"))
    return sorted(str(path.with_suffix("")) for path in paths)


def preset_file(name: str) -> Path:
    return CONFIGS / f"{name}.yaml"


def golden_file(name: str) -> Path:
    return GOLDEN / f"{name.replace('/', '.')}.txt"


def command(name: str) -> str:
    """Everything a run is started with, with paths relative to the checkout; needs it as the working directory."""
    config = load_run_config(preset_file(name))
    own = config.model_dump(mode="json", exclude={"method", "openrlhf"}, exclude_defaults=True)
    settings = [f"{key}={value}" for key, value in own.items()]
    method = [f"{key}={value}" for key, value in config.method.model_dump(mode="json").items()]
    flags = " ".join(to_arguments(host_flags(config))).split(" --")
    flags = [flags[0].removeprefix("--"), *flags[1:]]
    lines = [*settings, *(f"method.{line}" for line in method), *(f"--{line}" for line in flags)]
    return "\n".join(lines).replace(f"{Path.cwd()}/", "") + "\n"


if __name__ == "__main__":
    for preset in REPRESENTATIVES:
        golden_file(preset).write_text(command(preset), encoding="utf-8")
