"""`restrain premise`: whether label-free training can work on these prompts, as tables and findings.

docs/concepts/premise.md says what each finding means, what to do, and where its threshold comes from.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.answers.votes import end_of, missing_warning
from restrain_openrlhf.commands.options import GOLD, AnswersOption, MethodKeys, split_answers
from restrain_openrlhf.commands.premise.calibration import LEAST_GOLD, WRONG_SHARE, best_kappa, pooled
from restrain_openrlhf.commands.premise.common_answers import CommonAnswer
from restrain_openrlhf.commands.premise.diagnosis import Premise, diagnose
from restrain_openrlhf.commands.premise.frozen import from_reference, from_rollouts
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.config.yaml_file import MISSING_LIMIT, RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build, parse_settings

N_SAMPLES = "rollout.n_samples_per_prompt"
# Share of prompts, and of squared advantage. On a base with .13 of the prompts below kappa the penalty did harm.
PENALIZED, PENALTY = 0.10, 0.25
# The chance to fail from which there is advice, and from which it is a warning: as of a 95 % interval above the limit.
LIKELY, CERTAIN = 0.5, 0.975


@dataclass(frozen=True)
class PremiseFinding:
    """A warning or a note, in one sentence or more."""

    level: Literal["warning", "note"]
    text: str


def premise(
    reference: Annotated[Path | None, typer.Option(help="Reference file of the offline pass.")] = None,
    rollouts: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --reference: rows {id, problem, responses, answer?, truncated?} (JSONL, JSON, Parquet)."
        ),
    ] = None,
    gold: Annotated[Path | None, typer.Option(help=f"{GOLD} Of all or some of the prompts.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            parser=find_config, metavar="CONFIG", help="A YAML file or preset that gives the method and the group size."
        ),
    ] = None,
    answers: AnswersOption = None,
    overrides: MethodKeys = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Tell from the frozen model's rollouts whether training without labels can work.

    Exits with status 0 even if there are warnings.

    Without --config the method is RESTRAIN with the paper's settings. If --config is given alone,
    the reference that it names is read.
    """
    given, kind = split_answers(parse_overrides(overrides or [], example="kappa=2"), answers)
    run = load_run_config(config, {f"method.{key}": value for key, value in given.items()}) if config else None
    own = run if reference is None and rollouts is None else None
    path = _only_file(own.reference if own else reference, rollouts)
    if kind and rollouts is None:
        raise ConfigError("--answers belongs to --rollouts only: a reference file already names its kind of answer.")
    settings = run.method if run else parse_settings({"name": "restrain", **given})
    kind = kind or (run.answers if run else MATHEMATICS)
    read = partial(from_rollouts, kind=kind) if rollouts else partial(from_reference, run=own)
    found = diagnose(read(path, gold, _group_size(run) if run else None), settings)
    listed = findings(found)
    if as_json:
        numbers = TypeAdapter(Premise).dump_python(found, mode="json")
        document = {**numbers, "findings": [vars(each) for each in listed]}
        typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _print(found, listed)


def _only_file(reference: Path | None, rollouts: Path | None) -> Path:
    if (path := reference or rollouts) is None or (reference and rollouts):
        raise ConfigError(
            "Give one file to read: --reference REF.jsonl, or --rollouts ROLLOUTS.jsonl; or --config CONFIG, whose "
            "`reference:` is read."
        )
    return path


def _group_size(run: RunConfig) -> int | None:
    """How many rollouts a group has in training; None if the configuration does not say, for all that were sampled."""
    plan = build(run.method).rollouts
    size = plan.voters if plan else run.openrlhf.get(N_SAMPLES)
    if size is not None and not isinstance(size, int):
        raise ConfigError(f"--config: {N_SAMPLES} is {size!r}: a whole number is needed.")
    return size


def _print(found: Premise, listed: Sequence[PremiseFinding]) -> None:
    console = Console(highlight=False)
    for table in (_sizes(found), _methods(found), _common(found), *([_read(found)] if found.read else [])):
        console.print(table)
    for finding in listed:
        console.print(f"[bold{' red' if finding.level == 'warning' else ''}]{finding.level}:[/] ", end="")
        console.print(finding.text, markup=False)
    warnings = sum(finding.level == "warning" for finding in listed)
    console.print(f"{warnings} warning{'s' * (warnings != 1)}. What they mean: docs/concepts/premise.md.")


