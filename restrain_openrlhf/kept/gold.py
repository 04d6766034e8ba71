"""What is right: the gold answer to a kept prompt, by the hash of its problem, and whether an answer equals it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from restrain_openrlhf.answers.gold import is_right
from restrain_openrlhf.data.gold_split import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError

# Enough prompts to meet one that a gold file of a part of them has.
TRIED = 32
# Characters of a template before and after the problem; beyond, hashing all cuts would take long.
LONGEST_TEMPLATE = 4000

graded = lru_cache(maxsize=1_000_000)(is_right)


@dataclass(frozen=True)
class Template:
    """How many characters a prompt has before and after the problem as the data set states it."""

    before: int = 0
    after: int = 0

    def problem(self, prompt: str) -> str:
        """The prompt without its template."""
        return prompt[self.before : len(prompt) - self.after]


@dataclass(frozen=True)
class Gold:
    """Gold answers by the hash of the problem; empty where the reader gave none."""

    answers: Mapping[str, str] = field(default_factory=dict)
    template: Template = Template()

    def of(self, prompt: str) -> str | None:
        """The gold answer to a prompt as the policy saw it; None where there is none."""
        return self.answers.get(text_hash(self.template.problem(prompt))) if self.answers else None

    def right(self, prompt: str, answer: str | None) -> bool | None:
        """Whether the answer is right, by the rule of evaluation; None where the prompt has no gold answer."""
        gold = self.of(prompt)
        return None if gold is None else graded(answer, gold)


def gold_for(prompts: Collection[str], file: Path) -> Gold:
    """The file's answers, and the template around the problems of these prompts.

    Raises DataError where the file cannot be read, and where it has none of the prompts.
    """
    joined = join(prompts, load_gold(file))
    if joined is None:
        raise DataError(
            f"{file}: has no answer to any of the {len(prompts)} prompts that were kept; they are joined by the hash "
            "of the problem. Give the gold file of the run's prompts: rows {problem, answer}, or the .gold.jsonl that "
            "`restrain data` writes."
        )
    return joined


def join(prompts: Collection[str], answers: Mapping[str, str]) -> Gold | None:
    """The answers, by the problem's hash, with the template around these prompts; None where no prompt has one."""
    template = template_of(prompts, frozenset(answers))
    return None if template is None else Gold(answers, template)


def template_of(prompts: Collection[str], problems: frozenset[str]) -> Template | None:
    """The template of a run's prompts, by trying what they all begin and end with; None where no problem is found.

    `problems` are hashes. A hash that is met proves the cut, so nothing is guessed.
    """
    if any(text_hash(prompt) in problems for prompt in prompts):
        return Template()
    before, after = _shared(prompts), _shared([prompt[::-1] for prompt in prompts])
    cuts = [Template(one, other) for one in range(before + 1) for other in range(after + 1)]
    for prompt in list(prompts)[:TRIED]:
        for cut in cuts:
            if text_hash(cut.problem(prompt)) in problems:
                return cut
    return None


def _shared(texts: Collection[str]) -> int:
    """How many characters all texts begin with."""
    first, last = min(texts), max(texts)
    differing = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return min(next(differing, min(len(first), len(last))), LONGEST_TEMPLATE)
