"""`restrain label`: which prompts are worth a label, as a table to fill in, and its labels put into the prompts."""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.answers.votes import end_of
from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_file
from restrain_openrlhf.commands.premise.frozen import FrozenGroup, from_reference
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold, stated_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import ConfigError, DataError, ReferencePassError
from restrain_openrlhf.method import Votes
from restrain_openrlhf.reference.prompts import problems_of, prompt_source

# Columns of the table: of each prompt its text, the frozen model's votes, the chance with which it was drawn, which
# `restrain premise --gold` reads, and the label that a person fills in.
COLUMNS = ("id", "problem", "votes", "inclusion", "answer")
# Answers of a prompt that the table shows.
SHOWN = 4
ANSWER = "answer"


@dataclass(frozen=True)
class Candidate:
    """A prompt that may be labelled: what its label is worth (`chance_of_another`), and its majority's key."""

    problem_hash: str
    worth: float
    majority: str | None
    votes: str


def label(
    config: ConfigFile,
    out: Annotated[Path, to_file("The table to fill in (CSV) or, with --filled, the labelled prompts (JSON Lines).")],
    count: Annotated[int, typer.Option(min=1, help="Prompts to label.")] = 50,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for each answer here, instead of leaving it empty.")] = False,
    filled: Annotated[
        Path | None, typer.Option(help="A filled table: write the prompts of CONFIG with its labels.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Choose the prompts of CONFIG to label, from the frozen model's votes alone: half by worth, and half at random.

    A label is worth the chance that another answer than the majority is right, so that the label corrects what would be
    learned. Prompts with the same majority answer share their worth. By the random half, `restrain premise --gold` can
    speak of all prompts.
    """
    run, console = load_run_config(config, parse_overrides(overrides or [])), Console(stderr=True, soft_wrap=True)
    inputs = [Path(str(flags_of(run)["data.prompt_dataset"])), *([filled] if filled else [])]
    if out.exists() and (filled is None or any(path.exists() and out.samefile(path) for path in inputs)):
        raise ConfigError(f"--out {out}: exists, and its answers or prompts would be lost. Name another, or remove it.")
    if filled is not None:
        labelled, prompts = write_labelled(run, filled, out)
        console.print(
            f"{labelled} of {prompts} prompts have a label: {out}\nTo train on them: --set "
            f"openrlhf.data.prompt_dataset={out} --set openrlhf.data.label_key={ANSWER} --set method.gold=where_given",
            markup=False,
        )
        return
    drawn = choose(run, count)
    texts = {text_hash(text): (row.get("id"), text) for text, row in problems_of(prompt_source(flags_of(run)))}
    if any(each.problem_hash not in texts for each, _ in drawn):
        raise ReferencePassError(f"{run.reference} is of other prompts than {inputs[0]}. Run `restrain reference`.")
    with whole_file(out) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for place, (each, chance) in enumerate(drawn, start=1):
            name, problem = texts[each.problem_hash]
            answer = _asked(console, f"{place} of {len(drawn)}", problem, each.votes) if ask else ""
            table.writerow(["" if name is None else name, problem, each.votes, f"{chance:.6g}", answer])
    then = f"restrain label {config} --filled {out} --out PROMPTS.jsonl"
    console.print(f"{len(drawn)} prompts to label: {out}\nThen: {then}", markup=False)


def _asked(console: Console, place: str, problem: str, votes: str) -> str:
    """The answer that a person types to a problem; empty if there is none."""
    console.print(f"\n{place}: {problem}\nvotes: {votes}", markup=False, highlight=False)
    return str(typer.prompt("answer (empty: unknown)", default="", show_default=False, err=True))


def choose(run: RunConfig, count: int) -> list[tuple[Candidate, float]]:
    """The prompts to label, `count` or all of fewer, each with the chance of having been drawn.

    Raises ConfigError without a reference, and DataError for one that does not fit.
    """
    if run.reference is None:
        raise ConfigError("reference is not set. Make one with `restrain reference CONFIG`, whose votes are read.")
    return draw(by_worth(map(candidate, from_reference(run.reference, run=run).groups)), count)


def candidate(group: FrozenGroup) -> Candidate:
    """A prompt as one that may be labelled."""
    ranked = group.group.ranked()
    votes = "; ".join(f"{votes} of {group.row.n}: {end_of(str(answer))}" for answer, votes in ranked[:SHOWN])
    worth = chance_of_another(group.group.votes) if ranked else 0.0
    return Candidate(group.row.problem_hash, worth, group.majority_key, votes)


def chance_of_another(votes: Votes) -> float:
    """The chance that an answer of the group other than its majority is right: that a label corrects what is learned.

    Label j is taken to be right with the probability (1 − s / n) f_j, where s labels have one vote each: by Good and
    Turing's estimate (1953), the rest is the chance that none of the answers given is right.
    """
    singles = sum(count == 1 for count in votes.counts)
    return (1 - singles / votes.n) * float(np.delete(votes.shares, votes.majority).sum())


def by_worth(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, best first, where the k-th prompt with one majority answer counts for 1 / k of its worth.

    One shared answer that is wrong for many prompts is so labelled at some of them, and not at all.
    """
    seen, shared = Counter[str | None](), list[tuple[float, Candidate]]()
    for each in sorted(candidates, key=lambda each: (-each.worth, each.problem_hash)):
        seen[each.majority] += 1
        shared.append((each.worth / seen[each.majority], each))
    return [each for _, each in sorted(shared, key=lambda pair: -pair[0])]


def draw(ranked: Sequence[Candidate], count: int, seed: int = 0) -> list[tuple[Candidate, float]]:
    """The first half of `count` of those whose label is worth anything, and the rest at random from all others.

    Each comes with the chance of being drawn: 1 for the first half, and the same for all others.
    """
    best = [each for each in ranked[: (count + 1) // 2] if each.worth > 0]
    others = ranked[len(best) :]
    drawn = min(count - len(best), len(others))
    places = sorted(np.random.default_rng(seed).choice(len(others), drawn, replace=False)) if drawn else []
    return [*((each, 1.0) for each in best), *((others[place], drawn / len(others)) for place in places)]


def write_labelled(run: RunConfig, filled: Path, out: Path) -> tuple[int, int]:
    """Write the prompts with the labels of a filled table in the column `answer`. Returns how many have one, of all.

    Raises DataError for labels of other problems, and for a prompt that has another label already.
    """
    rows = list(problems_of(prompt_source(flags_of(run))))
    asked = [ProblemIdentity.of(row.get("id"), text, run.answers.row(text, row)) for text, row in rows]
    gold = load_gold(filled, run.answers, skip_empty=True)
    labels = gold.answers(str(filled), asked)
    if lost := len(gold.by_problem.keys() - {each.problem for each in asked}):
        raise DataError(f"{filled}: {lost} answers are to other problems, letter by letter. Correct or remove them.")
    written = [
        _labelled(row, labels.get(each.problem), filled, run.answers)
        for each, (_, row) in zip(asked, rows, strict=True)
    ]
    with whole_file(out) as file:
        file.writelines(map(dump, written))
    return sum(row[ANSWER] not in (None, "") for row in written), len(written)


def _labelled(row: Mapping[str, Any], given: str | None, filled: Path, kind: AnswerKind) -> dict[str, Any]:
    there = stated_gold(kind, row.get(ANSWER), str(filled))
    if given is not None and there not in (None, given):
        raise DataError(
            f"{filled}: labels a prompt {given!r} that has the answer {there!r} already. Leave the row out, or remove "
            "the column from the prompts."
        )
    return {**row, ANSWER: given or there or ""}
