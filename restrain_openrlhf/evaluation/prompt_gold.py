"""What is right: the gold answer to a kept prompt, by the hash of its problem, and whether an answer equals it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.data.gold import identities, load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.reference.prompts import PromptSource, all_rows

# Enough prompts to meet one that a gold file of a part of them has.
TRIED = 32
# Characters of a template before and after the problem; beyond, hashing all cuts would take long.
LONGEST_TEMPLATE = 4000


@dataclass(frozen=True)
class PromptGold:
    """Gold answers by the hash of the problem; empty where the reader gave none.

    `before` and `after`: characters of a prompt around the problem as the data set states it, its template. `rows` are
    what the `kind` of answer reads of the problems, by their hash. `exact`: an answer is right only if it would vote
    for the same class as gold; otherwise it is graded as in evaluations, which may be more lenient.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    before: int = 0
    after: int = 0
    kind: AnswerKind = MATHEMATICS
    rows: Mapping[str, Row] = field(default_factory=dict)
    exact: bool = False

    def of(self, prompt: str) -> str | None:
        """The gold answer to a prompt as the policy saw it; None where there is none."""
        return self.answers.get(text_hash(self._problem(prompt))) if self.answers else None

    def right(self, prompt: str, answer: str | None) -> bool | None:
        """Whether the answer is right; None where the prompt has no gold answer.

        Raises ConfigError for `exact` where gold is no answer but tests, as of programs.
        """
        gold, problem = self.of(prompt), self._problem(prompt)
        if gold is None:
            return None
        row = self.rows.get(text_hash(problem)) or self.kind.row(problem, {})
        return self._votes_alike(answer, gold, row) if self.exact else self.kind.is_right(answer, gold, row)

    def _votes_alike(self, answer: str | None, gold: str, row: Row) -> bool:
        if (wanted := self.kind.answer_of_gold(gold, row)) is None:
            raise ConfigError(
                f"--exact: the gold of {row[PROBLEM][:60]!r} is tests that an answer has to pass, and no answer that "
                "could vote. Leave --exact out."
            )
        own, other = self.kind.classes([answer, wanted], row)
        return own is not None and own == other

    def _problem(self, prompt: str) -> str:
        return prompt[self.before : len(prompt) - self.after]


def gold_for(
    prompts: Collection[str],
    file: Path,
    flags: Mapping[str, Any],
    kind: AnswerKind = MATHEMATICS,
    *,
    exact: bool = False,
) -> PromptGold:
    """The file's answers, and the template around the problems of these prompts; `flags` are the run's, of OpenRLHF.

    Answers are compared as their `kind` says, with the columns that it reads of the run's training set.

    Raises DataError where the file cannot be read, has ids that the run's training set has not, or none of the prompts.
    """
    joined = join(prompts, _answers_to(flags, file))
    if joined is None:
        raise DataError(
            f"{file}: answers none of the {len(prompts)} prompts that were kept (gold is matched by the hash of the "
            "problem's text). Give the gold file of the run's prompts: rows {problem, answer}, or the .gold.jsonl "
            "that `restrain data` writes."
        )
    rows = {}
    # Whether two answers would vote alike is not for gold's columns to say.
    own = kind.row if exact else kind.graded_row
    if kind.row_columns() | kind.graded_columns():
        rows = {text_hash(text): own(text, row) for text, row in _problems(flags)}
    return replace(joined, kind=kind, rows=rows, exact=exact)


def _answers_to(flags: Mapping[str, Any], file: Path) -> Mapping[str, str]:
    """The file's answers by the problem's hash. Where it has ids, they are those of the run's training set."""
    gold = load_gold(file)
    if not gold.by_id:
        return gold.by_problem
    name = flags.get("data.prompt_dataset")
    if not name:
        raise DataError(
            f"{file}: gives gold by id, but this run does not record its training set, so that ids cannot be matched. "
            "Give rows {problem, answer}."
        )
    return gold.answers(str(name), identities([(row.get("id"), text) for text, row in _problems(flags)]))


def _problems(flags: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each problem of the run's training set, and its row."""
    key, split = str(flags.get("data.input_key") or "input"), str(flags.get("data.prompt_split") or "train")
    rows = all_rows(PromptSource(str(flags["data.prompt_dataset"]), split=split))
    return ((str(row.get(key)), row) for _, row in rows)


def join(prompts: Collection[str], answers: Mapping[str, str]) -> PromptGold | None:
    """The answers, with the template around these prompts; None where no prompt has one.

    The template is found by trying what all prompts begin and end with. A hash that is met proves the cut, so nothing
    is guessed.
    """
    bare = PromptGold(answers)
    if any(bare.of(prompt) is not None for prompt in prompts):
        return bare
    before, after = _shared(prompts), _shared([prompt[::-1] for prompt in prompts])
    for prompt in list(prompts)[:TRIED]:
        for cut in product(range(before + 1), range(after + 1)):
            if (found := PromptGold(answers, *cut)).of(prompt) is not None:
                return found
    return None


def _shared(texts: Collection[str]) -> int:
    """How many characters all texts begin with."""
    first, last = min(texts), max(texts)
    differing = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return min(next(differing, min(len(first), len(last))), LONGEST_TEMPLATE)
