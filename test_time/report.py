"""The report of an adaptation as a page: accuracies, how the run ended, answers and curves."""

from collections.abc import Sequence

from restrain_openrlhf.evaluation.figures import (
    PageTable,
    Picture,
    load_curves,
    save_run_figures,
    write_page,
)
from test_time.adaptation import REPORT, Adaptation
from test_time.outcome import BeforeAndAfter, Outcome, Prediction, Score

MAX_ROWS = 50


def write_report(job: Adaptation, outcome: Outcome, rows: Sequence[Prediction]) -> None:
    """Write report.html and its pictures."""
    training, votes = save_run_figures([load_curves(job.training.path)], job.out / "plots")
    write_page(
        job.out / REPORT,
        title=f"Test-time adaptation: {outcome.name}",
        lead=lead(outcome),
        tables=[*comparison_table(outcome), *score_table(outcome), run_table(outcome), answers_table(rows)],
        pictures=[Picture("Votes during training", votes), Picture("Training", training)],
    )


def lead(outcome: Outcome) -> str:
    """The result in a few sentences, with the accuracy of the returned answers and of the base model."""
    text = (
        f"{outcome.problems} answers, {outcome.changed} of them changed by the adaptation. "
        f"Each is the majority of {outcome.votes} rollouts at {sampling(outcome)}."
    )
    text += f" {outcome.ending} Its votes are the answers." if outcome.ending else ""
    if outcome.last_step is not None:
        text += f" The newest model, of step {outcome.last_step}, gives {outcome.last_differs} other answers."
    return text if outcome.comparison is None else f"{text} {_worth(outcome.comparison)}"


def sampling(outcome: Outcome) -> str:
    """How the votes that gave the answers were sampled, in words."""
    return f"T {outcome.vote_temperature:g}, top-p {outcome.vote_top_p:g}, as in evaluations"


def _worth(found: BeforeAndAfter) -> str:
    text = (
        f"Right: {_share(found.right, found)}. The base model alone: {found.greedy_before:.1%} with greedy answers, "
        f"{_share(found.right_before, found)} with such majorities."
    )
    if found.base_is_better:
        return f"{text} The base model is better: use it without the adaptation."
    return text if found.is_better else f"{text} The adaptation gained nothing."


def _share(right: int, found: BeforeAndAfter) -> str:
    return f"{right / found.problems:.1%} ({right} of {found.problems})"


def score_table(outcome: Outcome) -> list[PageTable]:
    """A table of the policies. The first row is the base model, whose large vote an adaptation has to beat."""
    if not outcome.scores:
        return []
    accuracies = ["greedy pass@1", "pass@1 at T 0.6", "95 % over problems", "maj@n"]
    title = f"The problems adapted to, {outcome.scores[0].problems}"
    return [PageTable(title, ["policy", *accuracies, "n"], list(map(_score_cells, outcome.scores)))]


def _score_cells(score: Score) -> list[str]:
    return [
        score.policy,
        f"{score.greedy:.1%}",
        f"{score.pass_at_1:.1%}",
        f"{score.low:.1%} – {score.high:.1%}",
        f"{score.maj_at_n:.1%}",
        str(score.n),
    ]


def comparison_table(outcome: Outcome) -> list[PageTable]:
    """A table of the problems that the answers solve and the base model's vote does not, and the reverse."""
    found = outcome.comparison
    if found is None:
        return []
    rows = [
        ["newly solved", str(len(found.solved)), ", ".join(map(str, found.solved))],
        ["kept", str(found.kept), ""],
        ["lost", str(len(found.lost)), ", ".join(map(str, found.lost))],
    ]
    return [PageTable(f"The answers handed back, votes of {outcome.votes}", ["", "problems", "ids"], rows)]


def run_table(outcome: Outcome) -> PageTable:
    """A table of how the run was made and how it ended."""
    rows = [
        ["base model", outcome.model],
        ["method", outcome.method],
        ["configuration", outcome.configuration],
        ["votes that give answers", f"{outcome.votes} rollouts per problem at {sampling(outcome)}"],
        ["steps", str(outcome.steps)],
        ["ended early", "yes" if outcome.stopped else "no"],
        ["alarm", outcome.alarm or "none"],
        ["last good model", f"step {outcome.chosen_step}: {outcome.chosen_model}"],
        ["signals not logged, so not watched", ", ".join(outcome.unwatched) or "none"],
    ]
    return PageTable("The run", ["", ""], rows)


def answers_table(rows: Sequence[Prediction]) -> PageTable:
    """A table of answers: first those that changed, then those with the smallest vote shares."""
    ordered = sorted(rows, key=lambda row: (not row.changed, row.vote_share))[:MAX_ROWS]
    part = "" if len(rows) <= MAX_ROWS else f": those that changed, then the least sure ({MAX_ROWS} of {len(rows)})"
    header = ["id", "answer", "votes", "runner-up", "votes", "before", "votes"]
    if any(row.last_share is not None for row in ordered):
        header += ["newest model", "votes"]
    return PageTable(f"Answers{part}", header, list(map(_answer_cells, ordered)))


def _answer_cells(row: Prediction) -> list[str]:
    votes = [(row.answer, row.vote_share), (row.runner_up, row.runner_up_share), (row.before, row.before_share)]
    votes += [] if row.last_share is None else [(row.last, row.last_share)]
    return [str(row.id), *(cell for answer, share in votes for cell in (answer or "–", f"{share:.0%}"))]
