"""In the host's trainers: where a run begins or resumes, and what is written after each step and evaluation."""

import logging
import math
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ray.util.metrics import Gauge

from restrain_openrlhf.config.yaml_file import MIB, HookConfig, KeepRollouts
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.hook.fixes.lora import make_policy_the_reference
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.hook.policy.experience import GAP_OF_STEP, LAST_STEP
from restrain_openrlhf.hook.rollout.group_columns import GENERATED, ScoredGroup, votes_of_prompts
from restrain_openrlhf.hook.rollout.training_data import PROGRESS, Progress
from restrain_openrlhf.method import GroupScore, build
from restrain_openrlhf.records.kept import KeptGroup, KeptRollout, as_parquet, drop_from, kept_files, write_step
from restrain_openrlhf.records.metrics import (
    GENERATED_PER_SECOND,
    HELD_OUT_FILE,
    NOT_FINITE,
    TRAINED_PER_SECOND,
    TRAINED_TOKENS,
    VOTES_FILE,
    append_row,
    read_held_out,
    read_votes,
)
from restrain_openrlhf.scoring.vote_statistics import StepVotes
from restrain_openrlhf.scoring.wire import GroupRequest

# A key of a data loader's state (torchdata/stateful_dataloader/stateful_dataloader.py).
LOADER_ENDED = "_iterator_finished"
RUN = "run"
KEPT_GROUPS, KEPT_MIB = "restrain/kept_groups", "restrain/kept_mib"
Gaps = Sequence[float | None]
# The host's metrics of time, in seconds (trainer/ppo_trainer.py and ppo_trainer_async.py).
GENERATION, TRAINING = "timing/generation", "timing/ppo_train"
SPEEDS = {GENERATED_PER_SECOND: (GENERATED, GENERATION), TRAINED_PER_SECOND: (TRAINED_TOKENS, TRAINING)}


def init_checkpoint_states(trainer: Any) -> dict[str, Any]:
    """Replaces BasePPOTrainer.init_checkpoint_states, which tells both trainers where a run begins or resumes.

    The host counts an episode with a smaller last batch as unfinished, and its data loader (torchdata's
    StatefulDataLoader) begins again after its end, so the episode would be repeated. This can go when the host's
    checkpoint names the next episode.
    """
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: PLC0415 - its import is what loads this module

    states: dict[str, Any] = BasePPOTrainer.init_checkpoint_states(trainer)
    if states["data_loader_state_dict"].get(LOADER_ENDED, False):
        states = {**states, "episode": states["episode"] + 1}
    log_by_us(trainer)
    make_policy_the_reference(trainer.experience_maker)
    # With the asynchronous trainer, another process draws rollouts and evaluations.
    if hasattr(trainer, "samples_generator"):
        progress = Progress(states["global_step"], states["total_consumed_prompts"])
        if run := run_with_votes():
            progress.past = read_votes(run, states["global_step"])
        PROGRESS[trainer.samples_generator] = progress
        evaluate_left_out(trainer, states["global_step"])
    return states


def evaluate_left_out(trainer: Any, step: int) -> None:
    """Evaluate the base model, or the checkpoint that the run resumes from, if that is due and has not been done.

    The host writes a checkpoint before it evaluates (trainer/ppo_trainer.py, PPOTrainer.fit). A run that is killed
    between the two would never evaluate that step.
    """
    config, asked = config_here(), trainer.args.eval
    is_due = config.evaluate_first if step == 0 else config.metrics is not None and step % asked.steps == 0
    kept = read_held_out(config.metrics.parent) if config.metrics is not None else ()
    if not trainer.eval_dataloader or not is_due or any(evaluation.step == step for evaluation in kept):
        return
    if step:
        trainer.broadcast_to_vllm()
    sampling = {"temperature": asked.temperature, "n_samples_per_prompt": asked.n_samples_per_prompt}
    trainer.evaluate(step, **{**trainer.generate_kwargs, **sampling})


def run_with_votes() -> Path | None:
    """The run's folder if its method reads votes of earlier steps, which are kept there; else None."""
    config = config_here()
    return config.metrics.parent if config.metrics and build(config.method).reads_history else None


def log_by_us(trainer: Any) -> None:
    """Make the host hand the numbers of every step and evaluation to a RunLog, which passes them on to its trackers."""
    if not isinstance(trainer.wandb_logger, RunLog):
        trainer.wandb_logger = RunLog(trainer)
        trainer.tensorboard_logger = None
        trainer.args.logger.logging_steps = 1


