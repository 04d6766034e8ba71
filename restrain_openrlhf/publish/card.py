"""The model card: what a reader of the hub needs to know of a run, as Markdown with the hub's front matter."""

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from restrain_openrlhf.method import METHODS, build, parse_settings
from restrain_openrlhf.publish.base_model import BaseModel
from restrain_openrlhf.publish.data_set import DataSet
from restrain_openrlhf.publish.evaluations import Line, Numbers
from restrain_openrlhf.publish.private import cleaned
from restrain_openrlhf.publish.trained_run import TrainedRun
from restrain_openrlhf.run.metrics import read_held_out, read_steps

PIPELINE = "text-generation"
UNKNOWN = "unknown: check the base"
DASH = "–"


@dataclass(frozen=True)
class Picture:
    """A picture of the published folder: `path` is inside it."""

    title: str
    path: str


@dataclass(frozen=True)
class Card:
    """What a card is made from; `repository` is where the model will be, or its folder's name."""

    run: TrainedRun
    base: BaseModel
    data: DataSet
    lines: Sequence[Line]
    pictures: Sequence[Picture]
    repository: str

    def text(self) -> str:
        """The whole README.md."""
        environment = Environment(
            loader=PackageLoader("restrain_openrlhf.publish", "."),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
        )
        return environment.get_template("card.md.j2").render(
            front_matter=self.front_matter(),
            title=self.repository.rpartition("/")[2],
            repository=self.repository,
            version=version("restrain-openrlhf"),
            base=self.base.shown,
            licence=self._licence(),
            data=self.data,
            method=cleaned({name: value for name, value in self.run.method.items() if value is not None}),
            summary=_summary(str(self.run.method["name"])),
            labels="with gold answers" if _reads_gold(self.run) else "without labels",
            prompting=self._prompting(),
            steps=self._steps(),
            stopped=self.run.completion.stopped if self.run.completion else None,
            adapter=self.run.has_adapter,
            adapted=self.run.adapted,
            lines=[_row(line) for line in self.lines],
            beside=any(line.base for line in self.lines),
            held_out=self._held_out(),
            pictures=self.pictures,
            limits=list(self._limits()),
        )

    def front_matter(self) -> str:
        """What the hub reads, between its marks."""
        from huggingface_hub import ModelCardData  # noqa: PLC0415 - costs a second

        known: dict[str, Any] = {
            "base_model": self.base.id,
            "base_model_relation": "finetune" if self.base.id else None,
            "datasets": [self.data.hub_id] if self.data.hub_id else None,
            "license": self.base.licence or "unknown",
            "license_name": self.base.licence_name,
            "license_link": self.base.licence_link,
        }
        data = ModelCardData(
            **{name: value for name, value in known.items() if value},
            library_name="transformers",
            pipeline_tag=PIPELINE,
            tags=["restrain-openrlhf", "openrlhf", "reinforcement-learning", "math", str(self.run.method["name"])],
        )
        return f"---\n{data.to_yaml()}\n---"

    def _licence(self) -> str:
        if self.base.licence is None:
            return UNKNOWN
        name = self.base.licence_name or self.base.licence
        link = self.base.licence_link
        return f"{f'[{name}]({link})' if link else name}, the base model's"

    def _steps(self) -> int:
        if self.run.adapted:
            return self.run.adapted.chosen_step
        return self.run.completion.steps if self.run.completion else 0

    def _prompting(self) -> str:
        template = self.run.flag("data.input_template")
        if self.run.flag("data.apply_chat_template"):
            return "Prompts were rendered with the tokenizer's chat template."
        if template:
            fence = "~~~~"
            return f"Prompts were trained on in this template, {{}} being the problem:\n\n{fence}\n{template}\n{fence}"
        return "Prompts were trained on as they are, without a template."

    def _held_out(self) -> str | None:
        rows = read_held_out(self.run.training.path)
        if not rows:
            return None
        best = max(rows, key=lambda row: row.pass_at_1)
        told = dict.fromkeys((rows[0], best, rows[-1]))
        return ", ".join(
            f"{100 * row.pass_at_1:.1f} at step {row.step}" for row in sorted(told, key=lambda row: row.step)
        )

    def _limits(self) -> Iterator[str]:
        if not _reads_gold(self.run):
            yield (
                "No answer was checked in training: the reward is what the model itself voted for. Where its votes are "
                "wrong together, training makes them surer, not better."
            )
        if self.run.adapted:
            yield (
                f"It was trained on the problems of {self.data.name} themselves (without their answers). Its accuracy "
                "there says nothing of other problems, and does not compare with models that never saw them."
            )
        if not self.lines:
            yield "Its accuracy was not measured, or is not published. Measure it before you rely on it."
        if self.lines and not any(line.base for line in self.lines):
            yield "Without the base model's accuracy beside it, these numbers do not say what training gained."
        for row in read_steps(self.run.training.metrics)[-1:]:
            yield (
                f"In the last step, a group's majority had {row.votes['majority_share_mean']:.0%} of the votes in the "
                f"mean, and {row.votes['missing_share_of_voters']:.0%} of the rollouts had no final answer."
            )
        yield (
            "It was trained on problems with one short final answer. Other uses, languages and safety were not looked "
            "at; what holds for the base model there is all that is known."
        )


def _summary(name: str) -> str:
    """The first paragraph of the method's own description."""
    module = sys.modules[METHODS[name].__module__]
    return " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())


def _reads_gold(run: TrainedRun) -> bool:
    return build(parse_settings({"name": run.method["name"]})).reads_gold


def _row(line: Line) -> list[str]:
    how = " ".join(str(cleaned(line.how)).split()).replace("|", "\\|")
    return [line.benchmark, str(line.problems), *_cells(line.trained), *_cells(line.base), how]


def _cells(numbers: Numbers | None) -> tuple[str, str]:
    if numbers is None:
        return DASH, DASH
    interval = f"[{100 * numbers.low:.1f}, {100 * numbers.high:.1f}]"
    return f"{100 * numbers.pass_at_1:.1f} {interval}", f"{100 * numbers.majority:.1f} (k {numbers.k})"
