"""Votes: a group's answers counted and ranked, and what one step's groups say of learning and collapse without gold."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from restrain_openrlhf.answers import classes
from restrain_openrlhf.method.types import Floats, Votes, count_votes

# Of rollouts: where more have no answer, the prompts, their template or the length limit do not fit.
MANY_MISSING = 0.2
EXAMPLES, EXAMPLE_LENGTH = 3, 100


def votes_of(answers: Sequence[str | None]) -> Votes:
    """The votes of a group's answers (None: missing). Raises GroupError for a group without rollouts."""
    return count_votes(classes(answers))


def ranked_answers(answers: Sequence[str | None], votes: Votes | None = None) -> list[tuple[str | None, int]]:
    """Each distinct answer, as its first rollout wrote it, with its votes: most first, ties in order of appearance.

    `votes` is for other votes of the same rollouts than `votes_of` them: missing answers may be a label there.
    """
    counted = votes_of(answers) if votes is None else votes
    labels = sorted(range(len(counted.counts)), key=lambda label: -counted.counts[label])
    return [(answers[counted.classes.index(label)], counted.counts[label]) for label in labels]


def majority_answer(answers: Sequence[str | None], votes: Votes | None = None) -> str | None:
    """The first of `ranked_answers`; None where no rollout gave an answer."""
    ranked = ranked_answers(answers, votes)
    return ranked[0][0] if ranked else None


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


@dataclass(frozen=True)
class StepVotes:
    """Statistics over the groups of one step. Shares are of groups unless they say voters.

    Voters are all rollouts that voted: the trained ones, and those that only vote (TTRL's `votes` beyond `train_on`).
    The host's own `rollout/` metrics are of trained rollouts. `generated_tokens` are the step's, of all voters.
    """

    prompts: int
    voters: int
    prompts_digest: str
    majority_share_mean: float
    low_consensus_share: float
    unanimous_share: float
    effective_labels_mean: float
    missing_share_of_voters: float
    truncated_share_of_voters: float
    top_answer_share: float
    advantage_pos_norm: float
    advantage_neg_norm: float
    prompt_weight_mean: float
    residual_timeouts: int
    residual_deaths: int
    generated_tokens: int
    majority_histogram: tuple[int, ...]

    def scalars(self) -> dict[str, float]:
        """All but the histogram and the digest, for loggers that take numbers."""
        return {name: float(value) for name, value in asdict(self).items() if isinstance(value, int | float)}


@dataclass(frozen=True)
class GroupVote:
    """One group's vote. `voters`, `majority_count`, `missing` and `truncated` count rollouts that voted.

    `positive` and `negative` are A⁺ and A⁻ of the trained rollouts, (n,). `majority` is equal for two groups whose
    majority answers are equal, None where no rollout gave an answer. `residual_timeouts` counts answers that
    latex2sympy2 took too long over, `residual_deaths` those that its process died at, `generated_tokens` what vLLM
    generated of responses.
    """

    prompt: str
    voters: float
    majority_count: float
    majority: int | None
    effective_labels: float
    missing: float
    truncated: float
    penalized: float
    prompt_weight: float
    residual_timeouts: float
    residual_deaths: float
    generated_tokens: int
    positive: Floats
    negative: Floats


def step_votes(groups: Sequence[GroupVote]) -> StepVotes:
    """Statistics of one step's groups.

    `prompts_digest` is equal for two steps exactly when they trained on the same prompts in any order.
    `majority_histogram[c]` counts the groups whose majority has c voters, c = 0..n. `low_consensus_share` counts
    the groups the method penalised. The norms are Euclidean over all trained rollouts, u_x included.
    """
    voters = sum(group.voters for group in groups)
    histogram = np.bincount(
        [int(group.majority_count) for group in groups], minlength=int(max(group.voters for group in groups)) + 1
    )
    return StepVotes(
        prompts=len(groups),
        voters=int(voters),
        prompts_digest=hashlib.sha256("\0".join(sorted(group.prompt for group in groups)).encode()).hexdigest()[:16],
        majority_share_mean=float(np.mean([group.majority_count / group.voters for group in groups])),
        low_consensus_share=float(np.mean([group.penalized for group in groups])),
        unanimous_share=float(np.mean([group.majority_count == group.voters for group in groups])),
        effective_labels_mean=float(np.mean([group.effective_labels for group in groups])),
        missing_share_of_voters=sum(group.missing for group in groups) / voters,
        truncated_share_of_voters=sum(group.truncated for group in groups) / voters,
        top_answer_share=top_answer_share([group.majority for group in groups]),
        advantage_pos_norm=float(np.linalg.norm(np.concatenate([group.positive for group in groups]))),
        advantage_neg_norm=float(np.linalg.norm(np.concatenate([group.negative for group in groups]))),
        prompt_weight_mean=float(np.mean([group.prompt_weight for group in groups])),
        residual_timeouts=int(sum(group.residual_timeouts for group in groups)),
        residual_deaths=int(sum(group.residual_deaths for group in groups)),
        generated_tokens=sum(group.generated_tokens for group in groups),
        majority_histogram=tuple(int(count) for count in histogram),
    )


def top_answer_share(majorities: Sequence[Hashable | None]) -> float:
    """Share of prompts whose majority answer is the one most common across prompts: near 1 means a template answer.

    None: no rollout of that prompt gave an answer.
    """
    given = Counter(majority for majority in majorities if majority is not None)
    return given.most_common(1)[0][1] / len(majorities) if given else 0.0
