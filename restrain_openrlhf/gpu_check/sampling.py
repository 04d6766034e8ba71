"""vLLM as the methods use it: seeds, the likeliest tokens, a tree, stop tokens, sleep; judged from what was seen."""

from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.gpu_check.children import json_lines, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, judged, skipped
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.hook.engine_case import TOP_K, EngineSeen

# As for the syncs of a run (training.py): rounding in bf16 gives 0.01 to 0.02.
GAP_LIMIT = 0.05
# Three carries, each of which the demo's model is unsure of; of an addition without any, all seeds write the same.
PROMPT = "789+456="
FEWEST_RESPONSES = 2
LEAST_FREED = 0.5


def check_sampling(setting: Setting) -> list[Outcome]:
    """One engine, asked everything."""
    log = setting.folder("sampling") / "engine.log"
    run_module("restrain_openrlhf.hook.engine_case", ["--model", ADDITION.model, "--prompt", PROMPT], log)
    (seen,) = json_lines(log)
    return judge_sampling(EngineSeen(**seen))


def judge_sampling(seen: EngineSeen) -> list[Outcome]:
    """A line for each thing that was asked."""
    return [_seeds(seen), _ranks(seen), _tree(seen), _stops(seen), _sleep(seen)]


def _seeds(seen: EngineSeen) -> Outcome:
    """Required: a request alone is drawn again by its seed. How far that holds in a batch is reported.

    `seeded_rollouts` promises no more than that on one machine; where kernels are not batch-invariant, a resumed run
    has other rollouts of the same distribution.
    """
    found = (
        f"alone {seen.repeated_alone:.0%} the same again (required); in a batch {seen.repeated_in_a_batch:.0%}, the "
        f"batch again {seen.repeated_batch:.0%} (reported); {seen.differing_seeds} responses by {seen.seeds} seeds"
    )
    holds = seen.repeated_alone == 1 and seen.differing_seeds >= FEWEST_RESPONSES
    numbers = {"alone": seen.repeated_alone, "in_a_batch": seen.repeated_in_a_batch, "batch": seen.repeated_batch}
    return judged("vLLM: seeds", holds, found, **numbers)


def _ranks(seen: EngineSeen) -> Outcome:
    found = (
        f"ranks 1 to {TOP_K} at {seen.positions - seen.bad_ranks} of {seen.positions} tokens; log-probabilities "
        f"{seen.logprob_gap_relative:.1%} from the policy's (limit {GAP_LIMIT:.0%})"
    )
    holds = seen.positions > 0 and seen.bad_ranks == 0 and seen.logprob_gap_relative < GAP_LIMIT
    return judged(f"vLLM: top-{TOP_K} ranks", holds, found, bad=seen.bad_ranks, gap=seen.logprob_gap_relative)


def _tree(seen: EngineSeen) -> Outcome:
    found = (
        f"{seen.leaves} leaves, {seen.leaves_apart_from_root} that leave the chain before their fork; "
        f"log-probabilities {seen.tree_gap_relative:.1%} from the policy's"
    )
    holds = seen.leaves > 1 and seen.leaves_apart_from_root == 0 and seen.tree_gap_relative < GAP_LIMIT
    return judged("vLLM: one tree", holds, found, leaves=seen.leaves, gap=seen.tree_gap_relative)


def _stops(seen: EngineSeen) -> Outcome:
    ends = {
        "a stop token": seen.ends_at_stop,
        "the length limit": seen.ends_at_limit,
        "the end token": seen.ends_at_eos,
    }
    missed = [name for name, holds in ends.items() if not holds]
    found = f"does not end at {', '.join(missed)}" if missed else f"ends at {', '.join(ends)}, and says so"
    return judged("vLLM: stop tokens", not missed, found)


def _sleep(seen: EngineSeen) -> Outcome:
    name = "vLLM: sleep and wake"
    if seen.freed is None:
        return skipped(name, "vLLM's CPU build has no sleep mode")
    again = "the same" if seen.same_after_wake else "another response"
    found = f"{seen.freed:.0%} of the GPU's used memory given back (at least {LEAST_FREED:.0%}); {again} after waking"
    holds = seen.freed >= LEAST_FREED and bool(seen.same_after_wake)
    return judged(name, holds, found, freed=seen.freed)
