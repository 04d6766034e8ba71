"""Kept rollouts beside gold: the gold answer to each kept prompt, and how often a run's pseudo-labels were right."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from os.path import commonprefix
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from pydantic import BaseModel

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.data.gold import ProblemIdentity, load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.prompt_reader import text_of
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.method.types import Floats
from restrain_openrlhf.records.kept import KeptGroup
from restrain_openrlhf.records.metrics import wilson_interval
from restrain_openrlhf.reference.prompts import PromptRows, PromptSource, all_rows

# So many prompts are tried, because a gold file may only have some of them.
MAX_PROMPTS_TRIED = 32
# The most characters of a template before and after the problem. With more, hashing all cuts would take long.
LONGEST_TEMPLATE = 4000
# Advantages that cancel out, such as those of two equal classes, leave rounding errors below this.
NO_SIGNAL = 1e-9


@dataclass(frozen=True)
class PromptGold:
    """Gold answers by the hash of the problem; empty if no gold file was given.

    `before` and `after` are the numbers of characters that the template adds around a problem. `rows` has what the
    grader of this `kind` of answer reads of the problems, by their hash. `problems` has those of chats.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    before: int = 0
    after: int = 0
    kind: AnswerKind = MATHEMATICS
    rows: Mapping[str, Row] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def of(self, prompt: str) -> str | None:
        """The gold answer to a prompt of the policy; None if there is none."""
        return self.answers.get(text_hash(self._problem(prompt))) if self.answers else None

    def right(self, prompt: str, answer: str | None) -> bool | None:
        """Whether the answer is right, graded as in evaluations; None if the prompt has no gold answer."""
        gold = self.of(prompt)
        return None if gold is None else self.kind.is_right(answer, gold, self.row(prompt))

    def row(self, prompt: str) -> Row:
        """What the kind of answer reads of a prompt, as far as it is known."""
        problem = self._problem(prompt)
        return self.rows.get(text_hash(problem)) or self.kind.row(problem, {})

    def _problem(self, prompt: str) -> str:
        return self.problems.get(prompt) or prompt[self.before : len(prompt) - self.after]


def gold_for(
    prompts: Collection[str], file: Path, flags: Mapping[str, Any], kind: AnswerKind = MATHEMATICS
) -> PromptGold:
    """The gold answers of a file to these prompts, with their template; `flags` are the run's flags of OpenRLHF.

    Answers are compared by their `kind`, with the columns that it reads of the run's training set, to which ids in the
    file belong, too. Raises DataError if the file cannot be read, has ids that are not in the training set, or answers
    no prompt.
    """
    gold, rows = load_gold(file, kind), {}
    answers: Mapping[str, str] = gold.by_problem
    if gold.by_id or gold.columns:
        asked = (ProblemIdentity.of(row.get("id"), text, kind.row(text, row)) for text, row in _problems(flags, file))
        answers = gold.answers(str(flags.get("data.prompt_dataset")), asked)
    if kind.row_columns() | kind.graded_columns():
        rows = {text_hash(text): kind.graded_row(text, row) for text, row in _problems(flags, file)}
    joined = join(prompts, answers, _problems_of_chats(flags, prompts))
    if joined is None:
        raise DataError(
            f"{file}: answers none of the {len(prompts)} prompts that were kept (gold is matched by the hash of the "
            "problem's text). Give the gold file of the run's prompts: rows {problem, answer}, or the .gold.jsonl "
            "that `restrain data` writes."
        )
    return replace(joined, kind=kind, rows=rows)


