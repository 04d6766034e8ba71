"""What a hooked process must know, and how it travels there: one environment variable, set for every Ray worker."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.config.yaml_file import LOGPROB_GAP_LIMIT, AdvantageSource
from restrain_openrlhf.errors import HookNotActiveError
from restrain_openrlhf.method import MethodSettings

VARIABLE = "RESTRAIN_HOOK"


class HookSettings(BaseModel):
    """The method and its files. Paths are absolute: Ray's workers have working folders of their own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: MethodSettings
    reference: Path | None = None
    metrics: Path | None = None
    steps: int | None = None
    seeded_rollouts: bool = False
    evaluate_first: bool = False
    fill_last_batch: bool = True
    advantages: AdvantageSource = "hook"
    logprob_gap_limit: float | None = LOGPROB_GAP_LIMIT

    def to_environment(self) -> dict[str, str]:
        """The variable that hands these settings to a worker."""
        return {VARIABLE: self.model_dump_json()}

    @classmethod
    def from_environment(cls) -> "HookSettings":
        """The settings this process was started with. Raises HookNotActiveError where there are none."""
        if VARIABLE not in os.environ:
            raise HookNotActiveError(
                f"{VARIABLE} is not set in this process, so it was not started by a hooked run. Start training with "
                "`restrain train` or `python -m restrain_openrlhf.hook.train_ppo_ray`."
            )
        return cls.model_validate_json(os.environ[VARIABLE])
