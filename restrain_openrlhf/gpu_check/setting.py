"""Where and on what the checks run: the folder, the configuration to be tried, and the layout of the small runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.hook.device import Device
from restrain_openrlhf.hook.devices import detect

# Everything on one GPU: vLLM and the optimizer's states make room for each other, and weights travel by CUDA IPC.
COLOCATED: Mapping[str, object] = {
    "train.colocate_all": True,
    "vllm.enable_sleep": True,
    "vllm.sync_backend": "nccl",
    "ds.enable_sleep": True,
    "ds.zero_stage": 2,
}


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
        """Flags of the small runs beyond those of `configs/cpu`, which has one process for each model."""
        return COLOCATED if self.device.has_gpus else {}

    def folder(self, name: str) -> Path:
        """A folder of one check's own."""
        made = self.out / name
        made.mkdir(parents=True, exist_ok=True)
        return made
