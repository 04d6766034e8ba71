"""What a hooked process must know, and how it travels there: one environment variable, set for every Ray worker."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.config.yaml_file import LOGPROB_GAP_LIMIT, load_hook_config
from restrain_openrlhf.errors import ConfigError, HookNotActiveError
from restrain_openrlhf.method import MethodSettings, build

VARIABLE = "RESTRAIN_HOOK"
# Names the agent's configuration file where OpenRLHF runs without our entry point.
FILE_VARIABLE = "RESTRAIN_CONFIG"


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
    service: str | None = None
    logprob_gap_limit: float | None = LOGPROB_GAP_LIMIT

    def to_environment(self) -> dict[str, str]:
        """The variable that hands these settings to a worker."""
        return {VARIABLE: self.model_dump_json()}

    @classmethod
    def from_environment(cls) -> "HookSettings":
        """The settings this process was started with. Raises HookNotActiveError where there are none."""
        if VARIABLE not in os.environ:
            raise HookNotActiveError(f"{VARIABLE} is not set in this process, so it was not started by a hooked run.")
        return cls.model_validate_json(os.environ[VARIABLE])

    @classmethod
    def of_executor(cls, hooked: bool) -> "HookSettings":
        """The settings of a process that draws rollouts: our entry point's, or those of the file RESTRAIN_CONFIG names.

        Raises HookNotActiveError where our entry point started the run and the hook is not on here, ConfigError where
        there is no file, or it asks for what only our entry point can do.
        """
        if hooked:
            return cls.from_environment()
        if VARIABLE in os.environ:
            raise HookNotActiveError("This rollout actor runs without the RESTRAIN hook.")
        if FILE_VARIABLE not in os.environ:
            raise ConfigError(
                f"{FILE_VARIABLE} is not set where the rollouts are drawn. Set it, on every Ray node, to a YAML file "
                "with `method:`; with `ray job submit`, by --runtime-env-json."
            )
        return _without_entry_point(Path(os.environ[FILE_VARIABLE]))


def _without_entry_point(path: Path) -> HookSettings:
    config = load_hook_config(path)
    method = build(config.method)
    asked = [f"{name} is set" for name in config.changed() if name != "service"]
    asked += ["metrics is set"] if config.metrics else []
    asked += [f"the method {method.name!r} learns from gold answers"] if method.reads_gold else []
    asked += [f"the method {method.name!r} trains on some of the prompts only"] if method.selection else []
    if asked:
        raise ConfigError(
            f"{path}: {asked[0]}, which the agent alone cannot do. Start the run with "
            "`python -m restrain_openrlhf.hook.train_ppo_ray` (docs/journeys/integration.md), or leave it out."
        )
    return HookSettings(method=config.method, reference=config.reference, service=config.service)
