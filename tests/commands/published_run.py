"""Folders as real runs leave them, with the demo's model in the place of a trained one."""

import json
import shutil
from pathlib import Path

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.identity import model_fingerprint, set_digest
from restrain_openrlhf.data.prepare import CopyCheck, Prepared
from restrain_openrlhf.records.folder import Completion, RunFolder
from restrain_openrlhf.records.metrics import append_row
from tests.evaluation.test_table import result, write_run

PROBLEMS = ("1+1=", "2+2=")
DIGEST = set_digest(PROBLEMS)


def training_run(folder: Path, base: Path | str, prompts: Path | str) -> Path:
    """A run that has ended: its model, resolved configuration and mark."""
    run = RunFolder(folder)
    shutil.copytree(ADDITION.model, run.model)
    (run.model / "README.md").write_text(f"---\nbase_model: {base}\n---\n")
    config = json.loads((run.model / "config.json").read_text())
    (run.model / "config.json").write_text(json.dumps({**config, "_name_or_path": str(base)}))
    resolved = {
        "method": {"name": "restrain", "kappa": 3.0, "delta": 1.0, "sigma": 0.5, "prompt_sigma": None},
        "reference": str(folder.parent / "reference.jsonl"),
        "metrics": str(run.metrics),
        "contents": {"answer extractor": "version 1-of-then"},
        "openrlhf": {
            "actor.model_name_or_path": str(base),
            "data.prompt_dataset": str(prompts),
            "data.input_key": "problem",
            "ckpt.path": str(run.checkpoints),
            "logger.wandb.key": "a-key-of-wandb",
            "logger.wandb.org": "team-of-someone",
            "logger.tensorboard_dir": str(folder / "tensorboard"),
            "train.agent_func_path": "/opt/venv/lib/agent.py",
            "reward.remote_url": "http://reward.internal:5000/score",
            "actor.adam.lr": 1e-6,
        },
    }
    run.resolved.write_text(json.dumps(resolved))
    append_row(folder / "evaluations.jsonl", 0, {"eval_default_pass1": 0.25, "eval_num_samples": 8})
    append_row(folder / "evaluations.jsonl", 2, {"eval_default_pass1": 0.5, "eval_num_samples": 8})
    run.mark_completed(Completion(steps=2))
    return folder


def base_model(folder: Path, card: str | None = "license: apache-2.0\n") -> Path:
    """A base model's folder, with its card; other weights than the run's."""
    shutil.copytree(ADDITION.model, folder)
    (folder / "pad.safetensors").write_bytes((8).to_bytes(8, "little") + b"{}      ")
    if card is not None:
        (folder / "README.md").write_text(f"---\n{card}---\n\n# Base\n")
    return folder


def prepared_prompts(path: Path, source: str = "open-r1/DAPO-Math-17k-Processed (en), split train") -> Path:
    """Prompts with the description that `restrain data prepare` writes."""
    path.write_text("".join(json.dumps({"id": str(n), "problem": text}) + "\n" for n, text in enumerate(PROBLEMS)))
    whole = CopyCheck(count=len(PROBLEMS), digest=DIGEST, known_count=len(PROBLEMS), known_digest=DIGEST)
    about = Prepared(
        name="dapo14k",
        source=source,
        licence="not stated on its card",
        prompts=path,
        gold=path.with_suffix(".gold.jsonl"),
        count=len(PROBLEMS),
        digest=DIGEST,
        whole_set=whole,
        dropped_duplicates=0,
    )
    path.with_name(f"{path.stem}.about.json").write_text(about.model_dump_json())
    return path


def evaluation(folder: Path, model: Path, pass_at_1: float, majority: float) -> Path:
    """`restrain eval --out FOLDER`, as far as a card reads it."""
    made = {"problems": 30, "n": 16, "model": str(model), "model_fingerprint": model_fingerprint(str(model))}
    return write_run(folder, result("aime24", "AIME24", pass_at_1, majority, **made))
