"""Results of an adaptation: an answer for every problem, and result.json, from which reports and tables are made."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.data.gold import PromptOnly
from restrain_openrlhf.reference import Reference, ReferenceRow
from test_time.accuracy import Score
from test_time.training import Trained


class Prediction(BaseModel, frozen=True):
    """One problem: the majority answer and its vote share, the runner-up, and the base model's majority."""

    id: str | int | None
    answer: str | None
    vote_share: float
    runner_up: str | None
    runner_up_share: float
    before: str | None
    before_share: float
    changed: bool


class BeforeAndAfter(BaseModel, frozen=True):
    """The answers of predictions.jsonl with gold: numbers of problems, and the ids of those newly solved and lost.

    `right_before` are right answers of the base model's vote; `greedy_before` its greedy pass@1, in [0, 1].
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
        """Whether the base model's own answers, which cost no training, are right more often."""
        return self.right < self._base_right

    @property
    def is_better(self) -> bool:
        return self.right > self._base_right

    @property
    def _base_right(self) -> int:
        """Of the base model's two ways to answer, that with more right answers. 25 / 83 * 83 is above 25."""
        return max(self.right_before, round(self.greedy_before * self.problems))


class Outcome(Trained, frozen=True):
    """`result.json`: how training went, the answers and, with gold, what they are worth.

    `votes` rollouts per problem, at `vote_temperature` and `vote_top_p`, gave each answer, and the base model's.
    `comparison` and `scores` need gold. `heldout` names the sets among the scores that were not trained on.
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


def predictions(before: Reference, after: Reference, ids: Sequence[str]) -> list[Prediction]:
    """One prediction per problem, in the order of `ids`; votes of several engines come in another."""
    base, adapted = ({str(row.id): row for row in votes.rows} for votes in (before, after))
    return [_prediction(base[one], adapted[one]) for one in ids]


def _prediction(before: ReferenceRow, after: ReferenceRow) -> Prediction:
    """Shares are of all rollouts; None with share 0 stands for an answer that there is none of."""
    ranked: list[tuple[str | None, float]] = [(answer, votes / after.n) for answer, votes in after.group.ranked()]
    (answer, share), (second, second_share) = [*ranked, (None, 0.0), (None, 0.0)][:2]
    return Prediction(
        id=after.id,
        answer=answer,
        vote_share=share,
        runner_up=second,
        runner_up_share=second_share,
        before=before.majority,
        before_share=before.majority_share,
        changed=before.majority_key != after.majority_key,
    )


def compare(
    rows: Sequence[Prediction],
    gold: Mapping[str, str],
    greedy_before: float,
    kind: AnswerKind = MATHEMATICS,
    problems: Sequence[PromptOnly] = (),
) -> BeforeAndAfter:
    """The answers as they are handed back, and the base model's, graded by gold (answers by id).

    `problems` have what their `kind` of answer reads of them, gold's columns included.

    There is gold for every problem: `check_gold` refuses others before training.
    """
    own = {each.id: kind.graded_row(each.problem, each.row) for each in problems}
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
