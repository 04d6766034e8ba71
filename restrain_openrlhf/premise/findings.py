"""What the numbers of a diagnosis say to somebody who is about to train: warnings and notes, each with its figures.

Where the thresholds come from is in docs/concepts/premise.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from restrain_openrlhf.premise.diagnosis import Gold, Premise, Trust
from restrain_openrlhf.premise.shared import COMMON, LEAST_GOLD, CommonAnswer
from restrain_openrlhf.vote_statistics import missing_warning

# Of rollouts: at .20 RESTRAIN learned less, at .214 it fell (benchmarks/premise_window.py).
BEYOND = 0.21
# Of squared advantage: methods with .16 or less on wrong majorities learned, with .34 or more they collapsed, or gained
# little from stored labels; one at .22 ended in between.
WRONG = 0.20
# Of prompts, and of squared advantage: on a base with .13 of the prompts below kappa the penalty did harm.
PENALIZED, PENALTY = 0.10, 0.25
UNANIMOUS = 0.5
# Of all |A|, on right answers: anything that two digits show.
AWAY = -0.005
# Majorities that are worth training on where others are not.
TRUSTED = 0.9
PAPERS_ROLLOUTS = 16
KL_RATIO = 3


class Level(Enum):
    """How much a finding matters."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One sentence or more for the reader."""

    level: Level
    text: str


def findings(premise: Premise) -> list[Finding]:
    """All that applies, warnings first."""
    found = [finding for rule in RULES for finding in rule(premise)]
    return sorted(found, key=lambda finding: finding.level is not Level.WARNING)


def _shared(premise: Premise) -> Iterator[Finding]:
    for answer in premise.common:
        if answer.reason is not None:
            yield Finding(Level.WARNING, _shortcut(premise, answer))
    plain = [answer for answer in premise.common if answer.reason is None and answer.share >= COMMON]
    if plain:
        names = ", ".join(f"{answer.text!r} {answer.share:.0%}" for answer in plain)
        unknown = (
            "" if plain[0].excess else f" One that is given more often than it is right is; gold of {LEAST_GOLD} tells."
        )
        yield Finding(Level.NOTE, f"Common answers that are no shortcut by the rule: {names} of all rollouts.{unknown}")


def _shortcut(premise: Premise, answer: CommonAnswer) -> str:
    gold = f"It is the gold answer of {answer.excess.gold.count} of {answer.excess.gold.of}. " if answer.excess else ""
    beyond = f"At {BEYOND:.0%} of the rollouts and more RESTRAIN lost, too. " if answer.share >= BEYOND else ""
    why = answer.reason.value if answer.reason else ""
    return (
        f"A shared shortcut: {answer.text!r} is {answer.share:.1%} of all rollouts, given at {answer.prompts} of "
        f"{premise.prompts} prompts (any other answer: at {answer.next_prompts} or fewer). It is the majority at "
        f"{answer.unsure.count} of {answer.unsure.of} prompts where majorities are below three quarters of the "
        f"rollouts, and at {answer.sure.count} of {answer.sure.of} others. {gold}Why: {why}. Believing small "
        f"majorities learns it first{_pushes(premise, answer)}. {beyond}Keep it from voting (a response without a box "
        "is a missing answer), leave out the prompts whose majority it is, and watch `top_answer_share` in "
        "metrics.jsonl."
    )


def _pushes(premise: Premise, answer: CommonAnswer) -> str:
    known = [one for one in premise.methods if one.shared_push is not None]
    if answer is not premise.common[0] or premise.chosen.shared_push is None:
        return ""
    most = max(known, key=lambda one: one.shared_push or 0.0)
    return (
        f" (the part of its advantages that teaches it: {premise.chosen.name} {premise.chosen.shared_push:+.2f}, "
        f"{most.name} {most.shared_push:+.2f})"
    )


def _missing(premise: Premise) -> Iterator[Finding]:
    missing = premise.missing
    many = missing_warning(missing.share, missing.unread, "the frozen model's rollouts")
    if many:
        yield Finding(Level.WARNING, many)
    if missing.share < COMMON:
        return
    largest = (
        f"{missing.share:.1%} of rollouts have no answer, and at {missing.majorities.share:.1%} of prompts more have "
    )
    if premise.settings["missing"] == "as_label":
        yield Finding(
            Level.WARNING,
            largest
            + "none than agree on any. With `missing: as_label` no answer becomes the majority there, and training "
            "collapses to it. Set `missing: exclude`.",
        )
    else:
        yield Finding(
            Level.NOTE,
            largest + "none than agree on any. Allow longer responses, or change the template. Never set `missing: "
            "as_label` here: no answer would become the majority.",
        )


def _reliability(premise: Premise) -> Iterator[Finding]:
    gold, chosen = premise.gold, premise.chosen
    if chosen.reads_gold:
        return
    if gold is None or gold.prompts < LEAST_GOLD:
        yield Finding(Level.NOTE, _unknown(premise, gold))
        return
    if chosen.right_push is not None and chosen.right_push < AWAY:
        yield Finding(
            Level.WARNING,
            f"{chosen.name} pushes away from right answers: their advantages sum to {chosen.right_push:+.2f} of all "
            "(a method that reads gold: +0.50). Choose other label weights.",
        )
    if chosen.on_wrong is not None and chosen.on_wrong.share >= WRONG:
        certain = chosen.on_wrong.low >= WRONG
        yield Finding(Level.WARNING if certain else Level.NOTE, _wrong_majorities(premise, gold))


