"""What a trainer without the advantage pair loses: gradients of a net advantage against the exact, on real rollouts.

    python benchmarks/net_advantage.py ROLLOUTS.jsonl        # rows {id, problem, responses}

The gradient is that of the clipped loss by each word's log-probability. On policy all ratios are 1; off policy they are
e^(s z) with z normal, of which many are clipped.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from restrain_openrlhf import score
from restrain_openrlhf.evaluation.grade import placed_rollouts
from restrain_openrlhf.method.types import Floats

CLIP = 0.2
METHOD = {"name": "restrain", "prompt_weight": "online"}


def gradient(advantages: Floats, ratios: Floats) -> Floats:
    """d loss / d log-probability of each word: of -min(ratio A, clip(ratio) A), (words,)."""
    live = np.where(advantages >= 0, ratios < 1 + CLIP, ratios > 1 - CLIP)
    return -ratios * advantages * live


def main(path: Path, kappa: float, seeds: int = 5) -> None:
    texts = [row.responses for _, row in placed_rollouts(path)]
    scores = score(texts, method={**METHOD, "kappa": kappa})
    net = np.array([group.pair.net for group in scores])
    mean, deviation = net.mean(1, keepdims=True), net.std(1, ddof=1, keepdims=True)
    ways: dict[str, np.ndarray] = {
        "net advantage (VotesGRPOTrainer; verl's estimator restrain)": net,
        "minus the group's mean (TRL with scale_rewards none)": net - mean,
        "and over its deviation (TRL's and verl's defaults)": (net - mean) / (deviation + 1e-4),
        "minus the batch's mean (OpenRLHF's flash_reinforce)": net - net.mean(),
    }
    words = [len(text.split()) for group in texts for text in group]
    spread: Callable[[np.ndarray], np.ndarray] = lambda values: np.repeat(values.ravel(), words)  # noqa: E731
    penalised = np.mean([group.penalized for group in scores])
    pair = [np.array([getattr(group.pair, part) for group in scores]) for part in ("positive", "negative")]
    print(f"{len(texts)} groups of {len(texts[0])}, kappa {kappa:g}, {penalised:.0%} penalised")
    print("| advantages | " + " | ".join(f"s = {s}: error, cosine" for s in (0.0, 0.1, 0.3)) + " |\n|---|---|---|---|")
    for name, advantages in ways.items():
        cells = []
        for s in (0.0, 0.1, 0.3):
            found = []
            for seed in range(seeds if s else 1):
                ratios = np.exp(s * np.random.default_rng(seed).standard_normal(sum(words)))
                exact = sum(gradient(spread(part), ratios) for part in pair)
                other = gradient(spread(advantages), ratios)
                error = np.linalg.norm(other - exact) / np.linalg.norm(exact)
                found.append((error, other @ exact / np.linalg.norm(other) / np.linalg.norm(exact)))
            cells.append("{:.3f}, {:.3f}".format(*np.mean(found, 0)))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rollouts", type=Path)
    parser.add_argument("--kappa", type=float, default=3)
    chosen = parser.parse_args()
    main(chosen.rollouts, chosen.kappa)
