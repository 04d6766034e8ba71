"""Shows what is read in responses: the words that an answer stands in, and how much other kinds would read."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from restrain_openrlhf.answers.extract import SHORT, WINDOW, said
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, parse_kind
from restrain_openrlhf.errors import RestrainError

# The kinds that read any response without settings or columns of their own.
_PLAIN = [*({"name": name} for name in ("math", "number", "choice", "text")), {"name": "text", "read": "agreed"}]
# How many groups other kinds read, and how many groups and answers of each are shown.
_COMPARED, _GROUPS, _ANSWERS = 50, 3, 3
# Characters of a response before and behind the marked words, and of these; places and words that are looked at.
_BEFORE, _BEHIND, _PLACES, _WORDS, _LONGEST_RUN = 80, 30, 8, 60, 8


@dataclass(frozen=True)
class Responses:
    """The responses to one prompt, None for each that was cut off, and what the kind of answer reads of its row."""

    texts: Sequence[str | None]
    row: Row

    @classmethod
    def of(cls, texts: Sequence[str], truncated: Sequence[bool], row: Row) -> Self:
        return cls(tuple(None if cut else text for text, cut in zip(texts, truncated, strict=True)), row)

    def answers(self, kind: AnswerKind) -> list[str | None]:
        """What each response votes for. Raises what the kind raises."""
        return kind.voted_answers([text or "" for text in self.texts], [text is None for text in self.texts], self.row)


@dataclass(frozen=True)
class Reading:
    """An answer to a problem, None for a missing one, how many rollouts give it, and one of them, as `marked`."""

    problem: str
    answer: str | None
    rollouts: int
    response: str


@dataclass(frozen=True)
class KindShare:
    """What a kind reads: its share of the rollouts, and the share whose answer another one of their group gives too."""

    kind: str
    read: float
    agreeing: float

    def __str__(self) -> str:
        return f"{self.kind!r} reads {self.read:.0%} ({self.agreeing:.0%} agree with another one of their group)"


@dataclass
class Sample:
    """Some of the groups that are added, evenly spaced among them."""

    groups: list[Responses] = field(default_factory=list)
    seen: int = 0
    stride: int = 1

    def add(self, group: Responses) -> None:
        """Add a group, unless its responses are not at hand."""
        self.groups += [group] if group.texts and self.seen % self.stride == 0 else []
        self.seen += bool(group.texts)
        if len(self.groups) > _COMPARED:
            self.groups, self.stride = self.groups[::2], 2 * self.stride

    def shown(self, kind: AnswerKind) -> list[Reading]:
        """What is read in some of the groups. Raises what the kind raises."""
        chosen = self.groups[:: max(len(self.groups) // _GROUPS, 1)][:_GROUPS]
        return [reading for group in chosen for reading in _readings(kind, group)]

    def compared(self, kind: AnswerKind) -> list[KindShare]:
        """The kind and the plain ones that can read these groups, those first whose answers agree most.

        Empty for a kind that is not plain: its prompts do not ask for such answers.
        """
        if not kind.is_plain:
            return []
        found = []
        for name, each in {_named(each): each for each in (kind, *map(parse_kind, _PLAIN))}.items():
            # A prompt's row may not be in the form that another kind reads.
            with suppress(RestrainError):
                found.append(_share(name, each, self.groups))
        return sorted(found, key=lambda share: (-share.agreeing, -share.read))

    def in_words(self, kind: AnswerKind) -> Iterator[str]:
        """Sentences on what is read in some of the groups, and on the kind whose answers agree most."""
        if found := dict.fromkeys(each.response for each in self.shown(kind) if each.answer is not None):
            yield f"Read, in « »: {'; '.join(list(found)[:_GROUPS])}."
        for share in self.compared(kind)[:1]:
            yield f"Of these rollouts {share}."


def _share(name: str, kind: AnswerKind, groups: Sequence[Responses]) -> KindShare:
    keys = [[kind.key(each, group.row) for each in group.answers(kind) if each is not None] for group in groups]
    rollouts = sum(len(group.texts) for group in groups) or 1
    agreeing = sum(count for votes in map(Counter, keys) for count in votes.values() if count > 1)
    return KindShare(name, sum(map(len, keys)) / rollouts, agreeing / rollouts)


def _named(kind: AnswerKind) -> str:
    settings = kind.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return ", ".join([kind.name, *(f"{key}: {value}" for key, value in settings.items())])


def _readings(kind: AnswerKind, group: Responses) -> list[Reading]:
    """The group's most frequent answers and the missing one, each with its first response."""
    found: dict[str | None, list[tuple[str | None, str]]] = {}
    for answer, text in zip(group.answers(kind), group.texts, strict=True):
        if text is not None:
            key = kind.key(answer, group.row) if kind.is_plain and answer is not None else answer
            found.setdefault(key, []).append((answer, text))
    ranked = sorted(found.values(), key=lambda each: (each[0][0] is None, -len(each)))
    chosen = [each for rank, each in enumerate(ranked) if rank < _ANSWERS or each[0][0] is None]
    return [
        Reading(str(group.row.get(PROBLEM, "")), answer, len(each), marked(text, place(kind, text, answer, group.row)))
        for each in chosen
        for answer, text in each[:1]
    ]


