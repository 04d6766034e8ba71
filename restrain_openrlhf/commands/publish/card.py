"""The model card: what a reader of the hub needs to know of a run, as Markdown with the hub's front matter."""

import inspect
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from restrain_openrlhf.commands.publish.origin import BaseModel, DataSet
from restrain_openrlhf.commands.publish.private import cleaned
from restrain_openrlhf.commands.publish.trained_run import TrainedRun
from restrain_openrlhf.evaluation.result import Result
from restrain_openrlhf.method import METHODS, build, parse_settings
from restrain_openrlhf.records.metrics import read_held_out

TAGS = ("restrain-openrlhf", "openrlhf", "reinforcement-learning")


def card_text(
    run: TrainedRun,
    base: BaseModel,
    data: DataSet,
    evaluations: Sequence[tuple[Result, Result | None]],
    repository: str,
) -> str:
    """The whole README.md. `evaluations` are of the model and of its base; `repository` may be a folder's name."""
    environment = Environment(
        loader=PackageLoader("restrain_openrlhf.commands.publish", "."),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    name, rows = str(run.method["name"]), read_held_out(run.path)
    best = max(rows, key=lambda row: row.pass_at_1, default=None)
    held_out = [row for row in rows if row in (rows[0], best, rows[-1])]
    return environment.get_template("card.md.j2").render(
        run=run,
        base=base,
        data=data,
        repository=repository,
        front_matter=_front_matter((name, run.folder.kind.name), base, data),
        answers=cleaned(run.folder.kind.identity),
        version=version("restrain-openrlhf"),
        method=cleaned({key: value for key, value in run.method.items() if value is not None}),
        summary=" ".join((inspect.getdoc(sys.modules[METHODS[name].__module__]) or "").split("\n\n")[0].split()),
        reads_gold=build(parse_settings({"name": name})).reads_gold,
        rows=[_row(*pair) for pair in evaluations],
        beside=any(of_base for _, of_base in evaluations),
        held_out=", ".join(f"{100 * row.pass_at_1:.1f} at step {row.step}" for row in held_out),
    )


def _front_matter(tags: Sequence[str], base: BaseModel, data: DataSet) -> str:
    """What the hub reads, between its marks."""
    from huggingface_hub import ModelCardData  # noqa: PLC0415 - costs a second

    known: dict[str, Any] = {
        "base_model": base.id,
        "base_model_relation": "finetune" if base.id else None,
        "datasets": [data.hub_id] if data.hub_id else None,
        "license": base.licence or "unknown",
        "license_name": base.licence_name,
        "license_link": base.licence_link,
    }
    front = ModelCardData(
        **{name: value for name, value in known.items() if value},
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[*TAGS, *tags],
    )
    return f"---\n{front.to_yaml()}\n---"


def _row(trained: Result, base: Result | None) -> list[str]:
    how = trained.provenance
    words = f"T {how.temperature:g}, top-p {how.top_p:g}, n {how.n}, up to {how.max_new_tokens} tokens, {how.template}"
    words = " ".join(str(cleaned(words)).split()).replace("|", "\\|")
    return [how.title, str(how.problems), *_accuracy(trained), *(_accuracy(base) if base else ("–", "–")), words]


def _accuracy(result: Result) -> tuple[str, str]:
    scores, n = result.scores, result.provenance.n
    interval = f"{100 * scores.pass_at_1:.1f} [{100 * scores.low:.1f}, {100 * scores.high:.1f}]"
    return interval, f"{100 * scores.maj_at_k[n]:.1f} (k {n})"
