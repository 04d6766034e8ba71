"""Compiles what DeepSpeed loads on a CPU, for `make install`, so that the first training need not.

`python -m restrain_openrlhf.machine.cpu` takes two to three minutes the first time, and seconds where all is built.
"""

from restrain_openrlhf.machine.cpu import install
from restrain_openrlhf.machine.patching import load

# DeepSpeed's Adam, and the exchange between processes by shared memory.
BUILDERS = ("FusedAdamBuilder", "ShareMemCommBuilder")


def build() -> None:
    """Compile into torch's folder of extensions. A compiler's failure raises RuntimeError with its output."""
    install()
    accelerator = load("deepspeed.accelerator:get_accelerator")()
    for name in BUILDERS:
        accelerator.create_op_builder(name).load(verbose=False)


if __name__ == "__main__":
    build()
