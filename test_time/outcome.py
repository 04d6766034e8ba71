"""Results of an adaptation: an answer for every problem, and result.json, from which reports and tables are made."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.answers import classes
from restrain_openrlhf.answers.votes import ranked_answers
from restrain_openrlhf.evaluation.grade import grade_answers
from restrain_openrlhf.records.collapse import Collapse
from restrain_openrlhf.reference import Reference, ReferenceRow
from test_time.accuracy import Score


class Prediction(BaseModel):
    """One problem: the majority answer and its vote share, the runner-up, and the base model's majority."""

    model_config = ConfigDict(frozen=True)

    id: str | int | None
    answer: str | None
    vote_share: float
    runner_up: str | None
    runner_up_share: float
    before: str | None
    before_share: float
    changed: bool


class BeforeAndAfter(BaseModel):
    """The answers of predictions.jsonl with gold: numbers of problems, and the ids of those newly solved and lost.

    `right_before` are right answers of the base model's vote; `greedy_before` its greedy pass@1, in [0, 1].
    """

    model_config = ConfigDict(frozen=True)

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
        return self.right < max(self.right_before, self.greedy_before * self.problems)


class Outcome(BaseModel):
    """`result.json`. Steps are training steps; `chosen_step` 0: the answers are the base model's.

    `votes` rollouts per problem, at `vote_temperature` and `vote_top_p`, gave each answer, and the base model's.

    `alarm` is the rule that fired, whether it `ended_early` the run or not. `unwatched` are signals that were not
    logged. `collapse` is the Model Collapse Step of the training. `comparison` and `scores` need gold. `heldout` names
    the sets among the scores that were not trained on.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    model: str
    method: str
    configuration: str
    problems: int
    steps: int
    alarm: str | None
    ended_early: bool
    unwatched: tuple[str, ...]
    collapse: Collapse
    chosen_step: int
    chosen_model: str
    best_step: int
    best_model: str
    votes: int
    vote_temperature: float
    vote_top_p: float
    changed: int
    comparison: BeforeAndAfter | None
    scores: tuple[Score, ...]
    heldout: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


def predictions(before: Reference, after: Reference, ids: Sequence[str]) -> list[Prediction]:
    """One prediction per problem, in the order of `ids`; votes of several engines come in another."""
    base, adapted = ({str(row.id): row for row in votes.rows} for votes in (before, after))
    return [_prediction(base[one], adapted[one]) for one in ids]


def _prediction(before: ReferenceRow, after: ReferenceRow) -> Prediction:
    """Shares are of all rollouts; None with share 0 stands for an answer that there is none of."""
    ranked = [(answer, votes / after.n) for answer, votes in ranked_answers(after.answers)]
    (answer, share), (second, second_share) = [*ranked, (None, 0.0), (None, 0.0)][:2]
    return Prediction(
        id=after.id,
        answer=answer,
        vote_share=share,
        runner_up=second,
        runner_up_share=second_share,
        before=before.majority,
        before_share=before.majority_share,
        changed=len(set(classes([before.majority, answer]))) > 1,
    )


def compare(rows: Sequence[Prediction], gold: Mapping[str, str], greedy_before: float) -> BeforeAndAfter:
    """The answers as they are handed back, and the base model's, graded by gold (answers by id).

    There is gold for every problem: `check_gold` refuses others before training.
    """
    right = {
        row.id: grade_answers(str(row.id), (row.before, row.answer), gold[str(row.id)]).correct
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
