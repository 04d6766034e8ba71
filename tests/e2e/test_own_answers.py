"""An own kind of answer, as its page has it: a distribution installed beside the wheel, and a run that votes by it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import training_problems
from restrain_openrlhf.records.kept import read_kept
from tests.conftest import ROOT
from tests.docs.printed import fenced
from tests.e2e.conftest import Job
from tests.test_wheel import built, source

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
PAGE = (ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8")


def written_by_the_user(folder: Path) -> Path:
    """The page's two files, and nothing more."""
    folder.mkdir()
    for name, language in (("last_word.py", "python"), ("pyproject.toml", "toml")):
        *_, text = fenced(PAGE, language)
        (folder / name).write_text(text)
    return folder


def environment_with(wheels: list[Path], folder: Path) -> Path:
    """An environment's Python, with these wheels installed, and the training stack of the present one in reach."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    words = ("--python", python, "install", "--quiet", "--no-deps", "--no-index", *wheels)
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (here,) = {path for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix)}
    (installed,) = folder.glob("lib/python3*/site-packages")
    # What stands there alone: the checkout is installed by a file that names it, and such a file counts here no more.
    (installed / "stack.pth").write_text(f"{here}\n")
    return python


def run_in(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A command where no checkout is in reach; the stack's programs are, ninja among them."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


def test_a_run_votes_by_a_kind_of_answer_of_another_distribution(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = built(source(tmp_path / "source"), tmp_path / "wheels")
    theirs = built(written_by_the_user(tmp_path / "last-word"), tmp_path / "theirs")
    python = environment_with([ours, theirs], tmp_path / "environment")
    imported = run_in(tmp_path, python, "-c", "import restrain_openrlhf; print(restrain_openrlhf.__file__)").stdout
    assert python.parents[1] in Path(imported.strip()).parents, "the wheel's, and not the checkout's"
    job = Job(tmp_path, tmp_path / "prompts.jsonl")
    write_prompts(job.prompts, training_problems(16))
    words = ("cpu/demo_addition", *job.sets("reference=", "answers={name: last_word}", "rollouts.keep=all"))
    done = run_in(tmp_path, python.with_name("restrain"), "train", *words)
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    groups = list(read_kept(job.run_dir))
    assert len(groups) == 16
    for group in groups:
        whole = [rollout.response.strip() for rollout in group.rollouts if rollout.answer is not None]
        # A response has no space, so that its last word is all of it; mathematics would have read what is in the box.
        assert [rollout.answer for rollout in group.rollouts if rollout.answer is not None] == whole
        assert group.majority_count == max(map(whole.count, whole))
    assert any("boxed{" in rollout.answer for group in groups for rollout in group.rollouts if rollout.answer)
