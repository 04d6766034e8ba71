"""Every command of README and the journeys is typed, in the page's order, with the files that its reader has.

A command that needs hours or the network runs until it would start an engine, a training or a server, or ask the hub:
its words, its configuration, and the files that it reads are all looked at before. Of other programs only bash's own
and Python are run.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import datasets
import huggingface_hub
import matplotlib

from restrain_openrlhf.commands import main, study
from restrain_openrlhf.data.demo_tasks.tasks import WORDS
from restrain_openrlhf.evaluation import job
from restrain_openrlhf.hook.launch import train
from restrain_openrlhf.machine import processes
from restrain_openrlhf.records.folder import Completion, RunFolder
from restrain_openrlhf.reference import offline_pass, sampling_pass
from restrain_openrlhf.reference.offline_engine import Rollout, Sampling
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.scoring.service import server as service
from test_time import cli as test_time
from tests.command_line import Done, call
from tests.conftest import ROOT
from tests.docs.printed import files_of, typed
from tests.docs.readers_folder import AGENT, fill, save_model

PAGES = [
    "README.md",
    *(f"docs/journeys/{name}.md" for name in ("train", "own_task", "adapt", "integration", "evaluation", "rollouts")),
]
TO_SHARED = ("--max-new-tokens", 1024, "--out", "shared/ref.jsonl")
# What a page leaves to its reader, and what stands there in a test.
PLACEHOLDERS = {
    "your whole command": "python -m openrlhf.cli.train_ppo_ray --data.prompt_dataset p.jsonl --vllm.num_engines 1",
    "their_agent.py": str(AGENT),
    "--config CONFIG": "--config cpu/test_time",
    "CONFIG…": "mine.yaml other.yaml",
    "CONFIG": "mine.yaml",
    "KEY=VALUE": "method.kappa=2",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "chat_model",
    "MODEL": str(WORDS.model),
    "--model M": f"--model {WORDS.model}",
    "P.jsonl": "prompts.jsonl",
    "RUN": "runs/demo/ttrl/train",
    "--gold FILE": "--gold runs/demo/prompts-with-gold.jsonl",
    "--jobs N": "--jobs 2",
    "mine=m.jsonl": "mine=m.jsonl --max-new-tokens 64",
    "--benchmark-dir DIR": "--benchmark-dir benchmarks",
    "COPY": "copy.jsonl",
    "/shared/": "shared/",
    " …": "",
}
FORM = re.compile(rf"(?<![\w/.])(?:{'|'.join(map(re.escape, PLACEHOLDERS))})(?!\w)")
OPTIONAL = re.compile(r"\[(--[^]]+)\]")
# Where this machine's part ends: the rest needs the network, a GPU, or an evaluation that was left out.
ENDS_HERE = (
    "could not be downloaded",
    "neither the hub nor its local cache has it",
    "no GPU was found on this machine",
    "Finish all shards",
    # The reference that stands here for that of a preset is of prompts without a template.
    "was made for another template",
)


class HeavyWorkError(Exception):
    """An engine, a training or a server would start here."""


class EngineByRule:
    """Every answer is its prompt's length, or one capital in a sentence, and so a pass is made at once."""

    def __init__(self, _model: str, sampling: Sampling, *_: object) -> None:
        self._n = sampling.n

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        texts = ("It is Paris." if "capital" in each.text else str(len(each.text)) for each in prompts)
        return [[Rollout(text, 5, truncated=False)] * self._n for text in texts]


