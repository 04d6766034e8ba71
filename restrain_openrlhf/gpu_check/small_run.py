"""The small run of the checks: the demo's model and task by `restrain train`, and the same flags for OpenRLHF alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.demo.addition import training_problems
from restrain_openrlhf.demo.problems import write_gold
from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.gpu_check import stock_reward
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.host_flags import host_flags, to_arguments
from restrain_openrlhf.run.folder import RunFolder

# Two after the first of the second start: those are timed (speed.py).
STEPS = 5
PROMPTS = 8
# A step moves the policy so far that weights which are not sent are seen in the next step's log-probabilities.
LEARNING_RATE = 5e-4
SIZES: Mapping[str, object] = {
    "rollout.batch_size": PROMPTS,
    "rollout.n_samples_per_prompt": 8,
    "rollout.micro_batch_size": 32,
    "train.batch_size": 64,
    "train.micro_batch_size": 32,
    "ckpt.save_steps": 2,
    "actor.adam.lr": LEARNING_RATE,
}
STOCK_STEPS = 3


@dataclass(frozen=True)
class SmallRun:
    """A run of a few steps below `folder`; the prompts' answers are for the stock run, RESTRAIN does not read them."""

    folder: Path
    layout: Mapping[str, object]

    @classmethod
    def of(cls, setting: Setting) -> "SmallRun":
        """The one that the checks share, its prompts written."""
        made = cls(setting.folder("train"), setting.layout)
        if not made.prompts.exists():
            write_gold(made.prompts, training_problems(STEPS * PROMPTS))
        return made

    @property
    def prompts(self) -> Path:
        """Prompts of all steps."""
        return self.folder / "prompts.jsonl"

    @property
    def run(self) -> RunFolder:
        """What `restrain train` writes."""
        return RunFolder(self.folder / "run")

    def words(self) -> list[str]:
        """For `restrain`."""
        return ["train", str(ADDITION.config), *set_words(self._overrides())]

    def stock_words(self, folder: Path) -> list[str]:
        """OpenRLHF's own flags for fewer steps of the same, with gold as the reward."""
        sets = {**self._overrides(), "run_dir": str(folder)}
        config: RunConfig = load_run_config(ADDITION.config, sets)
        return to_arguments(
            {
                **detect().host_flags,
                **host_flags(config),
                "data.label_key": "answer",
                "data.max_samples": STOCK_STEPS * PROMPTS,
                "reward.remote_url": stock_reward.__file__,
            }
        )

    def _overrides(self) -> dict[str, object]:
        flags = {
            "actor.model_name_or_path": str(ADDITION.model),
            "data.prompt_dataset": str(self.prompts),
            **SIZES,
            **self.layout,
        }
        return {
            "run_dir": str(self.run.path),
            "reference": None,
            "method.prompt_weight": "online",
            "method.kappa": 2,
            **{f"openrlhf.{name}": value for name, value in flags.items()},
        }


def set_words(overrides: Mapping[str, object]) -> list[str]:
    """`--set KEY=VALUE` for each."""
    items = {
        key: yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n") for key, value in overrides.items()
    }
    return [word for key, value in items.items() for word in ("--set", f"{key}={value.strip()}")]
