"""Finds the gold answer to a kept prompt by the hash of its problem, and compares answers with it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.data.gold import GoldFile, ProblemIdentity, load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.prompt_reader import text_of
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.reference.prompts import PromptSource, all_rows

# So many prompts are tried, because a gold file may only have some of them.
MAX_PROMPTS_TRIED = 32
# The most characters of a template before and after the problem. With more, hashing all cuts would take long.
LONGEST_TEMPLATE = 4000


@dataclass(frozen=True)
class PromptGold:
    """Gold answers by the hash of the problem; empty if no gold file was given.

    `before` and `after` are the numbers of characters that the template adds around a problem. `rows` has what the
    `kind` of answer reads of the problems, by their hash. If `exact`, an answer is only right if it would vote for the
    same class as gold; otherwise it is graded as in evaluations, which may be more lenient.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    before: int = 0
    after: int = 0
    kind: AnswerKind = MATHEMATICS
    rows: Mapping[str, Row] = field(default_factory=dict)
    exact: bool = False

    def of(self, prompt: str) -> str | None:
        """The gold answer to a prompt of the policy; None if there is none."""
        return self.answers.get(text_hash(self._problem(prompt))) if self.answers else None

    def right(self, prompt: str, answer: str | None) -> bool | None:
        """Whether the answer is right; None if the prompt has no gold answer.

        Raises ConfigError for `exact` where gold is not an answer but tests, as for programs.
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
    """The gold answers of a file to these prompts, with their template; `flags` are the run's flags of OpenRLHF.

    Answers are compared by their `kind`, with the columns that it reads of the run's training set.

    Raises DataError if the file cannot be read, has ids that are not in the training set, or answers no prompt.
    """
    joined = join(prompts, _answers_to(flags, load_gold(file, kind), kind))
    if joined is None:
        raise DataError(
            f"{file}: answers none of the {len(prompts)} prompts that were kept (gold is matched by the hash of the "
            "problem's text). Give the gold file of the run's prompts: rows {problem, answer}, or the .gold.jsonl "
            "that `restrain data` writes."
        )
    rows = {}
    # Whether two answers vote alike must not depend on gold's columns.
    own = kind.row if exact else kind.graded_row
    if kind.row_columns() | kind.graded_columns():
        rows = {text_hash(text): own(text, row) for text, row in _problems(flags)}
    return replace(joined, kind=kind, rows=rows, exact=exact)


def _answers_to(flags: Mapping[str, Any], gold: GoldFile, kind: AnswerKind) -> Mapping[str, str]:
    """The file's answers by the problem's hash. Ids and rows in the file are those of the run's training set."""
    if not gold.by_id and not gold.columns:
        return gold.by_problem
    name = flags.get("data.prompt_dataset")
    if not name:
        raise DataError(
            f"{gold.path}: gives gold by id, but this run does not record its training set, so that ids cannot be "
            "matched. Give rows {problem, answer}."
        )
    asked = (ProblemIdentity.of(row.get("id"), text, kind.row(text, row)) for text, row in _problems(flags))
    return gold.answers(str(name), asked)


def _problems(flags: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each problem of the run's training set with its row."""
    key, split = str(flags.get("data.input_key") or "input"), str(flags.get("data.prompt_split") or "train")
    source = PromptSource(str(flags["data.prompt_dataset"]), key, split=split)
    reader = source.reader()
    return ((text_of(reader.read(f"{source.dataset}, {where}", row)), row) for where, row in all_rows(source))


def join(prompts: Collection[str], answers: Mapping[str, str]) -> PromptGold | None:
    """The answers, with the template of these prompts; None if no prompt has an answer.

    The template is found by cutting off parts with which all prompts begin and end. A hash that matches proves the cut.
    """
    bare = PromptGold(answers)
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
    first, last = min(texts), max(texts)
    differing = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return min(next(differing, min(len(first), len(last))), LONGEST_TEMPLATE)
