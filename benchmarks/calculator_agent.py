"""A two-turn agent trained without labels, beside the same model's single turn: held-out pass@1 by step, as a picture.

    python -m tools.make_model --task calculator --out MODEL
    python -m benchmarks.calculator_agent --model MODEL --out DIR

Each policy learns from its own votes on 640 problems of at most three columns (data/demo_tasks/premise.py), 20 steps
of 32 prompts x 16 rollouts; 100 held-out problems are graded every five steps. Draws what is there if it is repeated.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from restrain_openrlhf.config.command_line import override_words
from restrain_openrlhf.data.demo_tasks.problems import write_gold, write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE
from restrain_openrlhf.records.metrics import read_held_out

mpl.use("Agg")

AGENT = Path(__file__).parents[1] / "examples" / "calculator_agent.py"
# A trajectory needs room for the calculator's answer.
POLICIES: dict[str, dict[str, object]] = {
    "agent": {"agent": str(AGENT), "openrlhf.data.max_len": 80, "openrlhf.rollout.max_new_tokens": 60},
    "single": {},
}
LONGEST, PROMPTS, HELD_OUT, STEPS, EVERY, REPEATS = 3, 640, 100, 20, 5, 8


def write_problems(out: Path) -> None:
    """Prompts without answers, and held-out problems with theirs."""
    training, heldout = (
        [each for each in drawn if len(each.answer) <= LONGEST]
        for drawn in (PREMISE.training_problems(3000), PREMISE.heldout_problems(1000))
    )
    write_prompts(out / "prompts.jsonl", training[:PROMPTS])
    write_gold(out / "heldout.jsonl", heldout[:HELD_OUT])


def train(model: str, out: Path, name: str) -> None:
    """The offline pass, and training by it."""
    settings = {
        **POLICIES[name],
        "run_dir": str(out / name),
        "reference": str(out / f"reference-{name}.jsonl"),
        "reference_n": 16,
        "steps": STEPS,
        "evaluate_first": True,
        "openrlhf.actor.model_name_or_path": model,
        "openrlhf.data.prompt_dataset": str(out / "prompts.jsonl"),
        "openrlhf.data.label_key": "answer",
        "openrlhf.eval.dataset": str(out / "heldout.jsonl"),
        "openrlhf.eval.steps": EVERY,
        "openrlhf.eval.temperature": 1.0,
        "openrlhf.eval.n_samples_per_prompt": REPEATS,
        "openrlhf.train.num_episodes": 1,
    }
    for command in ("reference", "train"):
        words = [command, "configs/cpu/demo.yaml", *override_words(settings)]
        subprocess.run([sys.executable, "-m", "restrain_openrlhf.commands.main", *words], check=True)


def draw(out: Path) -> None:
    """pass@1 by step, of each policy that was trained."""
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, label in (("agent", "two turns, with a calculator"), ("single", "one turn")):
        rows = read_held_out(out / name)
        axes.plot([row.step for row in rows], [row.pass_at_1 for row in rows], marker="o", label=label)
        print(name, ", ".join(f"step {row.step}: {row.pass_at_1:.3f}" for row in rows))
    axes.set(xlabel="training step, no labels", ylabel="held-out pass@1", ylim=(0, 1))
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(out / "calculator-agent.png", dpi=130)


def main() -> None:
    """Train what is not trained yet, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    write_problems(words.out)
    for name in POLICIES:
        train(words.model, words.out, name)
    draw(words.out)


if __name__ == "__main__":
    main()
