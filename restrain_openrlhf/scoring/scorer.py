"""The scorer of a run or a service: a method with the offline pass that it may need, and what a group comes to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from restrain_openrlhf.answers import canonical_key, classes, final_answer
from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.answers.residual import RESIDUAL
from restrain_openrlhf.answers.votes import majority_answer
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.method import GroupScore, Method, PromptFacts, ReferenceVote
from restrain_openrlhf.reference import Reference, ReferenceRow
from restrain_openrlhf.scoring.wire import GroupRequest


@dataclass(frozen=True)
class GroupScorer:
    """A method together with the offline pass it may need.

    Raises ReferencePassError when the method needs a reference and there is none.
    """

    method: Method
    reference: Reference | None = None

    def __post_init__(self) -> None:
        if self.method.needs_reference and self.reference is None:
            raise ReferencePassError(
                f"The method {self.method.name!r} needs the frozen model's vote on every prompt, and no reference was "
                "given. Make one with `restrain reference` and name it under `reference:`."
            )

    def score(
        self,
        prompt: str,
        answers: Sequence[str | None],
        gold: str | None = None,
        entropies: tuple[float, ...] | None = None,
    ) -> GroupScore:
        """The group's score; `prompt` is the text the policy saw, `answers` the final answers (None: missing).

        Pure but for latex2sympy2's process; call it from a thread, it may take seconds. Gold reaches the method only if
        it says that it reads gold. Raises a RestrainError where the group cannot be scored: another size than the
        method draws, a prompt that the reference lacks, no gold for a method that reads it, or latex2sympy2 does not
        work.
        """
        timeouts, deaths = RESIDUAL.lost.timed_out, RESIDUAL.lost.died
        score = score_group(self.method, answers, self._reference_row(prompt), gold, prompt, entropies)
        majority = majority_answer(answers)
        return replace(
            score,
            majority_key=None if majority is None else canonical_key(majority),
            residual_timeouts=RESIDUAL.lost.timed_out - timeouts,
            residual_deaths=RESIDUAL.lost.died - deaths,
        )

    def check(self, prompt: str, gold: str | None = None) -> None:
        """Raises what `score` would raise because of the prompt or the lack of gold, whatever the answers."""
        self._reference_row(prompt)
        refuse_lack_of_gold(self.method, gold, prompt)

    def _reference_row(self, prompt: str) -> ReferenceRow | None:
        if self.reference is None:
            return None
        return self.reference.row(prompt) if self.method.needs_reference else self.reference.by_prompt(prompt)


def score_whole_group(scorer: GroupScorer, group: GroupRequest) -> GroupScore:
    """The score of a group of texts, as `GroupScorer.score`: of POST /v1/score and of the executor in process."""
    answers = [final_answer(response.text, truncated=not response.finished) for response in group.responses]
    return scorer.score(group.prompt, answers, group.gold, group.entropies)


def score_group(
    method: Method,
    answers: Sequence[str | None],
    row: ReferenceRow | None,
    gold: str | None,
    prompt: str,
    entropies: tuple[float, ...] | None = None,
) -> GroupScore:
    """What the method makes of the answers and of `row`, the frozen model's vote.

    A method that reads gold has one class for all right answers, and what is right is evaluation's rule: votes of
    another class may be right, too (docs/decisions/0004-one-grader.md). Raises DataError where it reads gold and there
    is none.
    """
    refuse_lack_of_gold(method, gold, prompt)
    right = {answer for answer in set(answers) if is_right(answer, str(gold))} if method.reads_gold else set()
    told = [gold if answer in right else answer for answer in answers]
    facts = PromptFacts(
        reference=ReferenceVote(row.majority_count, row.n) if row else None,
        stored_class=class_of(row.majority, told) if row else None,
        gold_class=class_of(gold, told) if method.reads_gold else None,
        entropies=entropies,
    )
    return replace(method.score(classes(told), facts), answers=tuple(answers))


def refuse_lack_of_gold(method: Method, gold: str | None, prompt: str) -> None:
    """Raises DataError where the method reads gold and there is none."""
    if method.reads_gold and not gold:
        raise DataError(
            f"The method {method.name!r} learns from gold answers, and the prompt {prompt[:80]!r} has none. "
            "Give the column that holds them, or choose a label-free method."
        )


def class_of(label: str | None, answers: Sequence[str | None]) -> int | None:
    """The class, within the group, of a label from outside it; None if no rollout gave it."""
    if label is None:
        return None
    *within, outside = classes([*answers, label])
    return outside if outside in within else None
