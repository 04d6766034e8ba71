"""Runs the demo: the task, the offline pass, training by each method, evaluation before and after, and the report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.commands.demo.report import MethodResult, train_folder, write_report
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import WORDS, DemoTask
from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.evaluation.result import accuracy
from restrain_openrlhf.hook.launch.progress import OnPhase, OnStep, numbered
from restrain_openrlhf.hook.launch.train import train
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.metrics import read_steps
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import sample_reference

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
