"""How strong a shared shortcut each method bears: final accuracy on the premise task, by the base's shortcut share.

    python benchmarks/premise_window.py --out runs/window            # draws what is there, too; a run stopped goes on

Each strength has a base model of its own, the shipped one taught for 150 steps more on examples with that strength. The
methods then train it in plain PyTorch, on-policy, one AdamW step for each batch of 32 prompts x 16 rollouts, with the
package's own advantages and without KL: the study's task and size, but no part of the real stack. Results are lines of
window.jsonl; the picture is window.png.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer

from restrain_openrlhf.demo import premise
from restrain_openrlhf.demo.calibration import Calibration, calibrate, rollouts_of
from restrain_openrlhf.demo.problems import Problem
from restrain_openrlhf.demo.tasks import PREMISE
from restrain_openrlhf.demo.teaching import Stage, teach
from restrain_openrlhf.demo.tokenizer import EOS
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.method import Method, build, parse_settings
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.scoring import score_group

mpl.use("Agg")

STRENGTHS = (0.30, 0.38, 0.42, 0.46, 0.50, 0.55)
METHODS = ("restrain", "ttrl", "grpo_gold")
PROMPTS = 32
POOL = 640


@dataclass(frozen=True)
class Outcome:
    """One run: the base model's calibration on the pool, and the policy's on held-out problems, before and after."""

    strength: float | None
    method: str
    seed: int
    steps: int
    learning_rate: float
    base: Calibration
    before: Calibration
    after: Calibration


def main() -> None:
    """Make the bases, train, and draw."""
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, default=Path("runs/window"))
    options.add_argument("--strengths", type=float, nargs="*", default=list(STRENGTHS))
    options.add_argument("--methods", nargs="*", default=list(METHODS))
    options.add_argument("--seeds", type=int, nargs="*", default=[42])
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--learning-rate", type=float, default=3e-4)
    given = options.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    lines = given.out / "window.jsonl"
    for seed in given.seeds:
        for strength in given.strengths:
            for method in given.methods:
                run(given.out, lines, strength, method, seed, given.steps, given.learning_rate)
    draw([json.loads(line) for line in lines.read_text().splitlines()]).savefig(given.out / "window.png", dpi=120)


def run(out: Path, lines: Path, strength: float, method: str, seed: int, steps: int, learning_rate: float) -> None:
    """Train one method on one base, unless its line is there."""
    wanted = (strength, method, seed, steps, learning_rate)
    rows = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    if any((r["strength"], r["method"], r["seed"], r["steps"], r["learning_rate"]) == wanted for r in rows):
        return
    model, tokenizer = base_model(out / f"base-{strength:g}", strength)
    pool, heldout = PREMISE.training_problems(POOL), PREMISE.heldout_problems(200)
    base, before = calibrate(model, tokenizer, pool), calibrate(model, tokenizer, heldout)
    train(model, tokenizer, build(parse_settings({"name": method})), pool, seed, steps, learning_rate)
    after = calibrate(model, tokenizer, heldout)
    outcome = Outcome(strength, method, seed, steps, learning_rate, base, before, after)
    with lines.open("a") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")
    Console().print(
        f"{method} at strength {strength:g} (gives up in {base.shortcut_share:.3f}): "
        f"pass@1 {before.pass_at_1:.3f} -> {after.pass_at_1:.3f}, gives up in {after.shortcut_share:.3f}"
    )


def base_model(folder: Path, strength: float) -> tuple[Any, Any]:
    """The base of a strength, in fp32 from its bf16 weights; made if it is not there."""
    tokenizer = AutoTokenizer.from_pretrained(PREMISE.model)
    if not folder.exists():
        stage = Stage(partial(premise.example, strength=strength), 150, 5e-4, 10, 0.02, (0.9, 0.95))
        shipped = AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype=torch.float32)
        teach(shipped, tokenizer, [stage]).to(torch.bfloat16).save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), tokenizer


def train(
    model: Any, tokenizer: Any, method: Method, pool: Sequence[Problem], seed: int, steps: int, rate: float
) -> None:
    """On-policy steps; the frozen model's votes are taken first, where the method reads them."""
    torch.manual_seed(seed)
    frozen = dict(votes(model, tokenizer, pool)) if method.needs_reference else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    order = prompts_in_order(pool, random.Random(seed))
    for _ in track(range(steps), method.name):
        batch = [next(order) for _ in range(PROMPTS)]
        tokens, responses, answers = rollouts_of(model, tokenizer, batch)
        advantages = torch.cat([advantage(method, *pair, frozen) for pair in zip(batch, answers, strict=True)])
        loss = policy_loss(model, tokens, responses, advantages)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def votes(model: Any, tokenizer: Any, pool: Sequence[Problem]) -> Iterator[tuple[str, ReferenceRow]]:
    """The frozen model's vote on each problem, by its text."""
    for start in range(0, len(pool), PROMPTS):
        batch = pool[start : start + PROMPTS]
        for problem, answers in zip(batch, rollouts_of(model, tokenizer, batch)[2], strict=True):
            prompt = Prompt(problem.id, problem.problem, problem.problem, "the premise task")
            yield problem.problem, ReferenceRow.of_answers(prompt, answers)


def prompts_in_order(pool: Sequence[Problem], rng: random.Random) -> Iterator[Problem]:
    """The pool again and again, each time in another order."""
    while True:
        yield from rng.sample(pool, len(pool))


def advantage(
    method: Method, problem: Problem, answers: Sequence[str | None], frozen: dict[str, ReferenceRow]
) -> torch.Tensor:
    """A+ + A- of each rollout of one group, (16,): on-policy, no ratio is clipped."""
    gold = problem.answer if method.reads_gold else None
    score = score_group(method, answers, frozen.get(problem.problem), gold, problem.problem)
    return torch.tensor(score.pair.net, dtype=torch.float32)


def policy_loss(model: Any, tokens: torch.Tensor, responses: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """Mean of -A log pi over the tokens that were sampled; `tokens` (512, T) with the prompts, `responses` (512, R)."""
    logits = model(input_ids=tokens).logits[:, -responses.shape[1] - 1 : -1]
    log_probs = torch.log_softmax(logits, -1).gather(-1, responses[..., None])[..., 0]
    ended = (responses == EOS).int()
    mask = (ended.cumsum(1) - ended == 0).float()
    return -(log_probs * mask * advantages[:, None]).sum() / mask.sum()


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Final held-out pass@1 by the base model's shortcut share: one line per method, a dot per run."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = sorted(
            (row["base"]["shortcut_share"], row["after"]["pass_at_1"]) for row in rows if row["method"] == method
        )
        axes.plot(*zip(*mine, strict=True), marker="o", label=method)
    starts = sorted({(row["base"]["shortcut_share"], row["before"]["pass_at_1"]) for row in rows})
    axes.plot(*zip(*starts, strict=True), linestyle="--", color="gray", label="before training")
    axes.set(
        xlabel="share of the base model's rollouts that give up",
        ylabel=f"held-out pass@1 after {rows[0]['steps']} steps",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    main()
