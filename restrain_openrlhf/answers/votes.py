"""A group's answers as votes: counted by class, ranked, the majority's answer, and what to say of missing ones."""

from collections.abc import Iterable, Sequence

from restrain_openrlhf.answers.keys import classes
from restrain_openrlhf.method.types import Votes, count_votes

# Of rollouts: where more have no answer, the prompts, their template or the length limit do not fit.
MANY_MISSING = 0.2
EXAMPLES, EXAMPLE_LENGTH = 3, 100


def votes_of(answers: Sequence[str | None]) -> Votes:
    """The votes of a group's answers (None: missing). Raises GroupError for a group without rollouts."""
    return count_votes(classes(answers))


def ranked_answers(answers: Sequence[str | None]) -> list[tuple[str | None, int]]:
    """Each distinct answer, as its first rollout wrote it, with its votes: most first, ties in order of appearance."""
    votes = votes_of(answers)
    labels = sorted(range(len(votes.counts)), key=lambda label: -votes.counts[label])
    return [(answers[votes.classes.index(label)], votes.counts[label]) for label in labels]


def majority_answer(answers: Sequence[str | None]) -> str | None:
    """The first of `ranked_answers`; None where no rollout gave an answer."""
    return next((answer for answer, _ in ranked_answers(answers)), None)


def end_of(response: str) -> str:
    """The end of a response on one line, where its answer should be: an example of what was not read."""
    text = " ".join(response[-4 * EXAMPLE_LENGTH :].split())
    return text if len(text) <= EXAMPLE_LENGTH else "…" + text[-EXAMPLE_LENGTH:]


def missing_warning(share: float, unread: Iterable[str], rollouts: str) -> str | None:
    """What to say where more than MANY_MISSING of the `rollouts` have no answer, with some of `unread`; else None."""
    if share <= MANY_MISSING:
        return None
    shown = list(dict.fromkeys(unread))[:EXAMPLES]
    examples = f"Not read, by their ends: {'; '.join(map(repr, shown))}." if shown else "No text of such is at hand."
    return (
        f"{share:.1%} of {rollouts} have no answer, and do not vote. {examples} An answer is a box, what follows "
        '"the answer is", a last formula, choice or number; code, JSON and SQL have none, and a response that is cut '
        "off has none. Ask for a box in the prompts' template, allow longer responses, or leave prompts out that are "
        "not mathematics."
    )
