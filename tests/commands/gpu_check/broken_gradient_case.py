"""Steps of gpu-check's gradient cases in a product that is broken on purpose, in the order of patches of either stack.

Run as a program with an order, `cpu` or `cuda`, and names of breaks, it prints for each break a JSON line: how far each
case is from the paper's gradient, what the wrong losses of the case are, and the host's methods that were not patched.
"""

import json
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from unittest import mock

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.hook.install.instrument import PATCHES, unpatched
from restrain_openrlhf.machine import cuda, flash_attention
from restrain_openrlhf.machine.patching import expect
from tests.patches import take_off

# As many micro-batches of one GPU as a configuration may have, in the type that presets ask for.
OWN = gradient.GradientCase("bf16", "micro-batches", stage=2, repeats=128, grad_accum_dtype="fp32", temperature=0.6)
LINES = (*gradient.CASES, *gradient.TORCHS)


def replaced(owner, name, made):
    """A break: what `made` makes of the attribute is in its place."""
    return mock.patch.object(owner, name, made(getattr(owner, name)))


def summed_before_the_clip():
    """The loss by A⁺ + A⁻, which is right only while nothing clips."""
    import torch

    from restrain_openrlhf.hook.policy.actor import PairedLoss

    def net(forward):
        def broken(self, log_probs, old, advantages, **batch):
            positive, negative = advantages
            return forward(self, log_probs, old, torch.stack([positive + negative, 0 * positive]), **batch)

        return broken

    return replaced(PairedLoss, "forward", net)


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


def means_of_dynamic_micro_batches():
    """The same of those that are filled by tokens."""
    from openrlhf.trainer.ppo_utils.replay_buffer import NaiveReplayBuffer

    def of_its_own(setup):
        def broken(buffer, strategy):
            setup(buffer, strategy)
            for place, rows in enumerate(buffer.dynamic_indices):
                buffer.dynamic_batch_num_tokens[place] = sum(float(buffer.items[row].action_mask.sum()) for row in rows)

        return broken

    return replaced(NaiveReplayBuffer, "setup_dynamic_batch", of_its_own)


def packed_as_one_sequence():
    """Packed rollouts that see each other."""

    def without_places(attention):
        return lambda *args, **named: attention(*args, **{**named, "position_ids": None})

    return replaced(flash_attention, "varlen_attention", without_places)


def heads_of_other_groups():
    """Query heads that share keys and values by turns, and not as neighbours, where rollouts are packed."""

    def by_turns(attention):
        def broken(module, query, key, value, *rest, **named):
            groups = query.shape[1] // key.shape[1]
            return attention(module, query, *(each.repeat(1, groups, 1, 1) for each in (key, value)), *rest, **named)

        return broken

    return replaced(flash_attention, "varlen_attention", by_turns)


def tokens_that_look_ahead():
    """torch's attention, not causal; the CPU's packing is made of it."""
    import torch.nn.functional

    def ahead(attention):
        return lambda *args, **named: attention(*args, **{**named, "is_causal": False, "attn_mask": None})

    return replaced(torch.nn.functional, "scaled_dot_product_attention", ahead)


def old_policy_forgotten():
    """The ratio is 1 everywhere: nothing clips."""
    from restrain_openrlhf.hook.policy.actor import PairedLoss

    def on_policy(forward):
        return lambda self, log_probs, old, *rest, **batch: forward(self, log_probs, log_probs.detach(), *rest, **batch)

    return replaced(PairedLoss, "forward", on_policy)


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
def without(qualname):
    """The process has lost one of our functions."""
    patch = next(patch for patch in PATCHES if patch.qualname == qualname)
    take_off([patch])
    yield
    expect([patch])


def dynamic_mend_lost():
    """Under ZeRO 2, as in bf16, the last dynamic micro-batch's gradient alone is used."""
    return without("DeepspeedStrategy.get_ds_train_config")


def sums_in_the_weights_type():
    """Gradients are added up in bf16 whatever is asked for."""
    return without("DeepSpeedZeroOptimizer.get_all_grad_tensors")


BREAKS = {
    each.__name__: each
    for each in (
        nullcontext,
        summed_before_the_clip,
        kl_without_its_weight,
        old_policy_forgotten,
        means_of_micro_batches,
        means_of_dynamic_micro_batches,
        packed_as_one_sequence,
        heads_of_other_groups,
        tokens_that_look_ahead,
        temperature_forgotten,
        dynamic_mend_lost,
        sums_in_the_weights_type,
    )
}
# A configuration's own line takes as long as all others; these are what it is there for.
WITH_OWN = ("nullcontext", "temperature_forgotten", "sums_in_the_weights_type")


def main(order: str, *names: str) -> None:
    """Print a line for each break."""
    if order == "cuda":
        expect([cuda.ADAM, cuda.ATTENTION])
    host_step.prepare_process()
    import openrlhf.trainer.ray.ppo_actor  # noqa: F401 - what breaks replace is there

    for name in names:
        cases = (*LINES, OWN) if name in WITH_OWN else LINES
        with ExitStack() as broken:
            broken.enter_context(BREAKS[name]())
            steps, lost = {case.name: gradient.measure(case) for case in cases}, unpatched()
        sys.stdout.write("\n" + json.dumps({"broken": name, "steps": steps, "not_patched": lost}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