def findings(premise: Premise) -> list[PremiseFinding]:
    """The findings that apply, warnings first."""
    texts = [_shortcut(premise, answer) for answer in premise.common if answer.is_shortcut]
    if many := missing_warning(premise.missing_share, premise.unread, "the frozen model's rollouts", premise.kind):
        refused = f" Training refuses more than {MISSING_LIMIT:.0%} (`missing_limit`)."
        texts.append(many + refused * (premise.missing_share > MISSING_LIMIT))
    if premise.chosen.mean_advantage == 0:
        texts.append(f"{premise.chosen.name} has no advantage on any prompt: nothing would be learned.")
    found = [
        *(PremiseFinding("warning", text) for text in texts),
        *_reliability(premise),
        *_penalty(premise),
        *_kappa(premise),
        *_sigma(premise),
    ]
    return sorted(found, key=lambda finding: finding.level != "warning")


def _shortcut(premise: Premise, answer: CommonAnswer) -> str:
    gold = f"It is the gold answer of {answer.excess.gold_share:.1%}. " if answer.excess else ""
    return (
        f"A shared shortcut: {answer.text!r} is {answer.share:.1%} of all rollouts, given at {answer.prompts} of "
        f"{premise.prompts} prompts (any other answer: at {answer.next_prompts} or fewer), and the majority at "
        f"{answer.majorities}. {gold}Believing small majorities learns it first. Keep it from voting (a response "
        "without an answer does not vote), leave out the prompts whose majority it is, and watch `top_answer_share` "
        "in metrics.jsonl."
    )


def _have(prompts: int) -> str:
    return "1 prompt has" if prompts == 1 else f"{prompts} prompts have"


def _reliability(premise: Premise) -> Iterator[PremiseFinding]:
    gold, chosen = premise.gold, premise.chosen
    if chosen.reads_gold:
        return
    if gold is None or gold.prompts < LEAST_GOLD:
        known = f"Only {_have(gold.prompts)} gold" if gold else "There is no gold"
        text = f"{known}, so whether majorities are right is not known. Grade some 100 prompts, and give --gold."
        yield PremiseFinding("note", text)
        return
    if chosen.fails is not None:
        text = (
            f"Training {chosen.name} without labels fails with the probability {chosen.fails:.0%}, by a bootstrap over "
            f"the {gold.prompts} prompts with gold: at least {WRONG_SHARE:.0%} of its squared advantage (here "
            f"{chosen.on_wrong or 0:.0%}) is on prompts whose majority is wrong, or right answers gain nothing."
        )
        if chosen.fails >= LIKELY:
            text += (
                f" Of our seven runs with {WRONG_SHARE:.0%} or more, five lost accuracy (docs/concepts/premise.md). "
                "If the table shows majority sizes that can be trusted, `srt_easy` with `easy_cutoff` trains on those "
                "alone; if not, get labels, or another base model."
            )
        yield PremiseFinding("warning" if chosen.fails >= CERTAIN else "note", text)


def _penalty(premise: Premise) -> Iterator[PremiseFinding]:
    chosen = premise.chosen
    if chosen.prompts_penalized >= PENALIZED or chosen.penalized >= PENALTY:
        yield PremiseFinding(
            "warning" if any(answer.is_shortcut for answer in premise.common) else "note",
            f"The penalty acts on {chosen.prompts_penalized:.1%} of prompts and has {chosen.penalized:.0%} of the "
            "squared advantage. On-policy it rewards any agreement, right or wrong. Train with `delta: 0` first, which "
            "leaves those prompts out, and compare.",
        )


