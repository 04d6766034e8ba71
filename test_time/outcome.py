"""The results of an adaptation: an answer for every problem, and result.json, from which reports are made."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.reference import Reference, ReferenceRow
from test_time.accuracy import Score
from test_time.training import Trained


class Prediction(BaseModel, frozen=True):
    """The answer to one problem, its vote share, the runner-up, and the base model's answer before the adaptation."""

    id: str | int | None
    answer: str | None
    vote_share: float
    runner_up: str | None
    runner_up_share: float
    before: str | None
    before_share: float
    changed: bool


class BeforeAndAfter(BaseModel, frozen=True):
    """The answers graded by gold: numbers of problems, and the ids of problems newly solved and lost.

    `right_before` counts right answers of the base model's vote; `greedy_before` is its greedy pass@1 in [0, 1].
    """

    problems: int
    right: int
    right_before: int
    greedy_before: float
    solved: tuple[str | int, ...]
    kept: int
    lost: tuple[str | int, ...]

    @property
    def base_is_better(self) -> bool:
        """Whether the base model's own answers, which need no training, are right more often."""
        return self.right < self._base_right

    @property
    def is_better(self) -> bool:
        return self.right > self._base_right

    @property
    def _base_right(self) -> int:
        """The right answers of the base model, by its vote or greedily, whichever has more.

        The product must be rounded, because 25 / 83 * 83 is above 25.
        """
        return max(self.right_before, round(self.greedy_before * self.problems))


class Outcome(Trained, frozen=True):
    """`result.json`: how training went, how answers were drawn and, with gold, how many are right.

    Each answer, and the base model's, is a vote of `votes` rollouts at `vote_temperature` and `vote_top_p`.
    `comparison` and `scores` need gold. `heldout` names those sets of the scores that were not trained on.
    """

    name: str
    model: str
    method: str
    configuration: str
    problems: int
    votes: int
    vote_temperature: float
    vote_top_p: float
    changed: int
    comparison: BeforeAndAfter | None
    scores: tuple[Score, ...]
    heldout: tuple[str, ...]


def predictions(before: Reference, after: Reference, ids: Sequence[str], kind: AnswerKind) -> list[Prediction]:
    """One prediction per problem, in the order of `ids`, which votes of several engines do not have."""
    base, adapted = ({str(row.id): row for row in votes.rows} for votes in (before, after))
    return [_prediction(base[one], adapted[one], kind) for one in ids]


def _prediction(before: ReferenceRow, after: ReferenceRow, kind: AnswerKind = MATHEMATICS) -> Prediction:
    """The prediction of one problem. Shares are of all rollouts; a missing answer is None with share 0.

    It does not depend on the order of rollouts, and equal answers in two forms are no change.
    """
    (base, base_share), *_ = _ranked(before)
    (answer, share), (second, second_share), *_ = _ranked(after)
    first, last = kind.classes([base, answer], after.row)
    return Prediction(
        id=after.id,
        answer=answer,
        vote_share=share,
        runner_up=second,
        runner_up_share=second_share,
        before=base,
        before_share=base_share,
        changed=first != last,
    )


def _ranked(row: ReferenceRow) -> list[tuple[str | None, float]]:
    return [*((answer, votes / row.n) for answer, votes in row.group.ranked()), (None, 0.0), (None, 0.0)]


def compare(
    rows: Sequence[Prediction],
    gold: Mapping[str, str],
    greedy_before: float,
    kind: AnswerKind = MATHEMATICS,
    problems: Sequence[PromptOnly] = (),
) -> BeforeAndAfter:
    """Grade the returned answers and the base model's by gold, which holds answers by id.

    `problems` have the columns that their `kind` of answer reads, including gold's.

    Every problem must have gold; `check_gold` refuses other sets before training.
    """
    own = {each.id: kind.graded_row(each.text, each.row) for each in problems}
    right = {
        row.id: [kind.is_right(one, gold[str(row.id)], own.get(str(row.id), {})) for one in (row.before, row.answer)]
        for row in rows
        if row.id is not None
    }
    return BeforeAndAfter(
        problems=len(rows),
        right=sum(after for _, after in right.values()),
        right_before=sum(before for before, _ in right.values()),
        greedy_before=greedy_before,
        solved=tuple(one for one, (before, after) in right.items() if after and not before),
        kept=sum(before and after for before, after in right.values()),
        lost=tuple(one for one, (before, after) in right.items() if before and not after),
    )
