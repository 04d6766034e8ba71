"""The options of a multiple-choice row: the columns that list them, their labels and texts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Annotated

from pydantic import BaseModel, Field

from restrain_openrlhf.answers.kind import PROBLEM, ParsedCell, Row, read_columns
from restrain_openrlhf.answers.kinds import reading
from restrain_openrlhf.errors import DataError

# Options of which the second denies the first, and what denies a sentence.
_OPPOSED = (("yes", "no"), ("true", "false"))
_DENIES = re.compile(r"\b(?:not|never|cannot|no)\b|n['’]t\b", re.IGNORECASE)


class _Labelled(BaseModel):
    """ARC's and CommonsenseQA's columns of options: the labels, and the texts in the same order."""

    label: list[str] = Field(min_length=1)
    text: list[str] = Field(min_length=1)


# In a Parquet file, each row's mapping has every key of the file, with None for options that the row lacks.
_Listing = _Labelled | dict[str, str | None] | list[str]


class _ChoiceColumns(BaseModel, coerce_numbers_to_str=True):
    options: Annotated[_Listing | None, ParsedCell] = None
    choices: Annotated[_Listing | None, ParsedCell] = None


@dataclass(frozen=True)
class Option:
    """One of a row's options: the label by which the prompt names it, and its text."""

    label: str
    text: str


def options_of(row: Row) -> tuple[Option, ...]:
    """A row's options in order, from its column `options` or `choices`; none if it has neither.

    The options of a list are labelled A, B, C and so on, those of a mapping by its keys. Raises DataError for a column
    in another form.
    """
    if row.get("options") is None and row.get("choices") is None:
        return ()
    columns = read_columns(_ChoiceColumns, row)
    column = "options" if columns.options is not None else "choices"
    pairs = _pairs(columns.options if columns.options is not None else columns.choices)
    if not pairs:
        raise DataError(
            f"The column {column!r} of the prompt {str(row.get(PROBLEM))[:60]!r} gives no list of options: it is "
            "empty, or has more than 26 options without letters, or has a different number of labels and texts. "
            "Correct the column, or remove it."
        )
    return pairs


def lists(text: str, options: Sequence[Option]) -> bool:
    """Whether the text names the last of the options by its label: `(D)`, `D)`, `D.` or `D:`."""
    return re.search(rf"(?:^|[\s(]){re.escape(options[-1].label)}[).:]", text) is not None


def _pairs(column: _Listing | None) -> tuple[Option, ...]:
    if isinstance(column, _Labelled):
        named = list(zip(column.label, column.text, strict=False)) if len(column.label) == len(column.text) else []
    elif isinstance(column, dict):
        named = [(label, text) for label, text in column.items() if text is not None]
    else:
        named = (
            list(zip(ascii_uppercase, column or (), strict=False)) if len(column or ()) <= len(ascii_uppercase) else []
        )
    return tuple(Option(label.strip().upper(), text) for label, text in named)


def affirmed(text: str, options: tuple[Option, ...], question: str) -> str | None:
    """Of yes and no, or true and false: which one the first sentence that has all the question's words comes to.

    The question itself, asked again, comes to neither.
    """
    words = {option.text.strip().casefold(): option.text for option in options}
    stem = re.split(r"[?\n]", question, maxsplit=1)[0]
    asked = reading.content(stem)
    said = text.replace(f"{stem}?", " ")
    sentences = (each for line in said.split("\n") for each in reading.sentences(line))
    sentence = next((each for each in sentences if asked and asked <= reading.content(each)), None)
    pair = next((pair for pair in _OPPOSED if words.keys() == set(pair)), None)
    if sentence is None or pair is None or _DENIES.search(stem):
        return None
    before = sentence[: max(sentence.lower().find(word) for word in asked)]
    return words[pair[_DENIES.search(before) is not None]]
