"""The report of the demo: held-out accuracy by method, how often majorities are right, and the votes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import BaseModel, ValidationError

from restrain_openrlhf.data.demo_tasks.tasks import DemoTask
from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.estimators import SizeRow, reliability
from restrain_openrlhf.evaluation.figures.curves import draw_reliability, load_curves, save_run_figures
from restrain_openrlhf.evaluation.figures.page import PageTable, Picture, save_figures, write_page
from restrain_openrlhf.evaluation.grade import grade_vote
from restrain_openrlhf.evaluation.result import Scores
from restrain_openrlhf.records.metrics import read_held_out
from restrain_openrlhf.reference import load_reference

RESULT_FILE = "result.json"
# If more of the majorities than this share are one answer, the result says so.
TEMPLATE_SHARE = 0.5


class MethodResult(BaseModel, frozen=True):
    """The result of one method, from k responses to each held-out problem, in a file that later reports read.

    `top_answer_share` is the share of prompts, in the last training step, whose majority answer is the most common one.
    """

    method: str
    problems: int
    k: int
    before: Scores
    after: Scores
    top_answer_share: float

    def write(self, folder: Path) -> None:
        write_whole(folder / RESULT_FILE, self.model_dump_json() + "\n")

    @classmethod
    def read(cls, path: Path) -> "MethodResult":
        """The result that an earlier run wrote. Raises RunError if another version wrote it."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError:
            raise RunError(
                f"{path}: is not a result of this version's demo. Remove its folder, or choose another --out."
            ) from None


def results_in(out: Path) -> list[MethodResult]:
    """The results of all methods in a demo's folder, best first."""
    found = [MethodResult.read(path) for path in out.glob(f"*/{RESULT_FILE}")]
    return sorted(found, key=lambda result: -result.after.pass_at_1)


def write_report(out: Path, task: DemoTask) -> Path:
    """Write report.html and its figures into the demo's folder. Returns the page's path.

    The report compares all methods that ran in the folder, this time or earlier.
    """
    results = results_in(out)
    page = out / "report.html"
    write_page(
        page,
        title=f"Label-free training on {task.about}",
        lead=" ".join(map(sentence, results)),
        tables=[_accuracies(results)],
        pictures=_pictures(out, results),
    )
    return page


def train_folder(out: Path, method: str) -> Path:
    return out / method / "train"


def sentence(result: MethodResult) -> str:
    """What happened to the policy of one method, in a sentence or two."""
    before, after, k = result.before, result.after, result.k
    moved = "rose" if after.low > before.high else "fell" if after.high < before.low else "hardly moved,"
    text = (
        f"{result.method}: pass@1 on {result.problems} held-out problems {moved} from {before.pass_at_1:.1%} (base "
        f"model) to {after.pass_at_1:.1%} (trained model), and the accuracy of maj@{k} went from "
        f"{before.maj_at_k[k]:.1%} to {after.maj_at_k[k]:.1%}."
    )
    if result.top_answer_share < TEMPLATE_SHARE:
        return text
    return f"{text} At the end {result.top_answer_share:.0%} of its majorities are one and the same answer."


def _accuracies(results: Sequence[MethodResult]) -> PageTable:
    k = results[0].k
    rows = [["base model", *_accuracy(results[0].before, k), ""]]
    for result in results:
        gain = f"{100 * (result.after.pass_at_1 - result.before.pass_at_1):+.1f}"
        rows.append([result.method, *_accuracy(result.after, k), gain])
    header = [
        "policy",
        "pass@1",
        "95 % over problems",
        "95 % over samples",
        f"maj@{k}",
        "without an answer",
        "gain in points",
    ]
    return PageTable("Held-out accuracy", header, rows)


def _accuracy(value: Scores, k: int) -> list[str]:
    problems = f"{value.low:.1%} to {value.high:.1%}"
    samples = "–" if value.samples_low is None else f"{value.samples_low:.1%} to {value.samples_high:.1%}"
    return [f"{value.pass_at_1:.1%}", problems, samples, f"{value.maj_at_k[k]:.1%}", f"{value.missing_share:.1%}"]


def _pictures(out: Path, results: Sequence[MethodResult]) -> list[Picture]:
    runs = [replace(load_curves(train_folder(out, each.method)), name=each.method) for each in results]
    training, votes, speed, *majorities = save_run_figures(runs, out / "plots")
    reliable = draw_reliability(base_reliability(out), "the base model, before any training")
    curves, sizes = save_figures({"curves": draw_curves(out, results), "reliability": reliable}, out / "plots")
    return [
        Picture("Held-out pass@1 by training step", curves),
        Picture("Is the majority right? By the number of rollouts in it", sizes),
        Picture("Votes during training", votes),
        *(Picture(f"Size of the majority: {run.name}", path) for run, path in zip(runs, majorities, strict=True)),
        Picture("Training", training),
        Picture("Times and speed", speed),
    ]


def draw_curves(out: Path, results: Sequence[MethodResult]) -> Figure:
    """A figure of held-out pass@1 by step, with a line per method, and a dashed line for the base model's majority."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for result in results:
        rows = read_held_out(train_folder(out, result.method))
        axes.plot([row.step for row in rows], [row.pass_at_1 for row in rows], marker="o", label=result.method)
    before, k = results[0].before, results[0].k
    axes.axhline(before.maj_at_k[k], linestyle="--", color="gray", label=f"maj@{k} of the base model")
    axes.set(xlabel="training step", ylabel="held-out pass@1", ylim=(-0.03, 1.03))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def base_reliability(out: Path) -> list[SizeRow]:
    """How often the base model's majorities on training prompts are right, by their size.

    Their gold answers are only read here, after training, for the figure.
    """
    gold = load_gold(out / "prompts-with-gold.jsonl").by_problem
    reference = load_reference(out / "reference.jsonl")
    kind = reference.provenance.kind
    return reliability([grade_vote(row, gold[row.problem_hash], kind) for row in reference.rows])
