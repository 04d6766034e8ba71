"""Test-time adaptation by its own command: training's memory is free again when the adapted model votes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from restrain_openrlhf.demo.addition import heldout_problems
from restrain_openrlhf.demo.problems import write_prompts
from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.gpu_check.children import TEST_TIME, run_module
from restrain_openrlhf.gpu_check.outcome import Outcome, judged
from restrain_openrlhf.gpu_check.setting import Setting
from restrain_openrlhf.gpu_check.small_run import set_words
from restrain_openrlhf.shipped import CONFIGS

CONFIG = CONFIGS / "cpu" / "test_time.yaml"
PROBLEMS, STEPS, VOTES = 8, 2, 4


def check_adaptation(setting: Setting) -> list[Outcome]:
    """Two steps on eight problems. The engines that vote take nine tenths of a GPU and fail where it is not free."""
    folder = setting.folder("adapt")
    prompts, out = folder / "problems.jsonl", folder / "out"
    write_prompts(prompts, heldout_problems(PROBLEMS))
    flags = {"rollout.n_samples_per_prompt": 8, "train.batch_size": 64, "train.micro_batch_size": 64, **setting.layout}
    words = ["adapt", "--model", ADDITION.model, "--prompts", prompts, "--out", out, "--config", CONFIG]
    options = ["--steps", STEPS, "--votes", VOTES, "--no-stop"]
    sets = set_words({f"openrlhf.{name}": value for name, value in flags.items()})
    run_module(TEST_TIME, [*words, *options, *sets], folder / "adapt.log")
    return [judge_adaptation(_rows(out / "predictions.jsonl"), json.loads((out / "result.json").read_text()))]


def judge_adaptation(predictions: Sequence[dict[str, Any]], result: dict[str, Any]) -> Outcome:
    """Every problem has a vote after training, which took its steps."""
    voted = sum(row["vote_share"] > 0 for row in predictions)
    found = f"{result['steps']} steps, then {voted} of {PROBLEMS} problems voted on by the adapted model"
    holds = voted == PROBLEMS and result["steps"] == STEPS
    return judged("test-time adapt", holds, found, steps=result["steps"], voted=voted)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
