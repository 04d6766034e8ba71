"""Compares the form in which prompts ask for their answer, such as a box, with what the kind of answer reads."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice

from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row
from restrain_openrlhf.errors import ConfigError, DataError

# How many prompts of a file are compared: its first ones.
COMPARED = 20
# Answers of several kinds. A kind reads a form if it reads one of them in it.
SAMPLES = ("1", "A", "Paris", '{"a": 1}', "SELECT 1")
# How a form is asked for, its name, and an answer in it. A form without one may be named in passing, so that nothing
# is refused because of it.
FORMS = (
    (r"\\+boxed", "a box", r"\boxed{%s}"),
    (r"(?i)<(\w*(?:answer|result|solution)\w*)>", "a tag <TAG>", "<TAG>%s</TAG>"),
    (r"(?i)[\"'“‘](?:the (?:final )?answer is|(?:final )?answer:)", "an announcement", "Answer: %s"),
    (r"(?i)the (?:final )?answer is|answer:", "an announcement", ""),
    (r"JSON", "JSON", ""),
    (r"(?i)```|\bfenced\b|block of (?:code|python)", "a block of code", ""),
)


def compare_forms(kind: AnswerKind, prompts: Iterable[tuple[str, Row]]) -> str:
    """A note if none of the first prompts asks for what the kind's own sentence asks for; empty otherwise.

    A prompt is its text and its row. Raises ConfigError if each asks for a form in which the kind reads no answer.
    """
    known = list(islice(prompts, COMPARED))
    unread = [why_unread(kind, text, row) for text, row in known]
    if known and all(unread):
        raise ConfigError(f"Each of the first {len(known)} prompts {unread[0]}")
    others = [_another_form(kind, text, row) for text, row in known]
    return others[0] or "" if known and all(others) else ""


def why_unread(kind: AnswerKind, text: str, row: Row | None = None) -> str | None:
    """What a prompt or template asks for, if the kind reads no answer in that form, and what mends it; else None.

    A row that lacks what the kind needs is not told here.
    """
    known, asked = {PROBLEM: ""} if row is None else row, _asked(text)
    if asked.keys() & _asked(kind.instruction_for(known)).keys():
        return None
    answers = [form % sample for form in asked.values() for sample in SAMPLES if form]
    with suppress(DataError):
        # A kind that takes such an answer whole, as the last line, would call none of them right.
        if answers and all(kind.extract(answer, known) in (None, answer) for answer in answers):
            return (
                f"asks for {' and '.join(asked)}, in which the kind of answer {kind.name!r} reads none as it is set. "
                f'{kind.reads} Ask for it, such as by "{kind.instruction_for(known)}", or change `answers:`.'
            )
    return None


def _another_form(kind: AnswerKind, text: str, row: Row) -> str | None:
    own, asked = kind.instruction_for(row), _asked(text)
    if not own or own in text or asked.keys() & _asked(own).keys():
        return None
    found = " and ".join(asked) or "neither a box, a tag, an announcement, JSON nor a block of code"
    return (
        f"note: the prompts ask for {found}, and `answers:` is {kind.name}. {kind.reads} Unless they ask for it in "
        f'other words, put a sentence such as "{own}" into data.input_template, or into the prompts themselves.'
    )


def _asked(text: str) -> Mapping[str, str]:
    """The forms that a text asks for by their names, each with an answer in it, in which %s stands for the answer."""
    asked: dict[str, str] = {}
    for pattern, name, form in FORMS:
        for found in re.finditer(pattern, text):
            tag = found[found.re.groups]
            asked.setdefault(name.replace("TAG", tag), form.replace("TAG", tag))
    return asked