class RunLog:
    """Takes the place of a trainer's trackers (utils/logging_utils.py), and gets the numbers of steps and evaluations.

    The host logs a step before it writes the step's checkpoint (BasePPOTrainer.save_logs_and_checkpoints), so every
    step that a resumed run does not repeat has its row.
    """

    def __init__(self, trainer: Any) -> None:
        trackers = (trainer.wandb_logger, trainer.tensorboard_logger)
        self._trackers = [tracker for tracker in trackers if tracker]
        self._every = trainer.args.logger.logging_steps
        self._maker, self._generator = trainer.experience_maker, getattr(trainer, "samples_generator", None)
        config = config_here()
        self._keeping: Keeping | None = None
        if config.metrics is not None:
            self._keeping = Keeping(config.metrics.parent, config.rollouts, trainer.args.train.seed)

    def log_train(self, global_step: int, logs_dict: dict[str, Any]) -> None:
        """Complete the numbers of a step, and write them to the metrics file, to Ray and to the host's trackers."""
        config, record = config_here(), LAST_STEP[self._maker]
        if found := logs_dict.pop(GAP_OF_STEP, None):
            record = LAST_STEP[self._maker] = record.measured(found)
        logs_dict |= record.scalars()
        logs_dict |= tokens_per_second(logs_dict)
        logs_dict |= not_finite(logs_dict)
        if config.metrics is not None and self._keeping is not None:
            scored = record.scored if config.keeps_rollouts else []
            logs_dict |= self._keeping.keep(global_step, scored, record.rollout_gaps)
            append_step(config.metrics, global_step, logs_dict, record.votes)
        if run := run_with_votes():
            votes = votes_of_prompts(record.scored)
            append_row(run / VOTES_FILE, global_step, {"votes": [asdict(vote) for vote in votes]})
            for vote in votes:
                PROGRESS[self._generator].past[vote.prompt] += (vote,)
        publish(config.metrics.parent.name if config.metrics else "", global_step, numbers(logs_dict))
        if global_step % self._every == 0:
            for tracker in self._trackers:
                tracker.log_train(global_step, logs_dict)

    def log_eval(self, global_step: int, logs_dict: dict[str, Any]) -> None:
        keep_evaluation(config_here(), global_step, logs_dict)
        for tracker in self._trackers:
            tracker.log_eval(global_step, logs_dict)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


def append_step(path: Path, step: int, status: dict[str, Any], votes: StepVotes) -> None:
    """Append a row. Rows of this and later steps, left by a run that was killed, are dropped first."""
    append_row(path, step, {**finite(status), "votes": asdict(votes)})


def keep_evaluation(config: HookConfig, step: int, metrics: dict[str, Any]) -> None:
    """Append the numbers of an evaluation, if the run writes metrics at all."""
    if config.metrics is not None and metrics:
        append_row(config.metrics.with_name(HELD_OUT_FILE), step, finite(metrics))


