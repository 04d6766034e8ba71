"""Scores one prompt's group of rollouts: answers to classes, what is known of the prompt, then the method."""

from collections.abc import Sequence
from dataclasses import dataclass

from restrain_openrlhf.answers import classes
from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.errors import DataError, ReferencePassError
from restrain_openrlhf.method import GroupScore, Method, PromptFacts, ReferenceVote
from restrain_openrlhf.reference import Reference, ReferenceRow


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

        Gold reaches the method only if it says that it reads gold. Raises DataError where it does and there is none,
        ReferencePassError where the reference lacks the prompt.
        """
        return score_group(self.method, answers, self._reference_row(prompt), gold, prompt, entropies)

    def check(self, prompt: str, gold: str | None = None) -> None:
        """Raises what `score` would raise because of the prompt or the lack of gold, whatever the answers."""
        self._reference_row(prompt)
        refuse_lack_of_gold(self.method, gold, prompt)

    def _reference_row(self, prompt: str) -> ReferenceRow | None:
        if self.reference is None:
            return None
        row = self.reference.by_prompt(prompt)
        if row is None and self.method.needs_reference:
            raise ReferencePassError(
                f"{self.reference.path} has no row for the prompt {prompt[:80]!r}. It was made for other prompts or "
                "another template: make it again with `restrain reference` from the same file."
            )
        return row


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
    told = _with_gold_for_right(answers, str(gold)) if method.reads_gold else answers
    facts = PromptFacts(
        reference=ReferenceVote(row.majority_count, row.n) if row else None,
        stored_class=class_of(row.majority, told) if row else None,
        gold_class=class_of(gold, told) if method.reads_gold else None,
        entropies=entropies,
    )
    return method.score(classes(told), facts)


def _with_gold_for_right(answers: Sequence[str | None], gold: str) -> list[str | None]:
    right = {answer for answer in set(answers) if is_right(answer, gold)}
    return [gold if answer in right else answer for answer in answers]


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
