"""Every command that a page prints is typed, in the page's order, with the files that its reader has.

A command that needs hours or the network runs until it would start an engine or a training, or ask the hub: its
words, its configuration, and the files that it reads are all looked at before. Programs of a registry or a cluster are
stood in, except kubectl, which is the real one without a server.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

import datasets  # noqa: E402
import huggingface_hub  # noqa: E402
import matplotlib  # noqa: E402

from restrain_openrlhf.commands import main, study  # noqa: E402
from restrain_openrlhf.commands.view import server  # noqa: E402
from restrain_openrlhf.data.demo_tasks.tasks import WORDS  # noqa: E402
from restrain_openrlhf.data.identity import ensure_model  # noqa: E402
from restrain_openrlhf.evaluation import job  # noqa: E402
from restrain_openrlhf.hook import train_ppo_ray  # noqa: E402
from restrain_openrlhf.hook.launch import train  # noqa: E402
from restrain_openrlhf.machine import processes  # noqa: E402
from restrain_openrlhf.records.folder import Completion, RunFolder  # noqa: E402
from restrain_openrlhf.reference import offline_pass, sampling_pass  # noqa: E402
from restrain_openrlhf.reference.offline_engine import Rollout, Sampling  # noqa: E402
from restrain_openrlhf.reference.prompts import Prompt  # noqa: E402
from restrain_openrlhf.scoring.service import server as service  # noqa: E402
from test_time import cli as test_time  # noqa: E402
from tests.command_line import Done, call  # noqa: E402
from tests.commands.k8s.manifests import needs_kustomize  # noqa: E402
from tests.conftest import ROOT, needs_bubblewrap  # noqa: E402
from tests.docs.printed import files_of, typed  # noqa: E402
from tests.docs.readers_folder import AGENT, fill, save_model  # noqa: E402
from tests.docs.shell import Shell  # noqa: E402
from tests.docs.stand_ins import ENVIRONMENT, SCRIPTS, openrlhf, pip, verl  # noqa: E402

FOLDERS = {
    "start": ("demo",),
    "journeys": ("train", "adapt", "integration", "other_trainers", "evaluation", "rollouts"),
    "operations": ("running", "one_gpu", "gpu_check", "reward_service", "slurm", "kubernetes"),
    "concepts": ("premise", "kinds"),
}
PAGES = [f"docs/{folder}/{name}.md" for folder, names in FOLDERS.items() for name in names]
PAGES += ["docs/operations/upgrading_openrlhf.md", "README.md", "CONTRIBUTING.md"]
FLAGS = (
    f"--actor.model_name_or_path {WORDS.model} --data.prompt_dataset prompts.jsonl --data.input_key problem "
    "--rollout.n_samples_per_prompt 4 --rollout.max_new_tokens 1024 --vllm.num_engines 1 "
    "--algo.kl.init_coef 0 --algo.advantage.estimator group_norm"
)
TO_SHARED = ("--max-new-tokens", 1024, "--out", "shared/ref.jsonl")
# What a page leaves to its reader, and what stands there in a test.
PLACEHOLDERS = {
    "your whole command": "python -m openrlhf.cli.train_ppo_ray --data.prompt_dataset p.jsonl --vllm.num_engines 1",
    "their_agent.py": str(AGENT),
    "…your train_ppo_ray flags…": FLAGS,
    # The other seven machines do the same.
    "restrain reference CONFIG --shard 3/8": "for I in {0..7}; do restrain reference mine.yaml --shard $I/8; done",
    "--config CONFIG": "--config cpu/test_time",
    "CONFIG…": "mine.yaml other.yaml",
    "CONFIG": "mine.yaml",
    "KEY=VALUE": "method.kappa=2",
    "FLAGS": FLAGS,
    "MODEL": str(WORDS.model),
    "--model M": f"--model {WORDS.model}",
    "P.jsonl": "prompts.jsonl",
    "RUN": "runs/demo/ttrl/train",
    "--gold FILE": "--gold runs/demo/prompts-with-gold.jsonl",
    "--model-config FILE": f"--model-config {WORDS.model}/config.json",
    "--prompts FILE": "--prompts questions.csv",
    "--jobs N": "--jobs 2",
    "mine=m.jsonl": "mine=m.jsonl --max-new-tokens 64",
    "--cluster cluster.yaml": "--cluster theirs.yaml",
    "--benchmark-dir DIR": "--benchmark-dir benchmarks",
    "--out DIR": "--out made",
    "runs/NAME": "runs/mine",
    "COPY": "copy.jsonl",
    "VERSION": "0.11.2",
    "/shared/": "shared/",
    "/tmp/": "tmp/",
    " …": "",
}
FORM = re.compile(rf"(?<![\w/.])(?:{'|'.join(map(re.escape, PLACEHOLDERS))})(?!\w)")
OPTIONAL = re.compile(r"\[(--[^]]+)\]")
# Where this machine's part ends: the rest needs the network, or a GPU.
ENDS_HERE = (
    "could not be downloaded",
    "neither the hub nor its local cache has it",
    "no GPU was found on this machine",
    "The cluster does not answer",
)
# A page shows this refusal, and what it lists.
REFUSED = {("view", "runs/demo"): "is not a run's folder. View one of the runs inside"}


class HeavyWorkError(Exception):
    """An engine, a training or a server would start here."""


class EngineByRule:
    """Every answer is its prompt's length, of a function and in a box too, and so a pass is made at once."""

    def __init__(self, _model: str, sampling: Sampling, *_: object) -> None:
        self._n = sampling.n

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        return [[Rollout(_answer(each.text), 5, truncated=False)] * self._n for each in prompts]


