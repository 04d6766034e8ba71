"""How often the two intervals of pass@1 hold the truth, by simulation; they say 95 %."""

from collections.abc import Callable, Mapping

import numpy as np

from restrain_openrlhf.evaluation.estimators import interval_over_problems, interval_over_samples

DRAWS = 600
DICE = np.random.default_rng(0)
Population = Callable[[int], np.ndarray]
# Difficulty of a problem, as the chance that a response is right, and its mean.
POPULATIONS: Mapping[str, tuple[Population, float]] = {
    "few solved (Beta 0.1, 3)": (lambda m: DICE.beta(0.1, 3, m), 0.1 / 3.1),
    "hard (Beta 0.3, 2)": (lambda m: DICE.beta(0.3, 2, m), 0.3 / 2.3),
    "a quarter at 0.3, others 0": (lambda m: 0.3 * (DICE.random(m) < 0.25), 0.075),
    "all or nothing (Beta 0.5, 0.5)": (lambda m: DICE.beta(0.5, 0.5, m), 0.5),
    "alike (Beta 5, 5)": (lambda m: DICE.beta(5, 5, m), 0.5),
    "easy (Beta 2, 0.2)": (lambda m: DICE.beta(2, 0.2, m), 2 / 2.2),
}


def coverage(population: Population, mean: float, problems: int, n: int) -> tuple[float, float | None]:
    """Share of draws in which the interval over problems, and that over samples, holds the truth."""
    of_problems = of_samples = 0
    for _ in range(DRAWS):
        chances = population(problems)
        right = DICE.binomial(n, chances).tolist()
        low, high = interval_over_problems([count / n for count in right])
        of_problems += low <= mean <= high
        if samples := interval_over_samples(right, n):
            of_samples += samples[0] <= float(chances.mean()) <= samples[1]
    return of_problems / DRAWS, of_samples / DRAWS if n > 1 else None


def main() -> None:
    """One line for each population, number of problems and of responses; then the range of each interval's."""
    found = []
    for name, (population, mean) in POPULATIONS.items():
        for problems in (30, 83, 500):
            for n in (1, 4, 16):
                over, within = coverage(population, mean, problems, n)
                found.append((problems, over, within))
                last = "" if within is None else f", over samples {within:.1%}"
                print(f"{name}, {problems} problems, {n} responses: over problems {over:.1%}{last}")
    for problems in (30, 83, 500):
        over = [share for size, share, _ in found if size == problems]
        within = [share for size, _, share in found if size == problems and share is not None]
        print(
            f"{problems} problems: over problems {min(over):.1%} to {max(over):.1%}, median {np.median(over):.1%}; "
            f"over samples {min(within):.1%} to {max(within):.1%}, median {np.median(within):.1%}"
        )


if __name__ == "__main__":
    main()
