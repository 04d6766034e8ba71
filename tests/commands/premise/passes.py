"""Made-up offline passes: a few prompts and their answers, as files that the package's own writer wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, extract
from restrain_openrlhf.answers.votes import end_of
from restrain_openrlhf.commands.premise.frozen import FrozenPass, from_reference
from restrain_openrlhf.data.jsonl import dump, write_rows
from restrain_openrlhf.reference.artifact import ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt
from tests.reference.toy import provenance

Group = Sequence[str | None]


def counted(counts: Mapping[str | None, int]) -> list[str | None]:
    """A group from its votes."""
    return [answer for answer, count in counts.items() for _ in range(count)]


def write_pass(
    path: Path,
    groups: Sequence[Group],
    unread: Sequence[Sequence[str]] | None = None,
    kind: AnswerKind = MATHEMATICS,
) -> Path:
    """An artifact with the prompts `problem 0`, `problem 1`, …; `unread` has each prompt's responses without answer."""
    prompts = [Prompt(str(place), f"problem {place}", f"problem {place}", "") for place in range(len(groups))]
    found = zip(prompts, groups, unread or [()] * len(groups), strict=True)
    rows = ((ReferenceRow.of_answers(prompt, group, kind), ends) for prompt, group, ends in found)
    write_rows(path, [row.model_copy(update={"unread": tuple(map(end_of, ends[:1]))}) for row, ends in rows])
    made = {"n": len(groups[0]), "answers": kind.model_dump(mode="json"), "extractor_version": kind.whole_version}
    provenance(prompts, **made).write(path)
    return path


def pass_of_responses(path: Path, groups: Sequence[Sequence[str]]) -> Path:
    """An artifact of what a model wrote."""
    answers = [[extract(text) for text in texts] for texts in groups]
    unread = [[text for text in texts if extract(text) is None] for texts in groups]
    return write_pass(path, answers, unread)


def write_gold(path: Path, gold: Sequence[str | None]) -> Path:
    """Gold of the prompts in order; None: the prompt has none."""
    rows = [{"problem": f"problem {place}", "answer": one} for place, one in enumerate(gold) if one is not None]
    path.write_text("".join(map(dump, rows)), encoding="utf-8")
    return path


def frozen(folder: Path, groups: Sequence[Group], gold: Sequence[str | None] | None = None) -> FrozenPass:
    """The pass of these groups, read back from its files."""
    written = None if gold is None else write_gold(folder / "gold.jsonl", gold)
    return from_reference(write_pass(folder / "ref.jsonl", groups), written)