def finite(status: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers among the values, with None for those that are not finite, which JSON cannot hold.

    Readers take None for NaN (records/metrics.py). A number that was not computed is absent.
    """
    return {name: value if math.isfinite(value) else None for name, value in numbers(status).items()}


def numbers(status: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in status.items() if isinstance(value, int | float)}


def not_finite(status: Mapping[str, Any]) -> dict[str, float]:
    """The count of numbers that are not finite, as one more metric, on which every monitoring can set an alarm."""
    return {NOT_FINITE: float(sum(not math.isfinite(value) for value in numbers(status).values()))}


def tokens_per_second(numbers: Mapping[str, float]) -> dict[str, float]:
    """Response tokens generated and trained on per second; a speed is left out where the step has no time for it."""
    return {
        name: numbers[tokens] / numbers[seconds]
        for name, (tokens, seconds) in SPEEDS.items()
        if tokens in numbers and numbers.get(seconds)
    }


def publish(run: str, step: int, numbers: Mapping[str, float], at: float | None = None) -> dict[str, float]:
    """Set one gauge per number. Returns the values by gauge name, which Ray exports with the prefix `ray_`.

    A number that is not finite is set to NaN, so that the last finite value does not stay.
    `restrain/majority_share_mean` becomes restrain_majority_share_mean, and a number of the host's such as `kl` becomes
    restrain_host_kl. `at` is the step's time in seconds since the epoch; None means now.
    """
    values = {gauge_name(name): value if math.isfinite(value) else math.nan for name, value in numbers.items()}
    values |= {"restrain_step": float(step), "restrain_last_step_timestamp_seconds": time.time() if at is None else at}
    for name, value in values.items():
        _gauge(name).set(float(value), {RUN: run})
    return values


def gauge_name(name: str) -> str:
    """A metric's name under Prometheus' rules, with `host` in it unless the metric is ours."""
    ours = name.startswith("restrain/")
    text = name.removeprefix("restrain/")
    return ("restrain_" if ours else "restrain_host_") + re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_").lower()


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, description="Of the last training step; see docs/operations/kubernetes.md.", tag_keys=(RUN,))


@dataclass
class Keeping:
    """The state of keeping rollouts in a trainer process: the bytes used, and why it stopped.

    `used` is None before the process's first step. Training never stops because rollouts cannot be kept, and a process
    that is started again tries again.
    """

    run: Path
    rollouts: KeepRollouts
    seed: int
    used: int | None = None
    stopped: str | None = None

    def keep(self, step: int, groups: Sequence[ScoredGroup], gaps: Gaps) -> dict[str, float]:
        """Write the step's file, and return metrics about it.

        `gaps` has a number for each trained rollout of all groups.
        """
        try:
            if self.used is None:
                # Files of this step and later ones were left by a run that was killed.
                drop_from(self.run, step)
                self.used = sum(path.stat().st_size for path in kept_files(self.run).values())
            count = 0 if self.stopped else self.rollouts.count(len(groups))
            places = chosen(count, len(groups), self.seed, step)
            size = len(gaps) // max(len(groups), 1)
            kept = [
                kept_group(
                    step, place, groups[place].request, groups[place].score, gaps[place * size : (place + 1) * size]
                )
                for place in places
            ]
            written = self._write(step, kept)
        except OSError as error:
            self._stop(step, f"{self.run}: writing failed ({error})")
            written = 0
        return {KEPT_GROUPS: float(written), KEPT_MIB: (self.used or 0) / MIB} if groups else {}

    def _write(self, step: int, groups: Sequence[KeptGroup]) -> int:
        if not groups:
            return 0
        content = as_parquet(groups)
        used = (self.used or 0) + len(content)
        if used > self.rollouts.most_bytes:
            self._stop(step, f"they would take more than rollouts.at_most_mib = {self.rollouts.at_most_mib}")
            return 0
        write_step(self.run, step, content)
        self.used = used
        return len(groups)

    def _stop(self, step: int, why: str) -> None:
        self.stopped = why
        logging.getLogger(__name__).warning(
            "From step %d on no rollouts are kept: %s. Training continues, and rollouts kept so far stay. To keep "
            "more, free some space or raise rollouts.at_most_mib when you start the run again.",
            step,
            why,
        )


def chosen(count: int, groups: int, seed: int, step: int) -> list[int]:
    """`count` places of the step's groups, drawn uniformly, in order; the same for the same seed and step."""
    return sorted(random.Random(f"kept:{seed}:{step}").sample(range(groups), count))


def kept_group(step: int, place: int, request: GroupRequest, score: GroupScore, gaps: Gaps = ()) -> KeptGroup:
    """A scored group in the form in which it is kept; `gaps` are those of its trained rollouts."""
    rollouts = zip_longest(range(score.votes.n), gaps)
    return KeptGroup(
        step=step,
        group=place,
        prompt_id=text_hash(request.prompt),
        prompt=request.prompt,
        majority_count=score.votes.majority_count,
        voters=score.votes.n,
        prompt_weight=score.prompt_weight,
        penalized=score.penalized,
        rollouts=tuple(_kept_rollout(request, score, index, gap) for index, gap in rollouts),
    )


def _kept_rollout(request: GroupRequest, score: GroupScore, place: int, gap: float | None) -> KeptRollout:
    label, response = score.votes.classes[place], request.responses[place]
    trained = place < score.rewards.size
    return KeptRollout(
        rollout=place,
        response=response.text,
        finished=response.finished,
        answer=score.answers[place],
        label=label,
        class_votes=None if label is None else score.votes.counts[label],
        label_weight=None if label is None else float(score.label_weights[label]),
        trained=trained,
        key=None if label is None else score.keys[label],
        advantage_pos=float(score.pair.positive[place]) if trained else None,
        advantage_neg=float(score.pair.negative[place]) if trained else None,
        log_prob_gap=gap,
        entropy=request.entropies[place] if trained and request.entropies else None,
    )