def _kappa(premise: Premise) -> Iterator[PremiseFinding]:
    """Another κ, where gold tells that the majorities between the two are treated wrongly (95 %, Wilson)."""
    gold, given = premise.gold, premise.settings.get("kappa")
    if gold is None or gold.prompts < LEAST_GOLD or given is None or premise.group_size != premise.n:
        return
    now, best = int(given if given >= 1 else ceil(given * premise.n)), best_kappa(gold.by_size)
    between = [row for row in gold.by_size if min(now, best) <= row.size < max(now, best)]
    if not between:
        return
    share, low, high = pooled(between)
    if best < now and low > 0.5:  # noqa: PLR2004
        text = f"more often than not, and kappa: {given:g} penalises them"
    elif best > now and high < 0.5:  # noqa: PLR2004
        text = f"less often than not, and kappa: {given:g} believes them"
    else:
        return
    sizes = " to ".join(map(str, dict.fromkeys((between[0].size, between[-1].size))))
    known = f"{share:.0%} [{low:.0%}, {high:.0%}] of {sum(row.problems for row in between)} prompts"
    yield PremiseFinding("note", f"Majorities of {sizes} of {premise.n} are right {text} ({known}). Try kappa: {best}.")


def _sigma(premise: Premise) -> Iterator[PremiseFinding]:
    """Another σ, where gold is likelier under its label weights."""
    if (better := premise.better_sigma) is not None:
        text = f"Gold is likelier under the label weights of sigma: {better:g}, where some rollout is right."
        yield PremiseFinding("note", f"{text} No training has tested this.")


def _table(columns: Sequence[str], title: str, caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        words = column in ("method", "answer", "response")
        table.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _sizes(premise: Premise) -> Table:
    chosen, gold = premise.chosen, premise.gold
    caption = f"{chosen.name} penalises {chosen.prompts_penalized:.1%} of the prompts. "
    caption += f"Missing answers: {premise.missing_share:.1%} of rollouts."
    if gold is not None:
        caption += f" {_have(gold.prompts)} gold: pass@1 {gold.pass_at_1:.1%}, "
        caption += f"majority right {gold.majority_right:.1%}."
    title = f"{premise.prompts} prompts × {premise.n} rollouts: size M of the frozen model's majority"
    table = _table(("M", "prompts", "share", "majority right"), title, caption)
    right = {
        row.size: f"{row.majority_accuracy:.0%} [{row.majority_low:.0%}, {row.majority_high:.0%}]"
        for row in (gold.by_size if gold else ())
    }
    for size, count in enumerate(premise.sizes):
        if count:
            table.add_row(str(size), str(count), f"{count / premise.prompts:.1%}", right.get(size, "–"))
    return table


def _methods(premise: Premise) -> Table:
    bins = [f"{low}-{high}" if low < high else str(low) for low, high in premise.bins]
    table = _table(
        ("method", *bins, "κ", "wrong", "right", "common", "|A|"),
        "Where each method learns: share of its squared advantage, by majority size M",
        "κ: in penalised groups. wrong: where the majority is wrong, of the others. right, common: what right "
        "answers and the most common one gain, of all |A| (0.50 at most). |A|: its mean."
        + "".join(f"\n{escape(name)} is left out: {escape(reason)}" for name, reason in premise.left_out.items()),
    )
    for one in premise.methods:
        shares = [f"{share:.0%}" for share in (*one.by_size, one.penalized)]
        wrong = "–" if one.on_wrong is None else f"{one.on_wrong:.0%}"
        pushes = ["–" if push is None else f"{push:+.2f}" for push in (one.right_push, one.shared_push)]
        table.add_row(one.name, *shares, wrong, *pushes, f"{one.mean_advantage:.3f}")
    return table


def _common(premise: Premise) -> Table:
    columns = ("answer", "rollouts", "prompts", "majorities", "gold", "shortcut")
    table = _table(columns, "The most common answers across prompts")
    for one in premise.common:
        gold = f"{one.excess.gold_share:.1%}" if one.excess else "–"
        shortcut = "yes" if one.is_shortcut else "no"
        text = escape(end_of(one.text))
        table.add_row(text, f"{one.share:.1%}", str(one.prompts), str(one.majorities), gold, shortcut)
    return table


def _read(premise: Premise) -> Table:
    table = _table(
        ("rollouts", "answer", "response"), "What is read, in some of the groups: « » marks the answer's words"
    )
    for problem, readings in groupby(premise.read, key=lambda each: each.problem):
        table.add_row("", "", f"[bold]{escape(end_of(problem))}")
        for each in readings:
            answer = "none" if each.answer is None else escape(end_of(each.answer))
            table.add_row(str(each.rollouts), answer, escape(each.response))
    table.caption = "\n".join(map(escape, map(str, premise.kinds)))
    return table
