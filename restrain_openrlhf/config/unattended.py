"""What a configuration may not say where a cluster starts the run, and starts it again: no lost work, no secrets."""

from collections.abc import Mapping
from typing import Any

from restrain_openrlhf.config.secrets import SECRET_FLAGS
from restrain_openrlhf.errors import ConfigError

# OpenRLHF turns W&B on by a key alone; the real one comes from the environment, as WANDB_API_KEY.
DUMMY_KEY = "dummy"


def refuse_lost_work(flags: Mapping[str, Any]) -> None:
    """Raises ConfigError where no checkpoint would be written, or none resumed."""
    if int(flags["ckpt.save_steps"]) <= 0 or not flags["ckpt.load_enable"]:
        raise ConfigError(
            "ckpt.save_steps must be above 0 and ckpt.load_enable true: a preempted run would start again from nothing."
        )


def refuse_secrets(flags: Mapping[str, Any], place: str) -> None:
    """Raises ConfigError for a secret that the rendered files would show; `place` says where it goes instead."""
    for name in sorted(SECRET_FLAGS):
        if flags[name] not in (None, "", DUMMY_KEY):
            raise ConfigError(
                f"{name} would be readable in the cluster. Set it to '{DUMMY_KEY}' and put the key {place}."
            )
