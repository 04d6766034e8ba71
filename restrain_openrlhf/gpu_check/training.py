"""A real run on the device: vLLM has the policy's weights after every sync, and a killed run goes on."""

from collections.abc import Sequence
from math import isfinite

from restrain_openrlhf.gpu_check.children import RESTRAIN, kill_when, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, failed, judged
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.gpu_check.small_run import STEPS, SmallRun
from restrain_openrlhf.run.metrics import KL, StepRow, read_steps

# Killed in the step after a checkpoint.
KILLED_AFTER = 3
GAP = "restrain/logprob_gap_relative"
# Rounding in bf16 gives 0.01 to 0.035 of the mean |log p|.
GAP_LIMIT = 0.1
# What the policy must have moved by, in nats a token, for weights that were not sent to be seen: rollouts of the demo's
# model were 0.3 of their mean |log p| from a policy at KL 0.003, 1.1 at 0.04, 7 at 0.4. How far five steps go differs
# from run to run: 0.013 to 0.98 were seen.
LEAST_KL = 0.003
ARRIVED = "restrain/update_arrived"
# Of the policy's move: what rounding leaves of a move that is twice its size is within an eighth of the whole.
LEAST_ARRIVED = 0.8


def check_training(setting: Setting) -> list[Outcome]:
    """A few steps, killed after the third and started again."""
    small = SmallRun.of(setting)
    log = small.folder / "train.log"
    kill_when(lambda: _last_step(small) >= KILLED_AFTER, RESTRAIN, small.words(), log)
    before = read_steps(small.run.metrics)
    run_module(RESTRAIN, small.words(), log)
    rows = read_steps(small.run.metrics)
    resumed = "Loading the checkpoint" in small.run.log.read_text(encoding="utf-8", errors="replace")
    return [judge_syncs(rows), judge_resume(before, rows, resumed, small.run.model.is_dir())]


def judge_syncs(rows: Sequence[StepRow]) -> Outcome:
    """The gap of a step's rollouts is that of the sync before it."""
    name = "weights in vLLM"
    gaps = [row.numbers.get(GAP) for row in rows]
    broken = sorted({number for row in rows for number in row.broken})
    if broken:
        return failed(name, f"not finite in some step: {', '.join(broken)}")
    kl = max((row.numbers.get(KL, 0.0) for row in rows), default=0.0)
    numbers = [gap for gap in gaps if gap is not None and isfinite(gap)]
    if not numbers or len(numbers) < len(gaps):
        return failed(name, f"{len(gaps) - len(numbers)} of {len(gaps)} steps have no {GAP} that is a number")
    worst = max(numbers)
    if kl < LEAST_KL:
        return failed(name, f"the policy did not move (KL {kl:.1e}), so that the gaps show nothing", gap=worst, kl=kl)
    shares = [share for row in rows if (share := row.numbers.get(ARRIVED)) is not None]
    part = (
        f"{min(shares):.0%} of its update (at least {LEAST_ARRIVED:.0%})" if shares else "an update too small to tell"
    )
    found = (
        f"at most {worst:.1%} from the policy's in {len(gaps)} steps (limit {GAP_LIMIT:.0%}), with {part}; "
        f"KL went to {kl:.2g}"
    )
    holds = worst <= GAP_LIMIT and all(share >= LEAST_ARRIVED for share in shares)
    measured = {"arrived": min(shares)} if shares else {}
    return judged(name, holds, found, gap=worst, kl=kl, steps=len(gaps), **measured)


def judge_resume(before: Sequence[StepRow], rows: Sequence[StepRow], loaded: bool, has_model: bool) -> Outcome:
    """Each step once, from the checkpoint on; the steps before it as they were."""
    name, steps = "SIGKILL and resume", [row.step for row in rows]
    if steps != list(range(1, STEPS + 1)):
        return failed(name, f"metrics.jsonl has the steps {steps}, not 1 to {STEPS} once each")
    if not loaded or rows[0] != before[0]:
        return failed(name, "the run began again from the base model instead of its checkpoint")
    if not has_model:
        return failed(name, "no trained model was written")
    return judged(name, True, f"killed after step {before[-1].step}, went on to step {STEPS} from its checkpoint")


def _last_step(small: SmallRun) -> int:
    return max((row.step for row in read_steps(small.run.metrics)), default=0)