def in_this_process(words: Sequence[str], _log: Path, *_more: object) -> None:
    done = call(main.main, *words, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr


def heavy(*_given: object, **_more: object) -> None:
    raise HeavyWorkError


def trained(run: RunFolder, *_: object) -> NoReturn:
    """The training is left out, and the run's folder is as it leaves it."""
    from restrain_openrlhf.hook.run_log import append_step
    from tests.hook.test_trainer_metrics import votes

    save_model(run.path)
    for step in (1, 2):
        append_step(run.metrics, step, {"kl": 0.1 * step}, votes())
    run.mark_completed(Completion(steps=2))
    raise HeavyWorkError


def studied(commands: Sequence[processes.Command], *_: object, **_more: object) -> NoReturn:
    """The trainings of a study are left out, and each run's folder says its kind of answer and has a model."""
    for run in (command.log.with_suffix("") for command in commands):
        shutil.copytree("chat_model", RunFolder(run).model)
        (run / "run.json").write_text('{"answers": {"name": "text"}, "openrlhf": {"data.input_key": "problem"}}')
    raise HeavyWorkError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's, without what is heavy."""
    for module, name in (
        (processes, "run_together"),
        (sampling_pass, "run_together"),
        (job, "RolloutEngine"),
        (service, "serve"),
    ):
        monkeypatch.setattr(module, name, heavy)
    monkeypatch.setattr(study, "run_together", studied)
    monkeypatch.setattr(train, "_run_host", trained)
    monkeypatch.setattr(offline_pass, "RolloutEngine", EngineByRule)
    monkeypatch.setattr(offline_pass, "run_command", in_this_process)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 20)
    # Read at import, as the variable of that name: a hub that does not answer is asked again and again.
    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    in_this_process(["reference", "--model", WORDS.model, "--prompts", "prompts.jsonl", "--n", 4, *TO_SHARED], tmp_path)
    return tmp_path


def filled_in(command: str) -> list[str]:
    """A form with values in the places of its placeholders, with its optional parts, and once for each shard."""
    text = FORM.sub(lambda found: PLACEHOLDERS[found[0]], OPTIONAL.sub(r"\1", command))
    return [text.replace("3/8", f"{shard}/8") for shard in range(8)] if "--shard 3/8" in text else [text]


PROGRAMS: dict[str, Callable[[], None]] = {"restrain": main.main, "test-time": test_time.main}


def run(command: str) -> Done:
    """What a command does, as far as this machine goes. Status 0 for a program that is not run."""
    program = command.partition(" ")[0]
    if program in PROGRAMS:
        words = [path for word in shlex.split(command.partition(" > ")[0], comments=True) for path in expanded(word)]
        try:
            done = call(PROGRAMS[program], *words[1:], cwd=Path.cwd())
        except HeavyWorkError:
            return Done(0, "", "")
        # `integrate` ends with 1 where its reader has to decide something.
        undecided = words[1] == "integrate" and done.returncode == 1
        return Done(0, "", "") if undecided or any(end in done.stderr for end in ENDS_HERE) else done
    if program in ("echo", "cat", "head") or "<<" in command:
        script = command.replace("python -", f"{sys.executable} -", 1)
        bash = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
        return Done(bash.returncode, bash.stdout, bash.stderr)
    return Done(0, "", "")


def expanded(word: str) -> list[str]:
    return sorted(glob(word)) if "*" in word else [word]


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_prints_works(name: str, folder: Path):
    page = (ROOT / name).read_text(encoding="utf-8").replace("/shared/", "shared/")
    for saved, text in list(files_of(page)):
        (folder / saved).write_text(text)
        page = page.replace(text, "")
    for change in re.findall(r"```diff\n(.*?)```", page, re.DOTALL):
        (folder / "train-restrain.sh").write_text((folder / "train.sh").read_text())
        subprocess.run(["patch", "train-restrain.sh"], input=change, text=True, check=True, cwd=folder)
    commands = [command for each in typed(page) for command in filled_in(each.command)]
    assert [command for command in commands if command.startswith(tuple(PROGRAMS))] != []
    said = [(command, run(command)) for command in commands if command.strip()]
    wrong = [(command, done.stdout + done.stderr) for command, done in said if done.returncode != 0]
    assert not wrong, "\n\n".join(f"{command}\n{output[-600:]}" for command, output in wrong)