def place(kind: AnswerKind, response: str, answer: str | None, row: Row) -> tuple[int, int] | None:
    """Where a response's answer stands in it, from the first to behind the last character; None if it is not found.

    It is the last place that has the answer, or words with its key, and without which the response would have another
    one; if there is none such, the last place that has it.
    """
    text = said(response) or ""
    if not answer or not text:
        return None
    start = response.rfind(text) + max(len(text) - WINDOW, 0)
    text, found = text[-WINDOW:], None
    for first, behind in _places(kind, text, answer, row):
        found = found or (start + first, start + behind)
        if kind.is_plain and kind.extract(text[:first] + text[behind:], row) != answer:
            return start + first, start + behind
    return found


def _places(kind: AnswerKind, text: str, answer: str, row: Row) -> Iterator[tuple[int, int]]:
    """The last places that have the answer, if any as whole words, then those of the last words that have its key."""
    exact = re.escape(answer)
    as_words, anywhere = (
        [each.span() for each in re.finditer(pattern, text)] for pattern in (rf"(?<!\w){exact}(?!\w)", exact)
    )
    yield from reversed((as_words or anywhere)[-_PLACES:])
    if kind.is_plain and len(answer) <= SHORT:
        yield from islice(_alike(kind, text, answer, row), _PLACES)


def _alike(kind: AnswerKind, text: str, answer: str, row: Row) -> Iterator[tuple[int, int]]:
    words, key = [each.span() for each in re.finditer(r"\S*[^\s.,;:!?]", text)][-_WORDS:], kind.key(answer, row)
    for last in reversed(range(len(words))):
        for first in range(last, max(last - _LONGEST_RUN, -1), -1):
            if kind.key(text[words[first][0] : words[last][1]], row) == key:
                yield words[first][0], words[last][1]
                break


def marked(response: str, at: tuple[int, int] | None) -> str:
    """The words in this place in « », with some before and behind; without a place, the response's end."""
    before, words, behind = parts(response, at)
    return f"{before}«{words}»{behind}" if at else before


def parts(response: str, at: tuple[int, int] | None) -> tuple[str, str, str]:
    """As `marked`: what stands before the words, the words, and what stands behind them, each on one line."""
    start, end = at or (len(response), len(response))
    before = "…" * (start > _BEFORE) + response[max(start - _BEFORE, 0) : start]
    behind = response[end : end + _BEHIND] + "…" * (end + _BEHIND < len(response))
    before, words, behind = (re.sub(r"\s+", " ", part) for part in (before, response[start:end][:_BEFORE], behind))
    return before, words, behind
