"""Every command that README and the tutorials print is run, in its page's order and as a reader would type it.

A command that needs hours or the network runs until it would start an engine or a training, or ask the hub: its
words, its configuration, and the files that it reads are all looked at before.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

import datasets  # noqa: E402
import huggingface_hub  # noqa: E402

from restrain_openrlhf.commands import main, study  # noqa: E402
from restrain_openrlhf.commands.demo.run import Demo, write_task  # noqa: E402
from restrain_openrlhf.commands.view import server  # noqa: E402
from restrain_openrlhf.config.command_line import find_config  # noqa: E402
from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: E402
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE, WORDS  # noqa: E402
from restrain_openrlhf.data.jsonl import dump  # noqa: E402
from restrain_openrlhf.evaluation import job  # noqa: E402
from restrain_openrlhf.hook.launch import train  # noqa: E402
from restrain_openrlhf.hook.logging.trainer import append_step  # noqa: E402
from restrain_openrlhf.machine import processes  # noqa: E402
from restrain_openrlhf.reference import all_gpus, offline_pass  # noqa: E402
from restrain_openrlhf.reference.offline_engine import Rollout, Sampling  # noqa: E402
from restrain_openrlhf.reference.prompts import Prompt  # noqa: E402
from test_time import cli as test_time  # noqa: E402
from tests.command_line import Done, call  # noqa: E402
from tests.commands.view.runs import boxed, scored_group, write_run  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.docs.printed import files_of, pieces  # noqa: E402
from tests.evaluation.test_table import result  # noqa: E402
from tests.evaluation.test_table import write_run as write_evaluation  # noqa: E402
from tests.hook.test_trainer_metrics import votes  # noqa: E402
from tests.reference.made import write_reference  # noqa: E402

PAGES = ["README.md", *(f"docs/start/{name}.md" for name in ("demo", "ten_minutes", "tutorial_train"))]
PAGES += ["docs/start/tutorial_test_set.md", "docs/start/tutorial_deployment.md"]
SCRIPTS: dict[str, Callable[[], None]] = {"restrain": main.main, "test-time": test_time.main}
# What a page leaves to its reader, and what stands there in a test.
PLACEHOLDERS = {
    "CONFIG": "cpu/test_time",
    "MODEL": str(WORDS.model),
    "your whole command": "python -m openrlhf.cli.train_ppo_ray --data.prompt_dataset p.jsonl --vllm.num_engines 1",
}
THEIRS = """\
extends: cpu/demo
method: {{kappa: {0}}}
run_dir: runs/kappa-{0}
reference: votes.jsonl
openrlhf:
  data.prompt_dataset: runs/demo/prompts.jsonl
  eval.dataset: runs/demo/heldout.jsonl
  eval.steps: 5
  data.label_key: answer
"""
# Where this machine's part ends: the rest needs the network, or a GPU.
ENDS_HERE = (
    "could not be downloaded from the hub",
    "neither the hub nor its local cache has it",
    "no GPU was found on this machine",
)
# A page shows this refusal, and what it lists.
REFUSED = {"restrain view runs/demo": "is not a run's folder. View one of the runs inside"}


class HeavyWorkError(Exception):
    """An engine, a training or a server would start here."""


class EngineByRule:
    """Every answer is its prompt's length, and so a pass is made at once."""

    def __init__(self, _model: str, sampling: Sampling, *_: object) -> None:
        self._n = sampling.n

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        return [[Rollout(str(len(each.text)), 5, truncated=False)] * self._n for each in prompts]


