"""Writes and reads what a run logs: steps (metrics.jsonl), evaluations (evaluations.jsonl), votes (votes.jsonl)."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.answers.votes import StepVote
from restrain_openrlhf.data.jsonl import FollowedFile, dump, last_line
from restrain_openrlhf.data.outputs import replacing
from restrain_openrlhf.errors import RunError

HELD_OUT_FILE, VOTES_FILE = "evaluations.jsonl", "votes.jsonl"
PASS_AT_1 = "_pass1"
# Means over all response tokens that a step trained on; hook/policy/actor.py makes them, and
# docs/operations/running.md says what each is.
KL = "restrain/kl"
ENTROPY = "restrain/policy_entropy"
LOSS = "restrain/policy_loss"
CLIP_RATIO = "restrain/clip_ratio"
TRAINED_TOKENS = "restrain/trained_tokens"
GENERATED_PER_SECOND = "restrain/generated_tokens_per_second"
TRAINED_PER_SECOND = "restrain/trained_tokens_per_second"
GRADIENT_NORM = "actor_grad_norm"
# How far vLLM's log-probabilities are from the policy's, as a share of their mean size.
GAP = "restrain/logprob_gap_relative"
# The share of the policy's update that vLLM has.
UPDATE_ARRIVED = "restrain/update_arrived"
# Seconds of a whole step, without evaluations and checkpoints.
STEP_SECONDS = "timing/step_total"
# How many of a step's numbers are not finite: 0 in a healthy run.
NOT_FINITE = "restrain/not_finite_numbers"
# If the policy is broken, one of these is not a finite number.
VITAL = (KL, ENTROPY, LOSS, GRADIENT_NORM)
# The two-sided 95 % quantile of the normal distribution.
Z = 1.959964


@dataclass(frozen=True)
class StepRow:
    """One training step: the numbers of the host and the hook by their logged names, and the fields of StepVotes.

    A number that was not finite is NaN, and one that was not computed is absent.
    """

    step: int
    numbers: Mapping[str, float]
    votes: Mapping[str, Any]

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of VITAL whose numbers were not finite."""
        return tuple(name for name in VITAL if math.isnan(self.numbers.get(name, 0.0)))


def read_steps(path: Path) -> list[StepRow]:
    """All whole rows, in order; a last line that is still being written is left out."""
    return list(each_step(path))


def each_step(path: Path) -> Iterator[StepRow]:
    """The rows of `read_steps` one at a time, for runs that are too long for memory."""
    return map(step_row, FollowedFile(path).new_rows())


def step_row(written: Mapping[str, Any]) -> StepRow:
    row = _numbers(written)
    return StepRow(step=row.pop("step"), votes=row.pop("votes"), numbers=row)


@dataclass(frozen=True)
class HeldOutAccuracy:
    """pass@1 in [0, 1] after `step` training steps, as the mean over the evaluation sets.

    `problems` is their number; None where several sets are averaged, or the host does not log it.
    """

    step: int
    pass_at_1: float
    problems: int | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % bounds (Wilson), as if all responses to one problem were equally right: so they are too wide."""
        return wilson_interval(self.pass_at_1 * self.problems, self.problems) if self.problems else None


def read_held_out(run_dir: Path) -> list[HeldOutAccuracy]:
    """All whole rows in the order of steps; empty if nothing was evaluated."""
    return [
        HeldOutAccuracy(int(row["step"]), _mean_pass(row), _problems(row))
        for row in map(_numbers, FollowedFile(run_dir / HELD_OUT_FILE).new_rows())
    ]


def _mean_pass(row: dict[str, float]) -> float:
    """The mean of the host's metrics eval_<datasource>_pass1 (trainer/ppo_trainer.py, compute_eval_metrics)."""
    values = [value for name, value in row.items() if name.endswith(PASS_AT_1)]
    return sum(values) / len(values)


def _problems(row: dict[str, float]) -> int | None:
    """The problems of the only evaluation set, to each of which the host draws k responses: eval_<set>_pass<k>."""
    drawn = [int(match[1]) for name in row if (match := re.search(r"_pass(\d+)$", name))]
    one_set = sum(name.endswith(PASS_AT_1) for name in row) == 1
    return int(row["eval_num_samples"]) // max(drawn) if one_set and "eval_num_samples" in row else None


def wilson_interval(right: float, of: float) -> tuple[float, float]:
    """95 % bounds of a share (Wilson, 1927). They also hold for few draws, where the usual formula fails."""
    share = right / of
    middle = (share + Z**2 / (2 * of)) / (1 + Z**2 / of)
    half = Z / (1 + Z**2 / of) * math.sqrt(max(0.0, share * (1 - share)) / of + Z**2 / (4 * of**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row. Numbers that are not finite were written as null (hook/run_log.py)."""
    return {name: math.nan if value is None else value for name, value in row.items()}


def read_votes(run_dir: Path, step: int) -> defaultdict[str, tuple[StepVote, ...]]:
    """Each prompt's votes in all steps up to `step`, after which a run goes on. Raises RunError without that step."""
    past, last = defaultdict[str, tuple[StepVote, ...]](tuple), 0
    for row in FollowedFile(run_dir / VOTES_FILE).new_rows():
        if row["step"] <= step:
            last = row["step"]
            for vote in row["votes"]:
                past[vote["prompt"]] += (StepVote(**vote),)
    if last != step:
        raise RunError(
            f"{run_dir / VOTES_FILE}: has no step {step}, after which the run goes on, and its method reads the votes "
            "of all earlier steps. Put the whole file back, or begin the run again in another folder."
        )
    return past


def append_row(path: Path, step: int, row: Mapping[str, Any]) -> None:
    """Append the row of a step. Rows of this and later steps, left by a run that was killed, are dropped first.

    Raises RunError if the file cannot be written, as on a full disk.
    """
    try:
        if not _ends_before(path, step):
            kept = (line for line in FollowedFile(path).new_lines() if json.loads(line)["step"] < step)
            with replacing(path) as file:
                file.writelines(kept)
        with path.open("a", encoding="utf-8") as file:
            file.write(dump({"step": step, **row}))
    except OSError as error:
        raise RunError(
            f"{path}: the row of step {step} could not be written ({error.strerror}). Free some space, or see to it "
            "that this user may write there, and start the same command again: the run continues from its last "
            "checkpoint."
        ) from error


def _ends_before(path: Path, step: int) -> bool:
    """Whether the last line, and so every line, is whole and of an earlier step."""
    last = last_line(path) if path.exists() else b""
    return not last or (last.endswith(b"\n") and json.loads(last)["step"] < step)