def _unknown(premise: Premise, gold: Gold | None) -> str:
    known = f"Only {gold.prompts} prompts have gold" if gold else "There is no gold"
    sure = sum(premise.sizes[(premise.n + 1) // 2 : premise.n])
    return (
        f"{known}, so whether majorities are right is not known. Wrong majorities that are large look like right ones. "
        f"Grade some 100 prompts by hand, from the {sure} with a majority of half the rollouts or more first, and give "
        "them with --gold."
    )


def _wrong_majorities(premise: Premise, gold: Gold) -> str:
    chosen = premise.chosen
    assert chosen.on_wrong is not None, "asked for where it is known"
    large = f"Majorities of {_of(gold.large)}. " if gold.large else ""
    return (
        f"Spurious majorities where {chosen.name} learns: {chosen.on_wrong.share:.0%} [{chosen.on_wrong.low:.0%}, "
        f"{chosen.on_wrong.high:.0%}] of its squared advantage is on prompts whose majority is wrong. {large}"
        f"Label-free methods with {WRONG:.0%} or more there lost in all runs measured. "
        + _worth_training_on(gold, premise.n)
    )


def _worth_training_on(gold: Gold, n: int) -> str:
    for trust in gold.at_least:
        if trust.right.of >= LEAST_GOLD and trust.right.share >= TRUSTED:
            return (
                f"Majorities of {_of(trust)}: `srt_easy` with `easy_cutoff: {trust.low / n:g}` trains on those alone."
            )
    return "No size below unanimity has majorities to rely on: get labels, or another base model."


def _of(trust: Trust) -> str:
    low, high = trust.interval
    return (
        f"{trust.low} to {trust.high} are right at {trust.right.count} of {trust.right.of} prompts "
        f"({trust.right.share:.0%} [{low:.0%}, {high:.0%}])"
    )


def _penalty(premise: Premise) -> Iterator[Finding]:
    chosen = premise.chosen
    if chosen.prompts_penalized < PENALIZED and chosen.penalized < PENALTY:
        return
    shortcut = any(answer.reason for answer in premise.common)
    yield Finding(
        Level.WARNING if shortcut else Level.NOTE,
        f"The penalty acts on {chosen.prompts_penalized:.1%} of prompts and has {chosen.penalized:.0%} of the squared "
        "advantage. On-policy it rewards any agreement, right or wrong"
        + (", and here a shared answer is the easiest to agree on" if shortcut else "")
        + ". Train with `delta: 0` first, which leaves those prompts out, and compare.",
    )


def _little_to_learn(premise: Premise) -> Iterator[Finding]:
    unanimous = premise.sizes[premise.n] / premise.prompts
    if premise.chosen.mean_advantage == 0:
        yield Finding(Level.WARNING, f"{premise.chosen.name} has no advantage on any prompt: nothing would be learned.")
    if unanimous >= UNANIMOUS:
        yield Finding(
            Level.NOTE,
            f"{unanimous:.0%} of prompts are unanimous and teach nothing. Leave them out, or choose harder prompts.",
        )


def _kappa(premise: Premise) -> Iterator[Finding]:
    kappa = float(premise.settings.get("kappa", 0))
    if kappa >= 1 and premise.group_size != PAPERS_ROLLOUTS:
        yield Finding(
            Level.NOTE,
            f"kappa is {kappa:g} of {premise.group_size} rollouts here; the paper's 3 is of {PAPERS_ROLLOUTS}. As a "
            f"share it is kappa: {3 / PAPERS_ROLLOUTS:g}.",
        )


def _prompt_weight(premise: Premise) -> Iterator[Finding]:
    chosen, largest = premise.chosen, max(premise.methods, key=lambda one: one.against_kl)
    if premise.settings.get("prompt_sigma", 0) is None and chosen.mean_prompt_weight < 1:
        yield Finding(
            Level.NOTE,
            f"u_x is {chosen.mean_prompt_weight:.2f} on average. sigma sets it together with the label weights; to "
            "change one of them alone, set `prompt_sigma`.",
        )
    if 0 < chosen.against_kl * KL_RATIO <= largest.against_kl:
        yield Finding(
            Level.NOTE,
            f"{chosen.name} has a mean |A| of {chosen.mean_advantage:.3f}, {largest.name} of "
            f"{largest.mean_advantage:.3f}. An equal KL coefficient weighs "
            f"{largest.against_kl / chosen.against_kl:.0f} times as much with {chosen.name} (u_x, which scales KL too, "
            "counted).",
        )


RULES: tuple[Callable[[Premise], Iterator[Finding]], ...] = (
    _shared,
    _reliability,
    _missing,
    _penalty,
    _little_to_learn,
    _kappa,
    _prompt_weight,
)