def _problems(flags: Mapping[str, Any], gold: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each problem of the run's training set with its row. Raises DataError if the run does not record the set."""
    if not flags.get("data.prompt_dataset"):
        raise DataError(
            f"{gold}: cannot be matched by id, nor graded by columns of the prompts' rows, because this run does not "
            "record its training set. Give rows {problem, answer}, for a kind of answer that reads no columns."
        )
    source = _source(flags)
    reader = source.reader()
    return ((text_of(reader.read(f"{source.dataset}, {where}", row)), row) for where, row in all_rows(source))


def _problems_of_chats(flags: Mapping[str, Any], prompts: Collection[str]) -> Mapping[str, str]:
    """The problem of each prompt, whose messages are apart in it; empty if the training set has no chats or is absent.

    Raises DataError for a prompt that is not of the training set.
    """
    if not (flags.get("data.apply_chat_template") and Path(str(flags.get("data.prompt_dataset"))).exists()):
        return {}
    source = _source(flags)
    rows = PromptRows.of(Path(source.dataset), MATHEMATICS, reader=source.reader())
    has_chats = any(len(texts) > 1 for texts in rows.rows)
    return {prompt: str(row[PROBLEM]) for prompt in prompts if has_chats and (row := rows.find(prompt))}


def _source(flags: Mapping[str, Any]) -> PromptSource:
    key, split = str(flags.get("data.input_key") or "input"), str(flags.get("data.prompt_split") or "train")
    return PromptSource(str(flags["data.prompt_dataset"]), key, split=split)


def join(
    prompts: Collection[str], answers: Mapping[str, str], problems: Mapping[str, str] = MappingProxyType({})
) -> PromptGold | None:
    """The answers, with the template of these prompts; None if no prompt has an answer.

    The template is found by cutting off parts with which all prompts begin and end. A hash that matches proves the cut.
    `problems` has the problems of prompts in which they are in several parts.
    """
    bare = PromptGold(answers, problems=problems)
    if any(bare.of(prompt) is not None for prompt in prompts):
        return bare
    before, after = _shared(prompts), _shared([prompt[::-1] for prompt in prompts])
    for prompt in list(prompts)[:MAX_PROMPTS_TRIED]:
        for cut in product(range(before + 1), range(after + 1)):
            if (found := PromptGold(answers, *cut)).of(prompt) is not None:
                return found
    return None


def _shared(texts: Collection[str]) -> int:
    """The number of characters with which all texts begin."""
    return min(len(commonprefix(list(texts))), LONGEST_TEMPLATE)  # noqa: RUF071 - texts, not paths


class Measures(BaseModel, frozen=True):
    """What is measured on some groups. Shares are in [0, 1], and None if there is nothing to take a share of.

    `label_accuracy` is the share of groups whose majority is right, with 95 % bounds (Wilson); where equal answers are
    not all right or all wrong, a majority counts as right to the share of its right rollouts. `some_right` is the share
    of groups with a right rollout, and `rollout_accuracy` that of right rollouts.

    `signals` counts trained rollouts with a net advantage, and `reward_accuracy` is the share of them that are right
    and pushed up, or wrong and pushed down.
    """

    groups: int
    label_accuracy: float
    label_low: float
    label_high: float
    some_right: float
    rollout_accuracy: float
    signals: int
    reward_accuracy: float | None

    @classmethod
    def of(cls, counts: Floats) -> Self:
        """The measures of one or more groups; `counts`, shape (groups, 6), has what is `counted` of each."""
        groups = len(counts)
        majorities_right, some_right, rollouts, rollouts_right, signals, agreeing = counts.sum(axis=0).tolist()
        low, high = wilson_interval(majorities_right, groups)
        return cls(
            groups=groups,
            label_accuracy=majorities_right / groups,
            label_low=low,
            label_high=high,
            some_right=some_right / groups,
            rollout_accuracy=rollouts_right / rollouts,
            signals=int(signals),
            reward_accuracy=agreeing / signals if signals else None,
        )


def counted(group: KeptGroup, gold: PromptGold) -> list[float]:
    """The numbers, of a group whose prompt has a gold answer, from which `Measures` are computed.

    They are the share of its majority that is right, whether some rollout is right, the rollouts, the right ones, the
    signals, and those signals that are right and pushed up, or wrong and pushed down. A missing answer is wrong.
    """
    right = [bool(gold.right(group.prompt, rollout.answer)) for rollout in group.rollouts]
    signals = _signals(group, right)
    return [majority_right(group, right), any(right), len(right), sum(right), len(signals), sum(signals)]


def majority_right(group: KeptGroup, right: Sequence[bool]) -> float:
    """The share of right rollouts in the class with the most votes, of tied classes the first; 0 without any class.

    `right` has one value for each rollout, in their order. The share is 0 or 1 where equal answers are equally right,
    as in mathematics. For embeddings, judges and programs it can be in between.
    """
    votes = {rollout.label: rollout.class_votes or 0 for rollout in group.rollouts if rollout.label is not None}
    label = min(votes, key=lambda label: (-votes[label], label), default=None)
    members = [is_right for rollout, is_right in zip(group.rollouts, right, strict=True) if rollout.label == label]
    return 0.0 if label is None else sum(members) / len(members)


def _signals(group: KeptGroup, right: Sequence[bool]) -> list[bool]:
    """Of each trained rollout with a net advantage A⁺ + A⁻, whether its sign agrees with right and wrong."""
    net = [(each.advantage_pos or 0.0) + (each.advantage_neg or 0.0) for each in group.rollouts]
    pushed = [each.trained and abs(by) > NO_SIGNAL for each, by in zip(group.rollouts, net, strict=True)]
    return [(by > 0) == is_right for by, is_right, counts in zip(net, right, pushed, strict=True) if counts]


class LabelQuality(BaseModel, frozen=True):
    """A run's pseudo-labels against gold, graded as in evaluations.

    A prompt is counted once, and its groups are visits to it.
    """

    prompts: int
    prompts_without_gold: int
    groups_without_gold: int
    total: Measures


def label_quality(groups: Iterable[KeptGroup], gold: PromptGold) -> LabelQuality:
    """Compare kept groups with gold.

    Groups without gold are counted and left out. At least one must have gold, which `gold_for` ensures.
    """
    counts, prompts, without = list[list[float]](), set(), Counter[str]()
    for group in groups:
        prompts.add(group.prompt_id)
        if gold.of(group.prompt) is None:
            without[group.prompt_id] += 1
        else:
            counts.append(counted(group, gold))
    return LabelQuality(
        prompts=len(prompts),
        prompts_without_gold=len(without),
        groups_without_gold=without.total(),
        total=Measures.of(np.array(counts, dtype=float)),
    )
