"""Stands in for `restrain train` under a study: files as a run leaves them, two steps in all, resumed where they end.

What it does besides is asked for by files in the study's folder, so that each test says what it needs.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = 2
PATIENCE_SECONDS = 60


def append(path: Path, row: object) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def wait_for(is_there) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_there():
        if time.monotonic() > until:
            sys.exit("waited for too long")
        time.sleep(0.01)


def train(run_dir: Path, study: Path) -> None:
    metrics = run_dir / "metrics.jsonl"
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for step in range(done + 1 if done else 0, STEPS + 1):
        pass_at_1 = 0.5 + 0.1 * step + (0.1 if "grpo_gold" in run_dir.parts else 0)
        row = {"step": step, "eval_default_pass1": pass_at_1, "eval_num_samples": 8}
        append(run_dir / "evaluations.jsonl", row)
        if step:
            append(metrics, {"step": step, "votes": {"majority_share_mean": 0.75, "top_answer_share": 0.25}})
        if step == 1 and (study / "stop").exists():
            stop(study, run_dir.parent.name)


def stop(study: Path, name: str) -> None:
    """One run stops the study, the others wait for their end."""
    if (study / "stop").read_text() == name:
        os.kill(os.getppid(), signal.SIGTERM)
    wait_for(lambda: False)


def meet(study: Path, others: int) -> None:
    """Go on only beside so many other runs."""
    (study / f"here-{os.getpid()}").touch()
    wait_for(lambda: len(list(study.glob("here-*"))) > others)


def main() -> None:
    words = sys.argv[1:]
    sets = dict(word.split("=", 1) for word in words if "=" in word)
    run_dir = Path(sets["run_dir"])
    study = run_dir.parents[2]
    append(study / "started.jsonl", words)
    if (study / "fail" / run_dir.parent.name).exists():
        sys.exit("error: no such model")
    if (study / "meet").exists():
        meet(study, int((study / "meet").read_text()))
    with (study / "alone").open("x" if (study / "one-at-a-time").exists() else "w"):
        run_dir.mkdir(parents=True, exist_ok=True)
        train(run_dir, study)
    (study / "alone").unlink(missing_ok=True)
    (run_dir / "completed.json").write_text('{"steps": 2}')


if __name__ == "__main__":
    main()
