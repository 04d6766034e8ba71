"""The demo's pipeline on real problems: too hard for its small model, but a test of every part on real text."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.gold_split import PromptOnly
from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.demo.run import Demo, Listener, configure, sample
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.method import build
from restrain_openrlhf.run.folder import RunFolder
from restrain_openrlhf.run.train import train

PROMPTS_PER_STEP = 8
# Real problems have hundreds of characters, which are this model's tokens.
LENGTHS = {"data.max_len": 2048, "rollout.max_new_tokens": 64}


class _RealRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str | int
    problem: str


def train_on_real_prompts(demo: Demo, prompts: Path, listener: Listener) -> dict[str, RunFolder]:
    """Offline pass and `demo.steps` training steps of each method on the first prompts of a file.

    Its answers are not read. Raises DataError for a damaged file or one with too few prompts.
    """
    chosen = demo.out / "prompts.jsonl"
    _write_prompts(prompts, chosen, demo.steps * PROMPTS_PER_STEP)
    return {method: _train(demo, method, chosen, listener) for method in demo.methods}


def _train(demo: Demo, method: str, prompts: Path, listener: Listener) -> RunFolder:
    config = _resized(configure(demo, method, prompts))
    if build(config.method).needs_reference and config.reference:
        listener.phase(f"{method}: offline pass")
        sample(demo.task.model, config, prompts, config.reference, seed=42)
    listener.phase(f"{method}: training")
    return train(config, listener.step)


def _write_prompts(source: Path, out: Path, count: int) -> None:
    rows = read_rows(source, _RealRow)
    if len(rows) < count:
        raise DataError(
            f"{source}: {len(rows)} prompts; these steps need {count}. Lower --steps, or give more prompts."
        )
    write_rows(out, (PromptOnly(id=str(row.id), problem=row.problem) for row in rows[:count]))


def _resized(config: RunConfig) -> RunConfig:
    rollouts = PROMPTS_PER_STEP * int(config.openrlhf["rollout.n_samples_per_prompt"])
    sizes = {
        "rollout.batch_size": PROMPTS_PER_STEP,
        "train.batch_size": rollouts,
        "rollout.micro_batch_size": 16,
        "train.micro_batch_size": 16,
    }
    return config.model_copy(update={"openrlhf": {**config.openrlhf, **LENGTHS, **sizes}})
