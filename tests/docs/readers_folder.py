"""The folder in which a page's reader types: a checkout, and what earlier or heavy commands of the page have made."""

import shutil
from functools import cache
from pathlib import Path

from restrain_openrlhf.commands.demo import Demo, write_task
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE, WORDS
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.sources import DAPO14K
from restrain_openrlhf.hook.run_log import append_step
from restrain_openrlhf.records.folder import RunFolder
from tests.commands.view.runs import boxed, scored_group, write_run
from tests.conftest import ROOT
from tests.evaluation.test_table import result
from tests.evaluation.test_table import write_run as write_evaluation
from tests.hook.test_trainer_metrics import votes
from tests.reference.made import write_reference

PRESETS = ("one_gpu/24gb/qwen3-0.6b-base", "dapo14k/qwen3-4b-base/restrain")
THEIRS = """\
extends: cpu/demo
method: {{kappa: {0}}}
run_dir: runs/{1}
reference: ref.jsonl
openrlhf:
  data.prompt_dataset: runs/demo/prompts.jsonl
  eval.dataset: runs/demo/heldout.jsonl
  eval.steps: 5
  data.label_key: answer
"""
PROBLEMS = ("1 + 1?", "2 + 2?")
AGENT = ROOT / "examples" / "calculator_agent.py"


def fill(folder: Path) -> None:
    """The folder becomes the reader's."""
    for name in ("configs", "restrain_openrlhf", "examples"):
        (folder / name).symlink_to(ROOT / name)
    small_files(folder)
    finished_demo(folder / "runs" / "demo")
    for preset in PRESETS:
        prepared(folder, preset)
    finished_runs(folder)
    for name, kappa in (("mine", 2), ("other", 3)):
        (folder / f"{name}.yaml").write_text(THEIRS.format(kappa, name))
    chat_model(folder / "chat_model")
    for place in ("eval/base", "eval/mine", "eval/tuned"):
        write_evaluation(folder / place, result("math500", "MATH-500", 0.5, model=place.split("/")[1]))


def small_files(folder: Path) -> None:
    """Files of the reader's own."""
    rows = "".join(dump({"problem": problem}) for problem in PROBLEMS)
    for name in ("prompts.jsonl", "mine.jsonl"):
        (folder / name).write_text(rows)
    (folder / "m.jsonl").write_text(dump({"problem": PROBLEMS[0], "answer": "2"}))
    (folder / "mine.csv").write_text("q,a\n1 + 1?,2\n2 + 2?,4\n")
    (folder / "questions.csv").write_text("id,question\na,dog..threeten..=\n")
    (folder / "rollouts.jsonl").write_text(dump({"id": 1, "problem": "1 + 1?", "responses": boxed("2", "3")}))
    (folder / "copy.jsonl").write_text(copy_of_the_set())
    (folder / "train.sh").write_text("python -m openrlhf.cli.train_ppo_ray --data.prompt_dataset prompts.jsonl\n")
    (folder / "shared").mkdir()
    for name in ("method.yaml", "shared/method.yaml"):
        (folder / name).write_text("method: {name: restrain, prompt_weight: online}\n")
    (folder / "data").mkdir()
    (folder / "data" / "train.gold.jsonl").write_text(dump({"problem": PROBLEMS[0], "answer": "2"}))
    (folder / "benchmarks").mkdir()
    for name in ("math500", "amc23"):
        (folder / "benchmarks" / f"{name}.jsonl").write_text(dump({"problem": PROBLEMS[0], "answer": "2"}))
    (folder / "token").write_text("0123456789abcdef" * 2)


@cache
def copy_of_the_set() -> str:
    """As many rows as DAPO-14k has, in its columns."""
    return "".join(dump({"prompt": f"{n} + 1?", "solution": str(n + 1)}) for n in range(DAPO14K.count))


def finished_runs(folder: Path) -> None:
    """`runs/mine`, with its model; and two others that kept their groups."""
    for name in ("mine", "a", "b"):
        save_model(kept(folder / "runs" / name))


def chat_model(folder: Path) -> None:
    """A small model in the place of SmolLM2, with a chat template."""
    shutil.copytree(WORDS.model, folder)
    template = "{% for turn in messages %}{{ turn['content'] }}{{ eos_token }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)


def save_model(run: Path) -> None:
    """The model that a training saves at its end."""
    shutil.copytree(PREMISE.model, RunFolder(run).model, dirs_exist_ok=True)


def finished_demo(out: Path) -> None:
    out.mkdir(parents=True)
    write_task(Demo(out, WORDS))
    problems = [each.problem for each in WORDS.training_set(64)]
    write_reference(out / "reference.jsonl", {problem: ["rot", "rot", "unknown"] for problem in problems})
    for method in WORDS.methods:
        kept(out / method / "train", problems[0])


def prepared(folder: Path, preset: str) -> None:
    """The prompts of a preset, their votes, and a run that has ended."""
    config = load_run_config(find_config(preset))
    prompts = folder / config.openrlhf["data.prompt_dataset"]
    prompts.parent.mkdir(exist_ok=True)
    prompts.write_text("".join(dump({"problem": problem}) for problem in PROBLEMS))
    reference(folder / config.reference, config)
    kept(folder / config.run_dir)


def reference(path: Path, config: RunConfig) -> None:
    """Votes of a configuration's model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"model": flags_of(config)["actor.model_name_or_path"]}
    write_reference(path, {"1 + 1?": [*["2"] * 15, "3"], "2 + 2?": ["4"] * 16}, **made)


def kept(folder: Path, prompt: str = PROBLEMS[0]) -> Path:
    """A run of two steps that kept a group."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in (1, 2):
        append_step(folder / "metrics.jsonl", step, {"kl": 0.1}, votes())
    return write_run(folder, [scored_group(1, 0, prompt, boxed("2", "2", "3"))])
