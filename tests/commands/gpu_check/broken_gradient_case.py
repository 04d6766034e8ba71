"""Steps of gpu-check's gradient cases in a product that is broken on purpose, in CUDA's order of patches.

As a program it prints for each break a JSON line: how far each case is from the paper's gradient, what the wrong losses
of the case are, and the host's methods that were not patched.
"""

import json
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from unittest import mock

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.hook.install.instrument import PATCHES, unpatched
from restrain_openrlhf.machine import cuda, flash_attention
from restrain_openrlhf.machine.patching import expect

# As many micro-batches of one GPU as a configuration may have, in the type that presets ask for.
OWN = gradient.GradientCase("bf16", "micro-batches", stage=2, repeats=128, grad_accum_dtype="fp32", temperature=0.6)
LINES = (*gradient.CASES, *gradient.TORCHS)


def replaced(owner, name, made):
    """A break: what `made` makes of the attribute is in its place."""
    return mock.patch.object(owner, name, made(getattr(owner, name)))


def kl_without_its_weight():
    """u_x on the policy's loss alone."""
    from restrain_openrlhf.hook.policy import actor

    return replaced(actor, "weighted_kl", lambda weighted: lambda trainer, weights: weighted(trainer, weights**0))


def means_of_micro_batches():
    """Each micro-batch divided by its own tokens."""
    from openrlhf.trainer.ray import ppo_actor

    def of_its_own(_whole):
        return lambda batches, *_: ((batch, None) for batch in batches)

    return replaced(ppo_actor, "iter_grad_accum_global_norm", of_its_own)


def packed_as_one_sequence():
    """Packed rollouts that see each other."""

    def without_places(attention):
        return lambda *args, **named: attention(*args, **{**named, "position_ids": None})

    return replaced(flash_attention, "varlen_attention", without_places)


def temperature_forgotten():
    """The policy that is trained is not the one that is sampled."""
    from openrlhf.models import Actor

    def at_one(forward):
        def broken(actor, *args, **named):
            with mock.patch.object(actor, "temperature", 1.0):
                return forward(actor, *args, **named)

        return broken

    return replaced(Actor, "forward", at_one)


@contextmanager
def dynamic_mend_lost():
    """The process has lost a function of ours: under ZeRO 2 the last dynamic micro-batch's gradient alone is used."""
    patch = next(patch for patch in PATCHES if patch.qualname == "DeepspeedStrategy.get_ds_train_config")
    patch.remove()
    yield
    patch.apply()


BREAKS = {
    each.__name__: each
    for each in (
        nullcontext,
        kl_without_its_weight,
        means_of_micro_batches,
        packed_as_one_sequence,
        temperature_forgotten,
        dynamic_mend_lost,
    )
}
# A configuration's own line takes as long as all others; these are what it is there for.
WITH_OWN = ("nullcontext", "temperature_forgotten")


def main() -> None:
    """Print a line for each break. CUDA's stand-ins are in place before the hook is."""
    expect([cuda.ADAM, cuda.ATTENTION])
    host_step.prepare_process()
    import openrlhf.trainer.ray.ppo_actor  # noqa: F401 - what breaks replace is there

    for name, break_it in BREAKS.items():
        cases = (*LINES, OWN) if name in WITH_OWN else LINES
        with ExitStack() as broken:
            broken.enter_context(break_it())
            steps, lost = {case.name: gradient.measure(case) for case in cases}, unpatched()
        sys.stdout.write("\n" + json.dumps({"broken": name, "steps": steps, "not_patched": lost}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
