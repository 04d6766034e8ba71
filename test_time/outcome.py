"""What an adaptation gives: an answer for every problem and, with gold, what the answers and both models are worth."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.data.gold import ProblemIdentity, PromptOnly, load_gold
from restrain_openrlhf.evaluation.grade import grade_answers
from restrain_openrlhf.evaluation.result import Scores, ScoresSoFar
from restrain_openrlhf.records.folder import Completion
from restrain_openrlhf.reference import Reference, ReferenceRow
from test_time.adaptation import Adaptation, Plan
from test_time.problems import load_problems, refuse

BASE, ADAPTED = "base model", "adapted model"


class Prediction(BaseModel, frozen=True):
    """The answer to one problem, its vote share, the runner-up, and the base model's answer before the adaptation.

    `last` is the answer of the newest model, if `answer` is that of an earlier one; `last_differs` if it is not equal.
    """

    id: str
    answer: str | None
    vote_share: float
    runner_up: str | None
    runner_up_share: float
    before: str | None
    before_share: float
    changed: bool
    last: str | None = None
    last_share: float | None = None
    last_differs: bool = False


class BeforeAndAfter(BaseModel, frozen=True):
    """The answers graded by gold: numbers of problems, and the ids of problems newly solved and lost.

    `right_before` counts right answers of the base model's vote; `greedy_before` is its greedy pass@1 in [0, 1].
    """

    problems: int
    right: int
    right_before: int
    greedy_before: float
    solved: tuple[str, ...]
    kept: int
    lost: tuple[str, ...]

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


class Score(Scores, frozen=True):
    """One policy on the test set: `greedy` pass@1 in [0, 1], and the scores of its `n` votes."""

    policy: str
    problems: int
    greedy: float
    n: int


class Outcome(Completion, frozen=True):
    """`result.json`: how training went, how answers were drawn and, with gold, how many are right.

    Each answer, and the base model's, is a vote of `votes` rollouts at `vote_temperature` and `vote_top_p`. `last_step`
    is that of the newest model, if the answers are those of an earlier one, and `last_differs` of them are others.
    `comparison` and `scores` need gold.
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
    last_step: int | None = None
    last_differs: int = 0
    comparison: BeforeAndAfter | None = None
    scores: tuple[Score, ...] = ()


def predictions(
    before: Reference, after: Reference, ids: Sequence[str], kind: AnswerKind, last: Reference | None = None
) -> list[Prediction]:
    """One prediction per problem, in the order of `ids`, which votes of several engines do not have."""
    base, adapted = _by_id(before), _by_id(after)
    found = [_prediction(base[one], adapted[one], kind) for one in ids]
    if last is None:
        return found
    newest = _by_id(last)
    return [_with_last(each, newest[each.id], kind) for each in found]


def _with_last(found: Prediction, newest: ReferenceRow, kind: AnswerKind) -> Prediction:
    answer, share = _ranked(newest)[0]
    first, last = kind.classes([found.answer, answer], newest.row)
    return found.model_copy(update={"last": answer, "last_share": share, "last_differs": first != last})


def _by_id(votes: Reference) -> dict[str, ReferenceRow]:
    return {str(row.id): row for row in votes.rows}


def _prediction(before: ReferenceRow, after: ReferenceRow, kind: AnswerKind = MATHEMATICS) -> Prediction:
    """The prediction of one problem. Shares are of all rollouts; a missing answer is None with share 0.

    It does not depend on the order of rollouts, and equal answers in two forms are no change.
    """
    (base, base_share), *_ = _ranked(before)
    (answer, share), (second, second_share), *_ = _ranked(after)
    first, last = kind.classes([base, answer], after.row)
    return Prediction(
        id=str(after.id),
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
    answers: Sequence[Prediction],
    gold: Mapping[str, str],
    greedy_before: float,
    kind: AnswerKind,
    rows: Mapping[str, Row],
) -> BeforeAndAfter:
    """Grade the returned answers and the base model's. `gold` and `rows` are by id; see `worth`."""
    right = {
        each.id: [kind.is_right(one, gold[each.id], rows[each.id]) for one in (each.before, each.answer)]
        for each in answers
    }
    return BeforeAndAfter(
        problems=len(answers),
        right=sum(after for _, after in right.values()),
        right_before=sum(before for before, _ in right.values()),
        greedy_before=greedy_before,
        solved=tuple(one for one, (before, after) in right.items() if after and not before),
        kept=sum(before and after for before, after in right.values()),
        lost=tuple(one for one, (before, after) in right.items() if before and not after),
    )


def gold_of(job: Adaptation, problems: Sequence[PromptOnly]) -> Mapping[str, str]:
    """The gold answers by the problem's id, from the gold file or else from the benchmark.

    Raises DataError for a file that is damaged or answers other problems, and naming the problems without an answer.
    """
    if job.gold is None:
        found = {problem.id: problem.answer for problem in job.problems.load().problems}
    else:
        kind = job.kind or MATHEMATICS
        asked = [ProblemIdentity.of(row.id, row.text, kind.row(row.text, row.row)) for row in problems]
        answers = load_gold(job.gold, kind).answers(job.problems.word, asked)
        found = {str(each.id): answers[each.problem] for each in asked if each.problem in answers}
    missing = [each.id for each in problems if each.id not in found]
    advice = "Add them: a row is found by its problem's text where it has one, and by its id else."
    refuse(str(job.gold or job.problems.word), "has no answer for these ids", missing, advice)
    return found


def graded_rows(job: Adaptation, plan: Plan) -> dict[str, Row]:
    """What grading reads of each problem, by its id: also the columns of gold, which training never reads."""
    kind = plan.config.answers
    golden = {each.id: each.row for each in load_problems(job.problems, kind, graded=True)}
    return {each.id: kind.graded_row(each.text, {**golden[each.id], **each.row}) for each in plan.problems}


def worth(policy: str, votes: Reference, greedy: Reference, gold: Mapping[str, str], rows: Mapping[str, Row]) -> Score:
    """What one policy is worth, by the rollouts that vote on the answers and by its greedy ones.

    `gold` has the answers and `rows` what grading reads of each problem, both by the problem's id.
    """
    scores = _graded(votes, gold, rows)
    return Score(
        **scores.model_dump(),
        policy=policy,
        problems=len(votes.rows),
        greedy=_graded(greedy, gold, rows).pass_at_1,
        n=votes.provenance.n,
    )


def _graded(votes: Reference, gold: Mapping[str, str], rows: Mapping[str, Row]) -> Scores:
    found = ScoresSoFar()
    for vote in votes.rows:
        name = str(vote.id)
        found.add(grade_answers(name, vote.answers, gold[name], votes.kind, rows[name]))
    return found.scores(with_lengths=False)
