"""Which prompts are trained on, in which order, with what labels and seeds: the host's data sets, changed in place."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from weakref import WeakKeyDictionary

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.checks import selected

COLUMNS = ("prompts", "labels", "images", "datasources")
INPUT_KEY_POSITION, LABEL_KEY_POSITION = 2, 3


@dataclass(frozen=True)
class Visit:
    """One visit of training to a prompt: the `place`-th since the run began, and the seed of its group."""

    place: int
    seed: int


@dataclass
class Progress:
    """Training steps (rollout batches) and prompts drawn since the run began, however often it was started."""

    steps: int = 0
    prompts: int = 0

    def next_visit(self, train_seed: int) -> Visit:
        """Of the prompt that is dispatched now: another at every visit to the same prompt."""
        place, self.prompts = self.prompts, self.prompts + 1
        return Visit(place, _seed("prompt", train_seed, place))


# By the host's sample generator. Filled anew where it goes on from a checkpoint (hook/logging/trainer.py).
PROGRESS: WeakKeyDictionary[object, Progress] = WeakKeyDictionary()


@dataclass(frozen=True)
class TrainingRow:
    """Says that a prompt's rollouts are trained on. `gold` is None unless the method reads gold.

    `row` is what the kind of answer reads of the prompt; None where nothing but its text is known.
    """

    gold: str | None = None
    visit: Visit | None = None
    row: Row | None = None


@dataclass(frozen=True)
class LabelWithRow:
    """A row's label as the host has it, with what the kind of answer reads of the row."""

    label: Any
    row: Row | None = None

    @classmethod
    def of(cls, label: Any) -> Self:
        """A label that may be one already."""
        return label if isinstance(label, cls) else cls(label)

    @property
    def gold(self) -> str | None:
        """The label as text; None where there is none."""
        return None if self.label in ("", None) else str(self.label)


def mark_training(dataset: Any, reads_gold: bool, kind: AnswerKind = MATHEMATICS) -> None:
    """Put a TrainingRow in place of every label of the host's PromptDataset (datasets/prompts_dataset.py).

    A label-free method's gold ends here: no process that draws or scores rollouts ever has it.
    """
    labels = map(LabelWithRow.of, dataset.labels)
    if reads_gold:
        dataset.labels = [TrainingRow(each.gold, row=each.row) for each in labels]
    else:
        dataset.labels = [TrainingRow(row=_without_gold(each.row, kind)) for each in labels]


def _without_gold(row: Row | None, kind: AnswerKind) -> Row | None:
    gold = kind.graded_columns()
    return None if row is None else {name: value for name, value in row.items() if name not in gold}


def refuse_unlabelled(dataset: Any) -> None:
    """Raises DataError where a problem of the evaluation set has no answer: it cannot be graded."""
    labels = map(LabelWithRow.of, dataset.labels)
    without = [prompt for prompt, label in zip(dataset.prompts, labels, strict=True) if label.gold is None]
    if without:
        raise DataError(
            f"{len(without)} of {len(dataset.prompts)} problems of eval.dataset have no gold answer, for example "
            f"{without[0][:60]!r}. Name the column of the answers in data.label_key, or leave eval.dataset out."
        )


def with_visits(labels: Sequence[Any], progress: Progress, train_seed: int) -> list[Any]:
    """The labels of one dispatch; training rows get the next visits of the run, counted in `progress`."""
    return [
        replace(label, visit=progress.next_visit(train_seed)) if isinstance(label, TrainingRow) else label
        for label in labels
    ]


def setup_dataloader(wrapped: Callable[..., Any], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Seed torch in the process that shuffles the prompts, leave out those that the method does, fill the last batch.

    The host seeds its model processes only (utils/deepspeed/deepspeed.py, setup_distributed), so that the order differs
    from start to start; this can go when its dataloader takes a seeded generator. The training set is the one that is
    shuffled (trainer/ppo_trainer.py, prepare_datasets).
    """
    import torch  # noqa: PLC0415 - `restrain gpu-check` reads the seeds where there is no torch

    torch.manual_seed(strategy.seed)
    dataset, shuffled = args[0], args[3] if len(args) > 3 else kwargs.get("shuffle", True)  # noqa: PLR2004
    if all(hasattr(dataset, column) for column in COLUMNS):
        if shuffled:
            prepare_training(dataset, strategy, config_here())
        else:
            refuse_unlabelled(dataset)
    return wrapped(*args, **kwargs)


def prepare_training(dataset: Any, strategy: Any, config: HookConfig) -> None:
    """The host's PromptDataset (datasets/prompts_dataset.py) of the prompts to train on, changed in place."""
    keep_selected(dataset, config)
    fill_last_batch(dataset, strategy.args.rollout.batch_size, strategy.seed)
    mark_training(dataset, build(config.method).reads_gold, config.answers)


def keep_selected(dataset: Any, config: HookConfig) -> None:
    """Leave out the prompts that the method does not train on: the schedule is made from the data set's length."""
    selection = build(config.method).selection
    if selection is not None and config.reference is not None:
        _take(dataset, selected(selection, load_reference(config.reference), dataset.prompts))


def fill_last_batch(dataset: Any, batch: int, seed: int) -> None:
    """Repeat a few prompts, drawn by the seed, so that an episode is a whole number of rollout batches.

    Of a smaller batch the host drops rollouts that fill no micro-batch, and takes no optimizer step; its gradient joins
    the next step, and every later step ends in the middle of a batch (trainer/ray/ppo_actor.py, ppo_train, and
    utils/loss_utils.py, iter_grad_accum_global_norm). This can go when the host steps at the end of a batch.
    """
    count = len(dataset.prompts)
    order = random.Random(seed).sample(range(count), count)
    missing = -count % batch
    _take(dataset, [*range(count), *(order[place % count] for place in range(missing))])


def _take(dataset: Any, positions: Sequence[int]) -> None:
    for column in COLUMNS:
        setattr(dataset, column, [getattr(dataset, column)[position] for position in positions])


def preprocess_data(
    wrapped: Callable[..., Any], _instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A row without the label column has the empty label; a label brings what the kind of answer reads of the row.

    The host (datasets/prompts_dataset.py) reads one column name in the training and in the evaluation set, so that
    evaluating during label-free training would ask for answers in the training file. A method that reads gold refuses
    the empty label.
    """
    row = args[0] if args else kwargs.pop("data")
    label_key = args[LABEL_KEY_POSITION] if len(args) > LABEL_KEY_POSITION else kwargs.get("label_key")
    if label_key and label_key not in row:
        row = {**row, label_key: ""}
    prompt, label = wrapped(row, *args[1:], **kwargs)
    kind = config_here().answers
    if not kind.row_columns() | kind.graded_columns():
        return prompt, label
    input_key = args[INPUT_KEY_POSITION] if len(args) > INPUT_KEY_POSITION else kwargs.get("input_key", "input")
    own = kind.graded_row(str(row[input_key]), row)
    kind.check_row(own)
    return prompt, LabelWithRow(label, own)


def rollout_seed(group_seed: int, place: int) -> int:
    """For the rollout at `place` in its group; rollouts of equal seeds would be equal."""
    return _seed("rollout", group_seed, place)


def shuffle_seed(train_seed: int, optimizer_steps: int) -> int:
    """For what a policy process draws in the training step that begins after so many optimizer steps."""
    return _seed("shuffle", train_seed, optimizer_steps)


def _seed(use: str, *numbers: int) -> int:
    """63 bits: torch and vLLM take a seed as a signed 64-bit number."""
    digest = hashlib.sha256(":".join([use, *map(str, numbers)]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
