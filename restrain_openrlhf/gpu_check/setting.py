"""Where and on what the checks run: the folder, the configuration to be tried, and the layout of the small runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.hook.device import Device
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.this_machine import flags_to_share


@dataclass(frozen=True)
class Setting:
    """`out` is the check's own folder, new or empty; `config` the run that is to be started afterwards, if any."""

    out: Path
    config: RunConfig | None = None

    @property
    def device(self) -> Device:
        """The accelerator that is there."""
        return detect()

    @property
    def layout(self) -> Mapping[str, object]:
        """Flags of the small runs beyond those of `configs/cpu`: on GPUs, how all models share one of them."""
        return on_one_gpu() if self.device.has_gpus else {}

    def folder(self, name: str) -> Path:
        """A folder of one check's own."""
        made = self.out / name
        made.mkdir(parents=True, exist_ok=True)
        return made


def on_one_gpu() -> dict[str, object]:
    """What the demo's layout becomes on a machine with one GPU; weights travel by CUDA IPC."""
    return flags_to_share(vars(parse(to_arguments(host_flags(load_run_config(ADDITION.config))))), 1)
