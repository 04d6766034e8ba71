"""Changes the host's data sets in place: which prompts are trained on, in which order, with which labels and seeds."""

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.answers.votes import StepVote
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.prompt_reader import column_of, has_column, text_of
from restrain_openrlhf.data.tables import Cells, is_table, placed_rows
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.install.environment import config_here
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import selected
from restrain_openrlhf.reference.prompts import PromptSource, asked_in

COLUMNS = ("prompts", "labels", "images", "datasources")
# The parameters of the host's preprocess_data.
PARAMETERS = ("data", "input_template", "input_key", "label_key", "apply_chat_template")


@dataclass(frozen=True)
class Visit:
    """One visit of training to a prompt: the `place`-th since the run began, and the seed of its group."""

    place: int
    seed: int


@dataclass
class Progress:
    """Training steps (rollout batches) and prompts drawn since the run began, however often it was started.

    `past` has the votes so far of each prompt, by its `text_hash`, if the method reads them.
    """

    steps: int = 0
    prompts: int = 0
    past: defaultdict[str, tuple[StepVote, ...]] = field(default_factory=lambda: defaultdict(tuple))

    def next_visit(self, train_seed: int) -> Visit:
        """The visit to the prompt that is dispatched now. Every visit to the same prompt has another seed."""
        place, self.prompts = self.prompts, self.prompts + 1
        return Visit(place, seed_of("prompt", train_seed, place))


# The progress of each of the host's sample generators. A run that resumes sets it (hook/run_log.py).
PROGRESS: WeakKeyDictionary[object, Progress] = WeakKeyDictionary()


@dataclass(frozen=True)
class TrainingRow:
    """The label of a prompt whose rollouts are trained on. `gold` is None unless the method reads gold.

    `row` is what the kind of answer reads of the prompt's row, and None if only the prompt's text is known. `past` has
    the prompt's votes in earlier steps, if the method reads them.
    """

    gold: str | None = None
    visit: Visit | None = None
    row: Row | None = None
    past: tuple[StepVote, ...] = ()


@dataclass(frozen=True)
class LabelWithRow:
    """The host's label of a row, with what the kind of answer reads of the row."""

    label: Any
    row: Row | None = None

    @classmethod
    def of(cls, label: Any) -> Self:
        """The label as a LabelWithRow, which it may be already."""
        return label if isinstance(label, cls) else cls(label)

    @property
    def gold(self) -> str | None:
        """The label as text; None if it is empty."""
        return str(self.label) if self.label is not None and str(self.label).strip() else None


def mark_training(dataset: Any, reads_gold: bool, kind: AnswerKind = MATHEMATICS) -> None:
    """Replace every label of the host's PromptDataset (datasets/prompts_dataset.py) by a TrainingRow.

    Unless the method reads gold, the gold answers end here: no process that draws or scores rollouts ever has them.
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
    """Raises DataError if a problem of the evaluation set has no answer, so that it cannot be graded."""
    labels = map(LabelWithRow.of, dataset.labels)
    without = [prompt for prompt, label in zip(dataset.prompts, labels, strict=True) if label.gold is None]
    if without:
        raise DataError(
            f"{len(without)} of {len(dataset.prompts)} problems of eval.dataset have no gold answer, for example "
            f"{without[0][:60]!r}. Name the column of the answers in data.label_key, or leave eval.dataset out."
        )


def with_past(prompts: Sequence[str], labels: Sequence[Any], progress: Progress) -> list[Any]:
    """The labels of one dispatch, in which training rows get the votes so far of their prompts."""
    pairs = zip(labels, (progress.past[text_hash(prompt)] for prompt in prompts), strict=True)
    return [replace(label, past=past) if isinstance(label, TrainingRow) else label for label, past in pairs]


def setup_dataloader(wrapped: Callable[..., Any], strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Seed torch in the process that shuffles the prompts, and prepare the training set or check the evaluation set.

    The host only seeds its model processes (utils/deepspeed/deepspeed.py, setup_distributed), so the order of prompts
    differs from start to start; this can go when its dataloader takes a seeded generator. The set that is shuffled is
    the training set (trainer/ppo_trainer.py, prepare_datasets).
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
    """Select, repeat and mark prompts of the host's PromptDataset (datasets/prompts_dataset.py), in place."""
    keep_selected(dataset, config)
    repeat_labelled(dataset, build(config.method).labelled_share)
    fill_last_batch(dataset, strategy.args.rollout.batch_size, strategy.seed)
    mark_training(dataset, build(config.method).reads_gold, config.answers)


