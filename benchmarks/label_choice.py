"""Whether `restrain label` draws prompts whose labels change more than those of prompts that are drawn at random.

    python benchmarks/label_choice.py ROLLOUTS.jsonl [--gold GOLD] [--answers KIND] [--set KEY=VALUE]
    python benchmarks/label_choice.py REF.jsonl --reference --gold GOLD

The file is one that `restrain premise` reads. A fifth of its prompts is labelled, and each figure is the mean over
those prompts, expected over all draws.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from restrain_openrlhf.commands.options import split_answers
from restrain_openrlhf.commands.premise.calibration import weighted_mean
from restrain_openrlhf.commands.premise.frozen import FrozenGroup, from_reference, from_rollouts
from restrain_openrlhf.commands.premise.label import by_worth, candidate, draw
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.method import Method, build, parse_settings
from restrain_openrlhf.method.types import Floats
from restrain_openrlhf.scoring import score_group

RESTRAIN, GOLD = (build(parse_settings({"name": name})) for name in ("restrain", "grpo_gold"))
DRAWS = 1000


def advantages(method: Method, group: FrozenGroup) -> Floats:
    """A⁺ + A⁻ of the prompt's rollouts, (n,)."""
    row = group.row
    return score_group(method, group.group, row, group.gold, "", kind=group.kind, row=row.row).pair.net


def gold_teaches(group: FrozenGroup) -> float:
    """1 where training on the label has a gradient: some answers are right, and some are wrong."""
    return float(advantages(GOLD, group).any())


def corrects(group: FrozenGroup) -> float:
    """1 where the majority is wrong and some answer is right."""
    return float(not group.majority_is_right and group.grades is not None and any(group.grades.correct))


def change(group: FrozenGroup) -> float:
    """||A_gold - A||^2: how much the label changes what RESTRAIN would learn."""
    return float(np.sum((advantages(GOLD, group) - advantages(RESTRAIN, group)) ** 2))


MEASURES: dict[str, Callable[[FrozenGroup], float]] = {
    "a label has a gradient": gold_teaches,
    "corrects a wrong majority": corrects,
    "squared change of RESTRAIN's advantages": change,
}


def main(path: Path, read: Callable[..., object]) -> None:
    frozen = read(path)
    groups = {group.row.problem_hash: group for group in frozen.groups if group.gold is not None}
    ranked = by_worth(map(candidate, groups.values()))
    count = len(ranked) // 5
    best = sum(pi == 1 for _, pi in draw(ranked, count))
    ways = {
        "the highest worth alone": np.arange(len(ranked)) < count,
        "`restrain label`": np.where(np.arange(len(ranked)) < best, 1, (count - best) / (len(ranked) - best)),
        "at random": np.ones(len(ranked)),
    }
    print(f"{path.name}: {count} of {len(ranked)} prompts\n| | {' | '.join(ways)} |\n|---|---|---|---|")
    for name, measure in MEASURES.items():
        values = np.array([measure(groups[each.problem_hash]) for each in ranked])
        print(f"| {name} | {' | '.join(f'{pi @ values / pi.sum():.2f}' for pi in ways.values())} |")
    right = {each.problem_hash: float(groups[each.problem_hash].majority_is_right) for each in ranked}
    truth = np.mean(list(right.values()))
    estimates = {"all labels count once": [], "weighted": []}
    for seed in range(DRAWS):
        drawn = draw(ranked, count, seed)
        found, weights = [right[each.problem_hash] for each, _ in drawn], [1 / chance for _, chance in drawn]
        estimates["all labels count once"].append(np.mean(found))
        estimates["weighted"].append(weighted_mean(found, weights)[0])
    print(f"share of right majorities: {truth:.2f}. Estimated over {DRAWS} draws, with root mean squared error:")
    for name, values in estimates.items():
        print(f"{name}: {np.mean(values):.2f}, {np.sqrt(np.mean((np.array(values) - truth) ** 2)):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--reference", action="store_true", help="FILE is the file of an offline pass")
    parser.add_argument("--gold", type=Path)
    parser.add_argument("--answers")
    parser.add_argument("--set", action="append", default=[], dest="keys", help="answers.KEY=VALUE")
    given = parser.parse_args()
    _, kind = split_answers(parse_overrides(given.keys, example="answers.read=agreed"), given.answers)
    of_rollouts = partial(from_rollouts, **({"kind": kind} if kind else {}))
    main(given.file, partial(from_reference if given.reference else of_rollouts, gold=given.gold))
