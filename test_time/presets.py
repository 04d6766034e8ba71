"""Which configuration an adaptation starts from: a preset by method, protocol and size of the test set, or a file."""

import math
from collections.abc import Mapping
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.shipped import CONFIGS

# Written for this model on one node of eight GPUs; other models and layouts by --set.
PRESETS = CONFIGS / "test_time" / "llama3.1-8b-instruct"
# The sets that presets were written for, with their numbers of problems.
SIZES = {"aime24": 30, "amc23": 40, "math500": 500}
# Where each protocol's files lie below a set's folder.
PROTOCOLS = {"paper": ".", "ttrl_protocol": "ttrl_protocol"}


def preset_path(method: str, protocol: str, count: int) -> Path:
    """The preset of the set whose size is nearest to `count` problems, by ratio.

    Raises ConfigError for a protocol or a method without presets.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"--preset {protocol!r}: is no preset. Known: {', '.join(PROTOCOLS)}, of the nearest size of set; name any "
            "other with --config."
        )
    nearest = PRESETS / min(SIZES, key=lambda name: abs(math.log(SIZES[name] / count))) / PROTOCOLS[protocol]
    known = sorted(path.stem for path in nearest.glob("*.yaml"))
    if method not in known:
        raise ConfigError(
            f"--method {method!r}: has no preset for test-time RL. Known: {', '.join(known)}; for another method of "
            "`restrain train` give --config CONFIG."
        )
    return nearest / f"{method}.yaml"


def method_overrides(config: Path, method: str | None) -> Mapping[str, object]:
    """`--method` over a file of the user's own: settings of the file's own method are kept only for that one."""
    if method is None or method == load_run_config(config, {"run_dir": "unused"}).method.name:
        return {}
    return {"method": {"name": method}}


def length_overrides(steps: int | None, epochs: int | None, prompts: int, config: RunConfig) -> Mapping[str, object]:
    """`--steps` or `--epochs` as keys; an epoch visits every problem. Raises ConfigError where both are given."""
    if steps is not None and epochs is not None:
        raise ConfigError("--steps and --epochs are both given. Give one: an epoch is every problem once.")
    if steps is None:
        return {} if epochs is None else {"openrlhf.train.num_episodes": epochs}
    if "rollout.batch_size" not in config.openrlhf:
        raise ConfigError("openrlhf: rollout.batch_size is not set. Say how many problems a step has.")
    batches = -(-prompts // int(config.openrlhf["rollout.batch_size"]))
    return {"steps": steps, "openrlhf.train.num_episodes": -(-steps // batches)}