def keep_selected(dataset: Any, config: HookConfig) -> None:
    """Leave out the prompts that the method does not train on, before the host plans its schedule from the length."""
    selection = build(config.method).selection
    if selection is not None and config.reference is not None:
        _take(dataset, selected(selection, load_reference(config.reference), dataset.prompts))


def repeat_labelled(dataset: Any, share: float | None) -> None:
    """Repeat the prompts that have a gold answer until they are this share of an episode; with None, do nothing."""
    if share is None:
        return
    labelled = [place for place, label in enumerate(dataset.labels) if LabelWithRow.of(label).gold is not None]
    count = len(dataset.labels)
    _take(dataset, [*range(count), *labelled * (copies_of_labelled(len(labelled), count, share) - 1)])


def copies_of_labelled(labelled: int, count: int, share: float) -> int:
    """How often each of the `labelled` among `count` prompts is in an episode, to be nearest to this share of it."""
    return max(1, round(share * (count - labelled) / ((1 - share) * labelled))) if labelled else 1


def fill_last_batch(dataset: Any, batch: int, seed: int) -> None:
    """Repeat some prompts, drawn with the seed, so that an episode is a whole number of rollout batches.

    From a smaller batch the host drops the rollouts that do not fill a micro-batch, and takes no optimizer step. The
    gradient joins the next step, and every later step ends in the middle of a batch (trainer/ray/ppo_actor.py,
    ppo_train, and utils/loss_utils.py, iter_grad_accum_global_norm). This can go when the host steps at the end of a
    batch.
    """
    count = len(dataset.prompts)
    order = random.Random(seed).sample(range(count), count)
    missing = -count % batch
    _take(dataset, [*range(count), *(order[place % count] for place in range(missing))])


def _take(dataset: Any, positions: Sequence[int]) -> None:
    for column in COLUMNS:
        setattr(dataset, column, [getattr(dataset, column)[position] for position in positions])


@dataclass(frozen=True)
class TableRows:
    """The first `count` rows of a table, read whenever the host goes through them (datasets/prompts_dataset.py)."""

    path: Path
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Cells]:
        return (row for _, row in islice(placed_rows(self.path), self.count))

    def select(self, places: range) -> Self:
        """As of the host's own data sets; the host takes the first rows (trainer/ppo_trainer.py, prepare_datasets)."""
        return replace(self, count=len(places))


def blending_datasets(
    wrapped: Callable[..., Any], _instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The rows of a table as all commands read them; other data sets by the host.

    The host's reader (datasets/utils.py) knows fewer formats, and guesses types: of a cell 007 it makes the number 7.
    """
    path = Path(args[0] if args else kwargs["datasets"])
    if not (path.is_file() and is_table(path)):
        return wrapped(*args, **kwargs)
    return TableRows(path, sum(1 for _ in placed_rows(path)))


def preprocess_data(
    wrapped: Callable[..., Any], _instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Give the host the row's prompt, its label (an empty one if it has none), and what the kind of answer reads of it.

    The host (datasets/prompts_dataset.py) has one label column for the training and the evaluation set, so label-free
    training with an evaluation would need answers in the training file. A method that reads gold refuses empty labels.
    """
    given = {**dict(zip(PARAMETERS, args, strict=False)), **kwargs}
    row, input_key, label_key = given["data"], given.get("input_key", "input"), given.get("label_key")
    source = PromptSource("the data set", input_key, apply_chat_template=bool(given.get("apply_chat_template")))
    asked = asked_in(source, "a row", row, source.reader())
    label = {label_key: column_of(row, label_key) if has_column(row, label_key) else ""} if label_key else {}
    read = {**row, **label, input_key: asked}
    prompt, label = wrapped(read, *args[1:], **{**kwargs, "data": read} if not args else kwargs)
    kind = config_here().answers
    if not kind.row_columns() | kind.graded_columns():
        return prompt, label
    own = kind.graded_row(text_of(asked), row)
    kind.check_row(own)
    return prompt, LabelWithRow(label, own)


def seed_of(use: Literal["prompt", "rollout", "shuffle"], seed: int, place: int) -> int:
    """The seed of the prompt, of the rollout in its group, or of the training step at this place below a `seed`.

    It has 63 bits, because torch and vLLM read a seed as a signed 64-bit number. Rollouts with equal seeds would be
    equal.
    """
    digest = hashlib.sha256(f"{use}:{seed}:{place}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