def _answer(prompt: str) -> str:
    return (
        f"def f(x):\n return {len(prompt)}  # \\boxed{{{len(prompt)}}}" if prompt.endswith(".=") else str(len(prompt))
    )


def in_this_process(words: Sequence[str], _log: Path) -> None:
    done = call(main.main, *words, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr


def heavy(*_given: object, **_more: object) -> None:
    raise HeavyWorkError


def trained(run: RunFolder, *_: object) -> NoReturn:
    """The training is left out, and the run's folder is as it leaves it."""
    save_model(run.path)
    run.mark_completed(Completion(steps=2))
    raise HeavyWorkError


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (processes, "run_together"),
        (sampling_pass, "run_together"),
        (study, "run_together"),
        (job, "RolloutEngine"),
        (train_ppo_ray, "run"),
        (server, "serve"),
        (service, "serve"),
    ):
        monkeypatch.setattr(module, name, heavy)
    monkeypatch.setattr(train, "_run_host", trained)
    monkeypatch.setattr(offline_pass, "RolloutEngine", EngineByRule)
    monkeypatch.setattr(offline_pass, "run_command", in_this_process)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 20)
    # Read at import, as the variable of that name: a hub that does not answer is asked again and again.
    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)


def ours(script: Callable[[], None]) -> Callable[[Sequence[str]], Done]:
    """A program of this project: status 0 where it does what the page says, as far as this machine goes."""

    def program(words: Sequence[str]) -> Done:
        if words[0] == "demo":
            # Another demo than the finished one, which the page's other commands look at.
            words = [*words, "--out", f"demo-{len(list(Path.cwd().glob('demo-*')))}"]
        if tuple(words[:2]) in {("k8s", "render"), ("k8s", "platform")}:
            # Installed with -e, the package has the clone's own tree. Where a page renders twice, it is an alternative.
            shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
            words = [*words, "--manifests", "k8s"]
        try:
            done = call(script, *words, cwd=Path.cwd())
        except HeavyWorkError:
            return Done(0, "", "")
        return Done(0 if works(words, done) else 1, done.stdout, done.stderr)

    return program


def works(words: Sequence[str], done: Done) -> bool:
    said = done.stdout + done.stderr
    if refusal := REFUSED.get(tuple(words)):
        return done.returncode == 2 and refusal in said
    # `integrate` ends with 1 where its reader has to decide something.
    is_done = done.returncode == 0 or (words[0] == "integrate" and done.returncode == 1)
    return is_done or ends_here(said)


def ends_here(said: str) -> bool:
    return any(end in said for end in ENDS_HERE)


def module(words: Sequence[str]) -> Done:
    """`python -m MODULE WORDS`, up to where it starts Ray or an engine."""
    name, *more = words[1:]
    return ours(lambda: MODULES[name](more))([name])


MODULES = {
    "restrain_openrlhf.hook.train_ppo_ray": train_ppo_ray.main,
    "openrlhf.cli.train_ppo_ray": openrlhf,
    "verl.trainer.main_ppo": verl,
    "restrain_openrlhf.commands.gpu_check.small_run": lambda words: ensure_model(words[0]),
}


@pytest.fixture
def shell(tmp_path: Path, light: None, monkeypatch: pytest.MonkeyPatch) -> Shell:
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    fill(folder)
    in_this_process(["reference", "--model", WORDS.model, "--prompts", "prompts.jsonl", "--n", 4, *TO_SHARED], folder)
    programs = {"restrain": ours(main.main), "test-time": ours(test_time.main), "module": module, "pip": pip}
    return Shell(folder, folder / ".venv" / "bin", programs, SCRIPTS, ENVIRONMENT)


def filled_in(command: str) -> str:
    """A form with values in the places of its placeholders, and with its optional parts."""
    return FORM.sub(lambda found: PLACEHOLDERS[found[0]], OPTIONAL.sub(r"\1", command))


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_prints_works(name: str, shell: Shell):
    if "kubernetes" in name:
        needs_kustomize()
    if "--task programs" in (ROOT / name).read_text(encoding="utf-8"):
        needs_bubblewrap()
    page = (ROOT / name).read_text(encoding="utf-8").replace("/shared/", "shared/")
    for saved, text in list(files_of(page)):
        (shell.folder / saved).write_text(text)
        page = page.replace(text, "")
    for change in re.findall(r"```diff\n(.*?)```", page, re.DOTALL):
        shutil.copy(shell.folder / "train.sh", shell.folder / "train-restrain.sh")
        subprocess.run(["patch", "train-restrain.sh"], input=change, text=True, check=True, cwd=shell.folder)
    commands = [filled_in(each.command) for each in typed(page)]
    said = [(command, shell.type(command)) for command in commands if command.strip()]
    wrong = [(command, done.stdout) for command, done in said if done.returncode != 0 and not ends_here(done.stdout)]
    assert not wrong, "\n\n".join(f"{command}\n{output[-600:]}" for command, output in wrong)
