"""What a page prints for a file is what its reader says it is: configurations load, programs run."""

import re
from pathlib import Path

import pytest

from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE
from tests.conftest import ROOT
from tests.docs.printed import fenced
from tests.reference.made import write_reference

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A part of a file stands in a whole one.
WHOLE = "extends: one_gpu/24gb/qwen3-0.6b-base\n"
# The preset's template asks for a box, which most kinds do not read.
ASKS_NOTHING = "openrlhf: {data.input_template: null}\n"
# Files that are no run's: Kustomize's, which tests/commands/k8s/test_cluster.py renders, and a cluster file, which
# tests/commands/k8s/test_own_task.py takes from its page.
OTHERS = ("apiVersion: kustomize", "overlay:")


def blocks(language: str) -> list[tuple[str, str]]:
    return [(page.name, block) for page in PAGES for block in fenced(page.read_text(encoding="utf-8"), language)]


CONFIGURATIONS = [(name, block) for name, block in blocks("yaml") if not block.startswith(OTHERS)]


@pytest.mark.parametrize(("name", "block"), CONFIGURATIONS)
def test_a_configuration_that_a_page_prints_is_taken(name: str, block: str, tmp_path: Path):
    is_whole = re.search(r"^(extends|run_dir):", block, re.MULTILINE)
    template = "" if "openrlhf:" in block else ASKS_NOTHING
    (tmp_path / "mine.yaml").write_text(block if is_whole else WHOLE + template + block)
    config = load_run_config(tmp_path / "mine.yaml")
    refuse_settings(config, flags_of(config))


def programs(page: str) -> list[str]:
    return fenced((ROOT / "docs" / page).read_text(encoding="utf-8"), "python")


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_reference(Path("ref.jsonl"), {"p": ["A"] * 16, "q": ["B"] * 16})
    responses = [f"(A) \\boxed{{{number % 3}}}" for number in range(16)]
    given = {"responses": responses, "groups": [responses, responses], "prompts": ["p", "q"]}
    first, second, *of_trl = programs("journeys/other_trainers.md")
    exec(first + second, given)
    for program in of_trl:
        names = re.findall(r"^from restrain_openrlhf.scoring.trl import (\w+)$", program, re.MULTILINE)
        source = (ROOT / "restrain_openrlhf" / "scoring" / "trl.py").read_text(encoding="utf-8")
        assert [name for name in names if f"\nclass {name}(" not in source and f"\ndef {name}(" not in source] == []
        compile(program, "other_trainers.md", "exec")


def test_an_adapter_becomes_a_whole_model(tmp_path):
    """A sum of ours: W + (alpha / rank) B A, in the page's own precision."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    (program,) = programs("journeys/train.md")
    base = transformers.AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype="float32")
    before = base.model.layers[0].mlp.up_proj.weight.detach().clone()
    tuned = peft.get_peft_model(base, peft.LoraConfig(r=2, lora_alpha=6, target_modules=["up_proj"]))
    layer = tuned.base_model.model.model.layers[0].mlp.up_proj
    layer.lora_B["default"].weight.data.fill_(0.5)
    update = 3 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    tuned.save_pretrained(tmp_path / "RUN" / "model" / "adapter")
    for name, value in (("BASE", PREMISE.model), ("RUN", tmp_path / "RUN"), ("DIR", tmp_path / "DIR")):
        program = program.replace(f'"{name}', f'"{value}')
    exec(program, {})
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "DIR")
    assert whole.model.layers[0].mlp.up_proj.weight.allclose(before + update, atol=1e-6)
