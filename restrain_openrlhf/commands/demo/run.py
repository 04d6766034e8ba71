"""Runs the demo: the task, the offline pass, training by each method, evaluation before and after, and the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import BaseModel, ValidationError

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import WORDS, DemoTask
from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.figures import (
    PageTable,
    Picture,
    draw_reliability,
    load_curves,
    save_figures,
    save_run_figures,
    write_page,
)
from restrain_openrlhf.evaluation.grade import ReliabilitySoFar, SizeRow, grade_vote
from restrain_openrlhf.evaluation.result import Scores, accuracy
from restrain_openrlhf.hook.launch.progress import OnPhase, OnStep, numbered
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import read_held_out, read_steps
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import sample_reference

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
    training, votes, speed = save_run_figures(runs, out / "plots")
    reliable = draw_reliability(base_reliability(out), "the base model, before any training")
    curves, sizes = save_figures({"curves": draw_curves(out, results), "reliability": reliable}, out / "plots")
    return [
        Picture("Held-out pass@1 by training step", curves),
        Picture("Is the majority right? By the number of rollouts in it", sizes),
        Picture("Votes during training", votes),
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
    found = ReliabilitySoFar(reference.provenance.n)
    for row in reference.rows:
        found.add(grade_vote(row, gold[row.problem_hash], kind))
    return found.rows()


ROLLOUTS = 16
HELD_OUT_PROBLEMS = 200
# The parts of the demo for each method: votes, accuracy before, training, accuracy after.
PARTS = 4
REFERENCE_SEED, EVALUATION_SEED = 42, 7
# The host evaluates the held-out problems before training and every few steps.
EVALUATION: Mapping[str, object] = {
    "evaluate_first": True,
    "openrlhf.data.label_key": "answer",
    "openrlhf.eval.steps": 5,
    "openrlhf.eval.temperature": 1.0,
    "openrlhf.eval.n_samples_per_prompt": 8,
}


@dataclass(frozen=True)
class Demo:
    """A task and its output folder. Its methods share the prompts and the offline pass."""

    out: Path
    task: DemoTask = WORDS
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def reference(self) -> Path:
        """The frozen model's votes on the training prompts."""
        return self.out / "reference.jsonl"

    @property
    def heldout(self) -> Path:
        """Held-out problems with their answers."""
        return self.out / "heldout.jsonl"

    def trained(self, method: str) -> bool:
        """Whether training with this method has ended, so that it is not repeated."""
        return RunFolder(train_folder(self.out, method)).completed.exists()


def run_demo(
    demo: Demo,
    on_phase: OnPhase = lambda _name: None,
    on_step: OnStep = lambda _row, _total: None,
) -> tuple[list[MethodResult], Path]:
    """Run the demo, or resume it. Returns each method's result, and the path of the report.

    `on_phase` gets the name of each part when it begins, and `on_step` what `train` passes on. Raises a RestrainError
    with the log's last lines if a part fails.
    """
    configs = {method: configure(demo, method) for method in demo.task.methods}
    write_task(demo)
    on_phase = numbered(on_phase, PARTS * len(configs))
    results = [_run_method(demo, method, config, on_phase, on_step) for method, config in configs.items()]
    return results, write_report(demo.out, demo.task)


def write_task(demo: Demo) -> None:
    """Write the task's files. Answers are in files that only methods that read gold, and the report, get.

    Raises RunError, and changes nothing, if the folder has other problems.
    """
    heldout = demo.task.heldout_problems(HELD_OUT_PROBLEMS)
    if demo.heldout.exists() and load_gold(demo.heldout).by_problem.keys() != {text_hash(p.text) for p in heldout}:
        raise RunError(
            f"{demo.out}: holds a demo with other problems, so it is of another task than {demo.task.name!r}, or of "
            "another version. Choose another --out, or that task."
        )
    batch = int(load_run_config(find_config(demo.task.preset)).openrlhf["rollout.batch_size"])
    problems = demo.task.training_set(demo.task.steps * batch)
    write_prompts(demo.out / "prompts.jsonl", problems)
    write_gold(demo.out / "prompts-with-gold.jsonl", problems)
    write_gold(demo.heldout, heldout)


def configure(demo: Demo, method: str) -> RunConfig:
    """The demo's configuration with its paths. A method other than the file's gets its own default settings."""
    base = load_run_config(find_config(demo.task.preset), demo.overrides)
    settings = base.method if method == base.method.name else parse_settings({"name": method})
    built = build(settings)
    prompts = demo.out / ("prompts-with-gold.jsonl" if built.reads_gold else "prompts.jsonl")
    overrides: dict[str, object] = {
        **demo.overrides,
        **EVALUATION,
        "run_dir": str(train_folder(demo.out, method)),
        "reference": str(demo.reference),
        "reference_n": ROLLOUTS,
        "steps": demo.task.steps,
        "openrlhf.train.num_episodes": demo.task.steps,
        "openrlhf.actor.model_name_or_path": str(demo.task.model),
        "openrlhf.data.prompt_dataset": str(prompts),
        "openrlhf.eval.dataset": str(demo.heldout),
        "method": settings.model_dump(mode="json"),
    }
    config = load_run_config(find_config(demo.task.preset), overrides)
    return config if built.needs_reference else config.model_copy(update={"reference": None})


def _run_method(demo: Demo, method: str, config: RunConfig, on_phase: OnPhase, on_step: OnStep) -> MethodResult:
    """Sample missing rollouts of the base model, train, evaluate, and write the result."""
    before, after = demo.out / "before.jsonl", demo.out / method / "after.jsonl"
    after.parent.mkdir(parents=True, exist_ok=True)
    on_phase(f"{method}: the frozen model votes on every prompt{_reuse_note(demo.reference)}")
    _sample(demo.task.model, config, demo.out / "prompts.jsonl", demo.reference, REFERENCE_SEED)
    on_phase(f"{method}: held-out accuracy before{_reuse_note(before)}")
    _sample(demo.task.model, config, demo.heldout, before, EVALUATION_SEED)
    on_phase(f"{method}: training{' is finished' if demo.trained(method) else ', beginning with Ray and vLLM'}")
    run = train(config, on_step)
    on_phase(f"{method}: held-out accuracy after{_reuse_note(after)}")
    _sample(run.model, config, demo.heldout, after, EVALUATION_SEED)
    gold, rows = load_gold(demo.heldout).by_problem, load_reference(after).rows
    result = MethodResult(
        method=method,
        problems=len(rows),
        k=ROLLOUTS,
        before=accuracy(load_reference(before).rows, gold, config.answers),
        after=accuracy(rows, gold, config.answers),
        top_answer_share=float(read_steps(run.metrics)[-1].votes["top_answer_share"]),
    )
    result.write(demo.out / method)
    return result


def _reuse_note(rollouts: Path) -> str:
    return f" (what is in {rollouts.name} is kept)" if rollouts.exists() else ""


def _sample(model: Path, config: RunConfig, prompts: Path, out: Path, seed: int) -> None:
    """Sample rollouts of a model in a process of `restrain reference`. Existing rollouts are kept."""
    sample_reference(config, out, n=ROLLOUTS, model=str(model), prompts=str(prompts), seed=seed)
