"""Shows what is read in responses: the words that an answer stands in, and how much other kinds would read."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from restrain_openrlhf.answers.extract import SHORT, WINDOW, said
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, parse_kind
from restrain_openrlhf.errors import RestrainError

# The kinds that read any response without settings or columns of their own.
_PLAIN = (
    {"name": "math"},
    {"name": "number"},
    {"name": "choice"},
    {"name": "text"},
    {"name": "text", "read": "agreed"},
)
# How many groups other kinds read, and how many groups and answers of each are shown.
_COMPARED, _GROUPS, _ANSWERS = 50, 3, 3
# Characters of a response before and behind the marked words, and of these; places and words that are looked at.
_BEFORE, _BEHIND, _PLACES, _WORDS, _LONGEST_RUN = 60, 30, 8, 200, 8


@dataclass(frozen=True)
class Responses:
    """The responses to one prompt, None for each that was cut off, and what the kind of answer reads of its row."""

    texts: Sequence[str | None]
    row: Row

    def answers(self, kind: AnswerKind) -> list[str | None]:
        """What each response votes for. Raises what the kind raises."""
        return kind.voted_answers([text or "" for text in self.texts], [text is None for text in self.texts], self.row)


@dataclass(frozen=True)
class Reading:
    """An answer of a group, None for a missing one, the number of its rollouts, and one of them, as `marked`."""

    answer: str | None
    rollouts: int
    response: str


@dataclass(frozen=True)
class ReadGroup:
    """A problem, and what is read in the responses to it."""

    problem: str
    readings: tuple[Reading, ...]


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
        if not group.texts:
            return
        if self.seen % self.stride == 0:
            self.groups.append(group)
        if len(self.groups) > _COMPARED:
            self.groups, self.stride = self.groups[::2], 2 * self.stride
        self.seen += 1

    def shown(self, kind: AnswerKind) -> list[ReadGroup]:
        """Some of the groups with what is read in them. Raises what the kind raises."""
        chosen = self.groups[:: max(len(self.groups) // _GROUPS, 1)][:_GROUPS]
        return [ReadGroup(str(each.row.get(PROBLEM, "")), tuple(readings(kind, each))) for each in chosen]

    def compared(self, kind: AnswerKind) -> list[KindShare]:
        """The kind and the plain ones that can read these groups, those first whose answers agree most.

        Empty for a kind that is not plain: its prompts do not ask for such answers.
        """
        if not kind.is_plain:
            return []
        kinds = {_named(each): each for each in (kind, *map(parse_kind, _PLAIN))}
        found = []
        for name, each in kinds.items():
            with suppress(RestrainError):
                found.append(self._share(name, each))
        return sorted(found, key=lambda share: (-share.agreeing, -share.read))

    def in_words(self, kind: AnswerKind) -> Iterator[str]:
        """Sentences on what is read in some of the groups, and on the kind whose answers agree most."""
        found = [each for group in self.shown(kind) for each in group.readings if each.answer is not None]
        if found:
            yield f"Read, in « »: {'; '.join(each.response for each in found[:_GROUPS])}."
        best, *others = self.compared(kind) or [None]
        own = next((each for each in others if each.kind == _named(kind)), None)
        if best is not None and own is not None:
            yield f"Of these rollouts {best}, and {own}."

    def _share(self, name: str, kind: AnswerKind) -> KindShare:
        read = agreeing = rollouts = 0
        for group in self.groups:
            votes = Counter(kind.key(answer, group.row) for answer in group.answers(kind) if answer is not None)
            read, rollouts = read + votes.total(), rollouts + len(group.texts)
            agreeing += sum(count for count in votes.values() if count > 1)
        return KindShare(name, read / max(rollouts, 1), agreeing / max(rollouts, 1))


def _named(kind: AnswerKind) -> str:
    settings = kind.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return ", ".join([kind.name, *(f"{key}: {value}" for key, value in settings.items())])


def readings(kind: AnswerKind, group: Responses) -> list[Reading]:
    """The group's most frequent answers and the missing one, each with its first response.

    Raises what the kind raises.
    """
    found: dict[str | None, list[tuple[str | None, str]]] = {}
    for answer, text in zip(group.answers(kind), group.texts, strict=True):
        key = kind.key(answer, group.row) if kind.is_plain and answer is not None else answer
        found.setdefault(key, []).extend([(answer, text)] if text is not None else [])
    ranked = sorted(found, key=lambda key: (key is None, -len(found[key])))
    return [
        Reading(answer, len(found[key]), marked(text, place(kind, text, answer, group.row)))
        for key in [*ranked[:_ANSWERS], *([None] if None in ranked[_ANSWERS:] else [])]
        for answer, text in found[key][:1]
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
    text = text[-WINDOW:]
    found = list(_places(kind, text, answer, row))
    read = (each for each in found if kind.is_plain and kind.extract(text[: each[0]] + text[each[1] :], row) != answer)
    first, behind = next(read, found[0] if found else (-1, -1))
    return None if behind < 0 else (start + first, start + behind)


def _places(kind: AnswerKind, text: str, answer: str, row: Row) -> Iterator[tuple[int, int]]:
    """The last places that have the answer, then those of the last words that have its key."""
    for pattern in (rf"(?<!\w){re.escape(answer)}(?!\w)", re.escape(answer)):
        if found := [each.span() for each in re.finditer(pattern, text)]:
            yield from reversed(found[-_PLACES:])
            break
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
    """A response around the words in this place, which are in « », on one line; without a place, its end."""
    before, words, behind = parts(response, at)
    return f"{before}«{words}»{behind}" if at else before


def parts(response: str, at: tuple[int, int] | None) -> tuple[str, str, str]:
    """What stands before the words in this place, these, and what is behind, cut; without a place, the response's end."""
    if at is None:
        return _cut(response, -_BEFORE - _BEHIND), "", ""
    return _cut(response[: at[0]], -_BEFORE), _cut(response[at[0] : at[1]], _BEFORE), _cut(response[at[1] :], _BEHIND)


def _cut(text: str, length: int) -> str:
    """The first characters of a text on one line, or the last ones for a negative length."""
    line = re.sub(r"\s+", " ", text[: 4 * length] if length > 0 else text[4 * length :])
    if len(text) <= abs(length):
        return line
    return line[:length] + "…" if length > 0 else "…" + line[length:]
