"""What the numbers of a diagnosis say to somebody who is about to train: warnings and notes, each with its figures.

Where the thresholds come from is in docs/concepts/premise.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from restrain_openrlhf.answers.votes import missing_warning
from restrain_openrlhf.commands.premise.diagnosis import Premise
from restrain_openrlhf.commands.premise.shared import LEAST_GOLD, CommonAnswer

# Of rollouts with a shortcut: at .20 RESTRAIN learned less, at .214 it fell (docs/results/study.md).
RESTRAIN_FELL = 0.21
# Of squared advantage on wrong majorities: methods with .16 or less learned, with .34 or more they collapsed, or gained
# little from stored labels; one at .22 ended in between.
WRONG = 0.20
# Of prompts, and of squared advantage: on a base with .13 of the prompts below kappa the penalty did harm.
PENALIZED, PENALTY = 0.10, 0.25


@dataclass(frozen=True)
class PremiseFinding:
    """One sentence or more for the reader."""

    level: Literal["warning", "note"]
    text: str


def findings(premise: Premise) -> list[PremiseFinding]:
    """All that applies, warnings first."""
    texts = [_shortcut(premise, answer) for answer in premise.common if answer.reason]
    if many := missing_warning(premise.missing_share, premise.unread, "the frozen model's rollouts"):
        texts.append(many)
    if premise.chosen.mean_advantage == 0:
        texts.append(f"{premise.chosen.name} has no advantage on any prompt: nothing would be learned.")
    found = [*(PremiseFinding("warning", text) for text in texts), *_reliability(premise), *_penalty(premise)]
    return sorted(found, key=lambda finding: finding.level != "warning")


def _shortcut(premise: Premise, answer: CommonAnswer) -> str:
    gold = f"It is the gold answer of {answer.excess.gold.count} of {answer.excess.gold.of}. " if answer.excess else ""
    fell = f"At {RESTRAIN_FELL:.0%} of the rollouts and more RESTRAIN lost, too. "
    why = answer.reason.value if answer.reason else ""
    return (
        f"A shared shortcut: {answer.text!r} is {answer.share:.1%} of all rollouts, given at {answer.prompts} of "
        f"{premise.prompts} prompts (any other answer: at {answer.next_prompts} or fewer). It is the majority at "
        f"{answer.unsure.count} of {answer.unsure.of} prompts where majorities are below three quarters of the "
        f"rollouts, and at {answer.sure.count} of {answer.sure.of} others. {gold}Why: {why}. Believing small "
        f"majorities learns it first. {fell if answer.share >= RESTRAIN_FELL else ''}Keep it from voting (a response "
        "without a box is a missing answer), leave out the prompts whose majority it is, and watch `top_answer_share` "
        "in metrics.jsonl."
    )


def _reliability(premise: Premise) -> Iterator[PremiseFinding]:
    gold, chosen = premise.gold, premise.chosen
    if chosen.reads_gold:
        return
    if gold is None or gold.prompts < LEAST_GOLD:
        known = f"Only {gold.prompts} prompts have gold" if gold else "There is no gold"
        sure = sum(premise.sizes[(premise.n + 1) // 2 : premise.n])
        yield PremiseFinding(
            "note",
            f"{known}, so whether majorities are right is not known. Wrong majorities that are large look like right "
            f"ones. Grade some 100 prompts by hand, from the {sure} with a majority of half the rollouts or more "
            "first, and give them with --gold.",
        )
        return
    if (wrong := chosen.on_wrong) is not None and wrong.share >= WRONG:
        yield PremiseFinding(
            "warning" if wrong.low >= WRONG else "note",
            f"Spurious majorities where {chosen.name} learns: {wrong.share:.0%} [{wrong.low:.0%}, {wrong.high:.0%}] of "
            f"its squared advantage is on prompts whose majority is wrong. Label-free methods with {WRONG:.0%} or more "
            "there lost in all runs measured. Where the table has sizes of majorities to rely on, `srt_easy` with "
            "`easy_cutoff` trains on those alone; else get labels, or another base model.",
        )


def _penalty(premise: Premise) -> Iterator[PremiseFinding]:
    chosen = premise.chosen
    if chosen.prompts_penalized < PENALIZED and chosen.penalized < PENALTY:
        return
    shortcut = any(answer.reason for answer in premise.common)
    yield PremiseFinding(
        "warning" if shortcut else "note",
        f"The penalty acts on {chosen.prompts_penalized:.1%} of prompts and has {chosen.penalized:.0%} of the squared "
        "advantage. On-policy it rewards any agreement, right or wrong"
        + (", and here a shared answer is the easiest to agree on" if shortcut else "")
        + ". Train with `delta: 0` first, which leaves those prompts out, and compare.",
    )
