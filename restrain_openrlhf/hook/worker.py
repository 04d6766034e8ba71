"""What every Ray worker of a hooked run does before anything else (Ray's worker_process_setup_hook)."""

from restrain_openrlhf.devices import detect
from restrain_openrlhf.hook.instrument import install

SETUP_HOOK = "restrain_openrlhf.hook.worker.setup"


def setup() -> None:
    """Prepare this worker's accelerator, then hook it. Host modules are touched only when they are imported."""
    detect().install()
    install()
