"""What a training prompt has where other prompts have a label: OpenRLHF hands it on to its rollout actors as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.progress import Progress
from restrain_openrlhf.hook.seeds import Visit, visit


@dataclass(frozen=True)
class TrainingRow:
    """Says that a prompt's rollouts are trained on. `gold` is None unless the method reads gold."""

    gold: str | None = None
    visit: Visit | None = None


def mark_training(dataset: Any, reads_gold: bool) -> None:
    """Put a TrainingRow in place of every label of the host's PromptDataset (datasets/prompts_dataset.py).

    A label-free method's gold ends here: no process that draws or scores rollouts ever has it.
    """
    golds = [str(label) if reads_gold and label not in ("", None) else None for label in dataset.labels]
    dataset.labels = [TrainingRow(gold) for gold in golds]


def refuse_unlabelled(dataset: Any) -> None:
    """Raises DataError where a problem of the evaluation set has no answer: it cannot be graded."""
    without = [prompt for prompt, label in zip(dataset.prompts, dataset.labels, strict=True) if label in ("", None)]
    if without:
        raise DataError(
            f"{len(without)} of {len(dataset.prompts)} problems of eval.dataset have no gold answer, for example "
            f"{without[0][:60]!r}. Name their column in data.label_key, or leave eval.dataset out."
        )


def with_visits(labels: Sequence[Any], progress: Progress, train_seed: int) -> list[Any]:
    """The labels of one dispatch; training rows get the next visits of the run, counted in `progress`."""
    return [_with_visit(label, progress, train_seed) if isinstance(label, TrainingRow) else label for label in labels]


def _with_visit(row: TrainingRow, progress: Progress, train_seed: int) -> TrainingRow:
    visited = replace(row, visit=visit(train_seed, progress.prompts))
    progress.prompts += 1
    return visited
