"""Keeps some groups of each step beside the run's metrics: which groups, in what form, and within what size."""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from restrain_openrlhf.config.yaml_file import MIB, KeepRollouts
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup
from restrain_openrlhf.method import GroupScore
from restrain_openrlhf.records.kept import KeptGroup, KeptRollout, as_parquet, drop_from, kept_files, write_step
from restrain_openrlhf.scoring.wire import GroupRequest

KEPT_GROUPS, KEPT_MIB = "restrain/kept_groups", "restrain/kept_mib"
Gaps = Sequence[float | None]


@dataclass
class Keeping:
    """The state of keeping rollouts in a trainer process: the bytes used, and why it stopped.

    If a run of `steps` (None: not known) would need more than the bound, steps are left out evenly, so that the kept
    ones cover the whole run. `used` is None before the process's first step, and `largest` is the size of the largest
    step's file so far, in bytes. Training never stops because rollouts cannot be kept, and a process that is started
    again tries again.
    """

    run: Path
    rollouts: KeepRollouts
    seed: int
    steps: int | None = None
    used: int | None = None
    largest: int = 0
    stopped: str | None = None

    def keep(self, step: int, groups: Sequence[ScoredGroup], gaps: Gaps) -> dict[str, float]:
        """Write the step's file, and return metrics about it.

        `gaps` has a number for each trained rollout of all groups.
        """
        try:
            if self.used is None:
                # Files of this step and later ones were left by a run that was killed.
                drop_from(self.run, step)
                sizes = [path.stat().st_size for path in kept_files(self.run).values()]
                self.used, self.largest = sum(sizes), max(sizes, default=0)
            count = self.rollouts.count(len(groups)) if self._is_due(step) else 0
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

    def _is_due(self, step: int) -> bool:
        """Whether the step's part of the bound is not spent.

        The size of this step's own groups is not considered, because then steps with short responses would be kept more
        often.
        """
        if self.stopped or self.steps is None:
            return not self.stopped
        return (self.used or 0) + self.largest <= self.rollouts.most_bytes * step / self.steps

    def _write(self, step: int, groups: Sequence[KeptGroup]) -> int:
        if not groups:
            return 0
        content = as_parquet(groups)
        used = (self.used or 0) + len(content)
        if used > self.rollouts.most_bytes:
            self._stop(step, f"they would take more than rollouts.at_most_mib = {self.rollouts.at_most_mib}")
            return 0
        write_step(self.run, step, content)
        self.used, self.largest = used, max(self.largest, len(content))
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
