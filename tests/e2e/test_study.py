"""`restrain study` from start to end: killed, started again, and shown."""

import json
import signal
import subprocess
import sys
import time

import pytest

from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, heldout_problems, training_problems
from tests.conftest import ROOT
from tests.e2e.conftest import SMALL, layout, run

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

BASE = """
run_dir: unused
openrlhf:
{flags}
"""


@pytest.fixture
def configs(tmp_path):
    """TTRL on 16 prompts without answers, and training on their gold, evaluated at each step."""
    write_prompts(tmp_path / "prompts.jsonl", training_problems(16))
    write_gold(tmp_path / "gold.jsonl", training_problems(16))
    write_gold(tmp_path / "heldout.jsonl", heldout_problems(16))
    flags = {
        **SMALL,
        "actor.model_name_or_path": ADDITION.model,
        "data.label_key": "answer",
        "data.max_len": 32,
        "rollout.max_new_tokens": 14,
        "eval.dataset": tmp_path / "heldout.jsonl",
        "eval.steps": 1,
        "eval.n_samples_per_prompt": 4,
        **layout(),
        "ckpt.save_steps": 1,
    }
    folder = tmp_path / "small"
    folder.mkdir()
    lines = "\n".join(f"  {name}: {value}" for name, value in flags.items())
    (folder / "_base.yaml").write_text(BASE.format(flags=lines))
    for name, prompts in {"ttrl": "prompts", "grpo_gold": "gold"}.items():
        own = f"openrlhf: {{data.prompt_dataset: {tmp_path / prompts}.jsonl}}"
        (folder / f"{name}.yaml").write_text(f"extends: _base.yaml\nmethod: {{name: {name}}}\n{own}\n")
    return [folder / "ttrl.yaml", folder / "grpo_gold.yaml"]


def test_a_study_is_killed_goes_on_and_compares(configs, tmp_path):
    out = tmp_path / "study"
    words = [sys.executable, "-m", "restrain_openrlhf.commands.main", "study", *map(str, configs)]
    words += ["--seeds", "1", "--out", str(out)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ttrl = out / "small" / "ttrl" / "seed-42"
    while not (ttrl / "metrics.jsonl").exists():
        assert process.poll() is None, (out / "small" / "ttrl" / "seed-42.log").read_text()[-3000:]
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 130
    done = run(words)
    assert done.returncode == 0, done.stderr[-3000:]
    table = (out / "table.md").read_text()
    assert "| small | ttrl | 1 |" in table
    assert "| small | grpo_gold | 1 |" in table
    for name in ("ttrl", "grpo_gold"):
        rows = (out / "small" / name / "seed-42" / "evaluations.jsonl").read_text().splitlines()
        assert [json.loads(row)["step"] for row in rows] == [0, 1, 2]
        assert (out / "small" / name / "seed-42" / "completed.json").exists()
    gold_steps = (out / "small" / "grpo_gold" / "seed-42" / "metrics.jsonl").read_text().splitlines()
    assert 0.2 < json.loads(gold_steps[0])["rollout/reward_mean"] < 0.95, "gold training reads its column"
    assert {path.name for path in out.glob("*.png")} == {"curves.png"}
