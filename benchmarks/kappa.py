"""Which kappa, sigma and k stored rollouts ask for, by the size of a group, and which groups change side with it.

    python benchmarks/kappa.py FOLDER        # with math_50x8.jsonl, humaneval_82x30.jsonl and smollm2_text_86x16.jsonl
    python benchmarks/kappa.py FOLDER --gold GOLD.jsonl          # with files of `restrain reference`, NAME_PxN.jsonl

A group of n is drawn 20 times from each prompt's rollouts without replacement. A label is right by gold; no model is
trained. Of three runs on a busy machine, the shares of the programs (HumanEval) differed by up to .07, and the best
kappa not at all; the other files are exact.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.answers.kind import AnswerKind, Row
from restrain_openrlhf.commands.premise.calibration import best_kappa
from restrain_openrlhf.data.gold import load_gold
from restrain_openrlhf.evaluation.grade import GradeRow, ReliabilitySoFar, grade_vote
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.method.methods.restrain import Restrain
from restrain_openrlhf.method.types import count_votes
from restrain_openrlhf.reference import load_reference

DRAWS, SIZES = 20, (4, 8, 16, 30)
WIDTHS, CENTRES = (0.1, 0.25, 0.5, 1.0, 2.0), (0.5, 0.75, 1.0)
# The paper's kappa, as a count and as the share of its 16 rollouts.
COUNT, SHARE = 3, 3 / 16


@dataclass(frozen=True)
class Prompt:
    """The class of each rollout, None for a missing answer, and whether it is right."""

    classes: tuple[int | None, ...]
    right: tuple[bool, ...]

    @property
    def n(self) -> int:
        return len(self.classes)

    def drawn(self, places: Sequence[int]) -> GradeRow:
        """The rollouts at these places as a group; its answers are its classes, numbered anew."""
        found = [self.classes[place] for place in places]
        numbers = {
            label: number for number, label in enumerate(dict.fromkeys(each for each in found if each is not None))
        }
        classes = tuple(None if each is None else numbers[each] for each in found)
        answers = tuple(None if each is None else str(each) for each in classes)
        return GradeRow(id="", gold="", answers=answers, classes=classes, correct=tuple(self.right[p] for p in places))


def prompts(path: Path, gold_file: Path | None) -> Iterator[Prompt]:
    """The prompts of one of the three files, or of a reference, whose gold is in a file of its own."""
    if gold_file is not None:
        reference, answers_of = load_reference(path), load_gold(gold_file).by_problem
        for vote in reference.rows:
            grades = grade_vote(vote, answers_of[vote.problem_hash], reference.provenance.kind)
            yield Prompt(grades.classes, grades.correct)
        return
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "entry_point" in row:
            # Limits that a busy machine does not reach: then the classes do not depend on the machine.
            kind = parse_kind({"name": "code", "call_seconds": 5, "program_seconds": 60, "group_seconds": 3600})
            asked = {"problem": row["prompt"], "entry_point": row["entry_point"]}
            answers = [kind.extract(f"```python\n{each['code']}\n```", asked) for each in row["responses"]]
            right = [each["passed"] for each in row["responses"]]
        else:
            kind = parse_kind({"name": "text" if "gold" in row else "math"})
            asked, gold = kind.row(row["problem"], {}), row.get("gold") or row["answer"]
            answers = [kind.extract(each, asked) for each in row["responses"]]
            right = graded(kind, answers, gold, asked)
        yield Prompt(tuple(kind.classes(answers, asked)), tuple(right))


def graded(kind: AnswerKind, answers: Sequence[str | None], gold: str, row: Row) -> list[bool]:
    verdicts = {answer: kind.is_right(answer, gold, row) for answer in set(answers)}
    return [verdicts[answer] for answer in answers]


def main(folder: Path, gold_file: Path | None) -> None:
    columns = (
        "file, n",
        "below 3",
        "below 3/16",
        "other side",
        "right at M = 1, 2, 3, 4",
        "best kappa",
        "sigma at k = 1; best sigma, k",
    )
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for path in sorted(folder.glob("*_*x*.jsonl")):
        asked = list(prompts(path, gold_file))
        for n in (size for size in SIZES if size <= asked[0].n):
            print(f"| {path.stem.split('_')[0]}, {n} | {' | '.join(row_of(asked, n))} |", flush=True)


def row_of(asked: Sequence[Prompt], n: int) -> Iterator[str]:
    """What groups of n say."""
    rng = np.random.default_rng(0)
    groups = [(each, each.drawn(sorted(rng.choice(each.n, n, replace=False)))) for each in asked for _ in range(DRAWS)]
    sizes = np.array([group.group.votes.majority_count for _, group in groups])
    whole = np.array([count_votes(each.classes).majority_count / each.n for each, _ in groups])
    yield f"{np.mean(sizes < COUNT):.0%}"
    yield f"{np.mean(sizes / n < SHARE):.0%}"
    yield f"{np.mean((sizes < COUNT) != (whole < SHARE)):.0%}, {np.mean((sizes / n < SHARE) != (whole < SHARE)):.0%}"
    reliability = ReliabilitySoFar(n)
    for _, group in groups:
        reliability.add(group)
    right = {row.size: f"{row.majority_accuracy:.2f}" for row in reliability.rows()}
    yield ", ".join(right.get(size, "–") for size in range(1, 5))
    yield str(best_kappa(reliability.rows()))
    yield likeliest([group for _, group in groups])


def likeliest(groups: Sequence[GradeRow]) -> str:
    """The width and centre of g under which the right label has the highest weight, where some rollout is right."""
    tried = {}
    for sigma in WIDTHS:
        for k in CENTRES:
            method = parse_settings({"name": "restrain", "sigma": sigma, "k": k, "prompt_weight": "none"})
            assert isinstance(method, Restrain)
            tried[sigma, k] = method
    sums = dict.fromkeys(tried, 0.0)
    for group in groups:
        labels = {
            label for label, right in zip(group.classes, group.correct, strict=True) if right and label is not None
        }
        if labels:
            votes = count_votes(group.classes)
            for name, method in tried.items():
                sums[name] += np.log(max(method.gaussian(votes)[sorted(labels)].sum(), 1e-12))
    best = max(sums, key=lambda name: sums[name])
    at_one = max((name for name in sums if name[1] == 1), key=lambda name: sums[name])
    return f"{at_one[0]:g}; {best[0]:g}, {best[1]:g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gold", type=Path)
    main(parser.parse_args().folder, parser.parse_args().gold)
