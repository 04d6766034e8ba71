"""Stands in for the hooked OpenRLHF under an adaptation: rows and models as a run leaves them, resumed where they end.

`plan.json` in the adaptation's folder says what happens besides, so that each test says what it needs. What a training
reads is kept in `reads.json`, with the names of all files that were there.
"""

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Plan:
    """`row`: of each step. Before a step, `fail` ends with an error; after it, `stop` ends the adaptation, as a cluster
    would, and `hold` waits for the end."""

    row: dict = field(default_factory=dict)
    fail: int | None = None
    stop: int | None = None
    hold: int | None = None


def flags_of(words: list[str]) -> dict[str, str]:
    values = [*words[1:], "--"]
    return {word[2:]: value for word, value in zip(words, values, strict=True) if word.startswith("--")}


def keep_what_is_read(out: Path, hook: Path, flags: dict[str, str]) -> None:
    prompts, reference = Path(flags["data.prompt_dataset"]), Path(yaml.safe_load(hook.read_text())["reference"])
    read = {
        "words": sys.argv[1:],
        "files": {path.name: path.read_text(encoding="utf-8") for path in (hook, prompts, reference)},
        "present": sorted(str(path.relative_to(out)) for path in out.rglob("*")),
    }
    (out / "reads.json").write_text(json.dumps(read).replace(str(out), "OUT"))


def save(model: str, folder: Path, step: int) -> None:
    """Other weights after each step, as training leaves them."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([step]))


def train(out: Path, hook: Path, flags: dict[str, str]) -> None:
    plan = Plan(**json.loads((out / "plan.json").read_text()))
    config = yaml.safe_load(hook.read_text())
    metrics, last = Path(config["metrics"]), int(config["steps"])
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for step in range(done + 1, last + 1):
        if step == plan.fail:
            sys.exit("error: the policy has no gradient")
        with metrics.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({**plan.row, "step": step, "restrain/kl": step / 100, "restrain/policy_loss": 0.0}) + "\n"
            )
        if step % int(flags["ckpt.save_steps"]) == 0:
            save(flags["actor.model_name_or_path"], Path(flags["ckpt.path"]) / f"global_step{step}_hf", step)
        if step == plan.stop:
            os.kill(os.getppid(), signal.SIGTERM)
        if step in (plan.stop, plan.hold):
            time.sleep(PATIENCE_SECONDS)
            sys.exit("nobody ended this training")
    save(flags["actor.model_name_or_path"], Path(flags["ckpt.output_dir"]), last)


def main() -> None:
    flags = flags_of(sys.argv[1:])
    hook = Path(flags["restrain.config"])
    out = hook.parents[1]
    keep_what_is_read(out, hook, flags)
    train(out, hook, flags)


if __name__ == "__main__":
    main()