def in_this_process(words: Sequence[str], _log: Path) -> None:
    done = call(main.main, *words, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr


def heavy(*_given: object, **_more: object) -> None:
    raise HeavyWorkError


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (processes, "run_together"),
        (all_gpus, "run_together"),
        (study, "run_together"),
        (job, "RolloutEngine"),
        (train, "_run_host"),
        (server, "serve"),
    ):
        monkeypatch.setattr(module, name, heavy)
    monkeypatch.setattr(offline_pass, "RolloutEngine", EngineByRule)
    monkeypatch.setattr(offline_pass, "run_command", in_this_process)
    # Read at import, as the variable of that name: a hub that does not answer is asked again and again.
    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a reader types, with what the heavy commands of the pages would have made."""
    for name in ("configs", "restrain_openrlhf"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    finished_demo(Path("runs/demo"))
    one_gpu = load_run_config(find_config("one_gpu/24gb/qwen3-0.6b-base"))
    kept(one_gpu.run_dir)
    prompts = Path(one_gpu.openrlhf["data.prompt_dataset"])
    prompts.parent.mkdir()
    prompts.write_text("".join(dump({"problem": problem}) for problem in ("1 + 1?", "2 + 2?")))
    for path in (one_gpu.reference, "ref-gpu.jsonl", "shared/ref.jsonl"):
        Path(path).parent.mkdir(exist_ok=True)
        write_reference(Path(path), {"1 + 1?": [*["2"] * 15, "3"], "2 + 2?": ["4"] * 16})
    Path("questions.csv").write_text("id,question\na,dog..threeten..=\n")
    Path("rollouts.jsonl").write_text('{"id": 1, "problem": "1 + 1?", "responses": ["\\\\boxed{2}", "\\\\boxed{3}"]}\n')
    for name, kappa in (("mine", 2), ("other", 3)):
        Path(f"{name}.yaml").write_text(THEIRS.format(kappa))
    for name in ("base", "mine"):
        write_evaluation(Path("eval") / name, result("math500", "MATH-500", 0.5, model=name))
    return tmp_path


def finished_demo(out: Path) -> None:
    out.mkdir(parents=True)
    write_task(Demo(out, PREMISE))
    problems = [each.problem for each in PREMISE.training_set(64)]
    write_reference(out / "reference.jsonl", {problem: ["1", "1", "?"] for problem in problems})
    for method in PREMISE.methods:
        kept(out / method / "train", problems[0])


def kept(folder: Path, prompt: str = "1 + 1?") -> None:
    """A run of two steps that kept a group."""
    folder.mkdir(parents=True)
    for step in (1, 2):
        append_step(folder / "metrics.jsonl", step, {"kl": 0.1}, votes())
    write_run(folder, [scored_group(1, 0, prompt, boxed("2", "2", "3"))])


def is_run(command: str) -> bool:
    """Not what only shows a form (`…`), and no listing of folders."""
    program = command.split(maxsplit=1)[0] if command.strip() else ""
    return program in {*SCRIPTS, "make", "cat", "head", "tail", "python"} and "…" not in command


def outcome(command: str) -> str:
    """Nothing where the command does what the page says, as far as this machine goes; else what went wrong."""
    program = command.split(maxsplit=1)[0]
    if program == "make":
        words = [*shlex.split(command, comments=True), "--dry-run"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    elif program not in SCRIPTS:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, env=environment, check=False)
    else:
        return of_ours(command, program)
    return "" if done.returncode == 0 else f"{command}: {done.stderr[-500:]}"


def of_ours(command: str, program: str) -> str:
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command, comments=True)[1:]]
    if words[0] == "demo":
        # Another demo than the finished one, which the page's other commands look at.
        words += ["--out", f"demo-{len(list(Path.cwd().glob('demo-*')))}"]
    try:
        done: Done = call(SCRIPTS[program], *words, cwd=Path.cwd())
    except HeavyWorkError:
        return ""
    said = done.stdout + done.stderr
    if command in REFUSED:
        return "" if done.returncode == 2 and REFUSED[command] in said else f"{command}: is not refused: {said[-500:]}"
    # `integrate` ends with 1 where its reader has to decide something.
    works = done.returncode == 0 or (words[0] == "integrate" and done.returncode == 1)
    return "" if works or any(end in said for end in ENDS_HERE) else f"{command}: {said[-500:]}"


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_prints_works(name: str, checkout: Path, light: None):
    page = (ROOT / name).read_text(encoding="utf-8").replace("/shared/", "shared/")
    for saved, text in list(files_of(page)):
        (checkout / saved).write_text(text)
        page = page.replace(text, "")
    for change in re.findall(r"```diff\n(.*?)```", page, re.DOTALL):
        shutil.copy("train.sh", "train-restrain.sh")
        subprocess.run(["patch", "train-restrain.sh"], input=change, text=True, check=True)
    commands = [each for each in pieces(page) if is_run(each)]
    assert len(commands) > 2
    assert [said for each in commands if (said := outcome(each.strip()))] == []
