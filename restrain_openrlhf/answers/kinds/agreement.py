"""Reads a group of free texts together: a response's answer is its phrase that most of the responses have.

Phrases are the runs of words between marks, function words, and words of the question. They are compared whole, so that
neither "York" and "New York" nor "12 km" and "15 km" agree by what they share. A list is the set of its items, unless
the question asks for an order, and the answer to a yes-or-no question is a first word "yes" or "no".
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Self

from restrain_openrlhf.answers.extract import MAX_ANSWER
from restrain_openrlhf.answers.votes import representative
from restrain_openrlhf.answers.words import common_words

# Function words that may stand within a name, as in "The Lord of the Rings" and "Rio de Janeiro".
_WITHIN_NAMES = frozenset("a an at by da de del der di du for from in la of on the to van von with".split())
_FUNCTION_WORDS = _WITHIN_NAMES.union(
    "about all also am and any are as be been being between but can could did do does had has have he her here".split(),
    "how i i'm if into is it it's its just let's may me might must my only or our shall she should so some".split(),
    "such than that that's the their them then there there's these they this those us very was we were what".split(),
    "when where which who whom whose why will would you your".split(),
    "called considered found known lies located means named refers situated".split(),
    "的 是 在 了 は が の を に で も です ます でした ました คือ เป็น ของ และ ที่ อยู่ ใน ว่า ชื่อ ครับ ค่ะ".split(),
)
_NEGATION = re.compile(r"not|never|cannot|\w+n['’]t")
_YES_OR_NO = frozenset(["yes", "no"])
# A question that begins with a verb and offers nothing else, and one whose answer is a list in an order.
_ASKS_YES_OR_NO = re.compile(
    r"(?:\A|[.:!?\n])\s{0,3}(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|may|must)\s"
    r"(?:(?!\sor\s(?!no\b))[^.:?!\n])*[?:]",
    re.IGNORECASE,
)
_ASKS_FOR_ORDER = re.compile(
    r"\b(?:order|sort|rank|arrange|sequence|steps?|first|last|next|then|from\s[^.?!\n]{1,80}\bto|\w+(?:cal|ing)ly)\b",
    re.IGNORECASE,
)
# Of scripts that do not separate words (Thai, Lao, Burmese, Khmer, Hiragana, Han), every character with its marks is a
# word, except function words. Katakana are spelt like words of an alphabet.
_UNSPACED = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f" + "".join(
    each for each in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(each).startswith("M")
)
_LETTER = rf"(?:[^\W_{_UNSPACED}]|[{_MARKS}])"
_UNSPACED_WORDS = "|".join(word for word in _FUNCTION_WORDS if len(word) > 1 and word[0] >= "\u0e00")
_WORD = re.compile(
    rf"(?P<word>[$€£]?(?:(?<!\w)[-−+])?\d+(?:[.,:/]\d+)*%?(?!{_LETTER})|(?:{_UNSPACED_WORDS}|[{_UNSPACED}])[{_MARKS}]*"
    rf"|{_LETTER}+(?:['’-](?!s\b){_LETTER}+)*)(?P<genitive>['’]s\b)?"
)
_CHARACTER = re.compile(f"[{_UNSPACED}][{_MARKS}]*")
# What may stand between the words of one phrase: spaces, marks of emphasis, and the full stop of an abbreviation.
_SPACE = re.compile(r"[ \t*_`\"“”]*")
_ABBREVIATION, _STOP = re.compile(r"[^\W\d_]|[dm]r|mrs|st|mt|ft", re.IGNORECASE), re.compile(r"\.[ \t]*")
# What stands between the items of an enumeration; one with a word ends it.
_JOINT = re.compile(r"\s*(?:[,、]|,?\s*(and|or|und|oder|y|et|ou|和|及|と|&))\s*")


@dataclass(frozen=True)
class _Word:
    """A word and its place. A phrase ends before a word `after_mark`. An idle word, as the question's, is no answer."""

    key: str
    start: int
    end: int
    is_name: bool
    after_mark: bool
    is_idle: bool = False


def agreed(
    responses: Sequence[str], stated: Sequence[str | None], question: str, ignore_case: bool = True
) -> list[str | None]:
    """The answer of each response to one question; None if it agrees with no other. Their order changes nothing.

    `stated` has what a response states in a form, which is its only phrase. Of a response, the last MAX_ANSWER
    characters are read. Equal answers are equal texts: the group's most frequent spelling.
    """
    reader = _Reader.of(question, ignore_case)
    found = [
        reader.phrases(text[-MAX_ANSWER:]) if form is None else reader.stated(form)
        for text, form in zip(responses, stated, strict=True)
    ]
    count = Counter(key for own in found for key in own)
    place = Counter[str]()
    for own in found:
        place.update({key: rank for rank, key in enumerate(own)})
    best = [max(own, key=lambda key: (count[key], -place[key], len(key), key), default="") for own in found]
    alone = _YES_OR_NO if reader.is_yes_or_no else ()
    sure = {key for key in best if count[key] > 1 or key in alone}
    texts = {key: representative(own[key] for own in found if key in own) for key in sure}
    return [texts.get(key) for key in best]


@lru_cache(maxsize=256)
def content_words(text: str) -> frozenset[str]:
    """The words of a text, in lower case, without function words."""
    return frozenset(word.key for word in _words(text, ignore_case=True)) - _FUNCTION_WORDS - common_words(text)


@dataclass(frozen=True)
class _Reader:
    """Finds the phrases of responses to a question: `asked` are its words, and its pairs of unspaced characters."""

    asked: frozenset[str]
    function_words: frozenset[str]
    ignore_case: bool
    is_ordered: bool
    is_yes_or_no: bool

    @classmethod
    def of(cls, question: str, ignore_case: bool) -> Self:
        """Words beside an "or" in the question are choices, and may be an answer."""
        function_words = _FUNCTION_WORDS | common_words(question)
        keys = [word.key for word in _words(question, ignore_case)]
        runs = [(apart, list(run)) for apart, run in groupby(keys, key=lambda key: key in function_words)]
        beside = [place + step for place, (_, run) in enumerate(runs) if "or" in run for step in (-1, 1)]
        asked = {key for place, (apart, run) in enumerate(runs) if not apart and place not in beside for key in run}
        characters = {key for key in asked if _CHARACTER.fullmatch(key)}
        pairs = {one + other for one, other in pairwise(keys) if {one, other} <= characters | function_words}
        # By which words another language asks for an order is not known.
        is_ordered = bool(_ASKS_FOR_ORDER.search(question) or common_words(question))
        is_yes_or_no = _ASKS_YES_OR_NO.search(question) is not None
        return cls(frozenset(asked - characters | pairs), function_words, ignore_case, is_ordered, is_yes_or_no)

    def _words(self, text: str) -> list[_Word]:
        words = _words(text, self.ignore_case)
        keys = ["", *(word.key for word in words), ""]
        around = zip(keys, keys[1:], keys[2:], strict=False)
        idle = [
            key in self.function_words or not self.asked.isdisjoint((key, before + key, key + after))
            for before, key, after in around
        ]
        return [replace(word, is_idle=each) for word, each in zip(words, idle, strict=True)]

    def stated(self, text: str) -> dict[str, str]:
        """A whole text as the only phrase, by its key."""
        words = _words(text, self.ignore_case)
        while len(words) > 1 and words[0].key in self.function_words:
            del words[0]
        return {self._yes_or_no(words) or _key(words) or text: text}

    def phrases(self, text: str) -> dict[str, str]:
        """The phrases of a text by their keys, in order. Of a repeated one, the first counts."""
        words = self._words(text)
        if said := self._yes_or_no(words):
            return {said: text[words[0].start : words[0].end]}
        runs = [core for run in self._runs(words) if (core := _core(run))]
        found: dict[str, str] = {}
        for items in _enumerations(runs, text):
            keys = map(_key, items) if self.is_ordered else sorted(set(map(_key, items)))
            found.setdefault(", ".join(keys), text[items[0][0].start : items[-1][-1].end])
        return found

    def _yes_or_no(self, words: Sequence[_Word]) -> str:
        """The first word, if it is the answer to a question for yes or no; empty otherwise."""
        first = words[0].key.casefold() if words and self.is_yes_or_no else ""
        return first if first in _YES_OR_NO else ""

    def _runs(self, words: Sequence[_Word]) -> Iterator[list[_Word]]:
        """The words between function words and marks. What is in a clause with a negation is no answer."""
        for clause in _clauses(words):
            run: list[_Word] = []
            between: list[_Word] = []
            for word in () if any(_NEGATION.fullmatch(word.key) for word in clause) else clause:
                if word.key in self.function_words:
                    between += [word] if run else []
                    continue
                if between and not _is_within_name(run[-1], between, word):
                    yield run
                    run, between = [], []
                run, between = [*run, *between, word], []
            if run:
                yield run


def _core(run: list[_Word]) -> list[_Word]:
    """The run without the question's words at its ends; empty if there are no others."""
    first, last = 0, len(run)
    if all(word.is_idle for word in run):
        return []
    while run[first].is_idle and _may_cut(run, first + 1):
        first += 1
    while run[last - 1].is_idle and _may_cut(run, last - 1):
        last -= 1
    return run[first:last]


def _words(text: str, ignore_case: bool) -> list[_Word]:
    words: list[_Word] = []
    end, is_apart = 0, False
    for found in _WORD.finditer(text):
        key = unicodedata.normalize("NFKC", found["word"])
        key = key.casefold() if ignore_case else key
        is_abbreviated = words and _ABBREVIATION.fullmatch(words[-1].key) and _STOP.fullmatch(text, end, found.start())
        is_apart |= not (is_abbreviated or _SPACE.fullmatch(text, end, found.start()))
        words.append(_Word(key, *found.span("word"), found[0][0].isupper(), is_apart))
        end, is_apart = found.end(), bool(found["genitive"]) or (len(words) == 1 and key in _YES_OR_NO)
    return words


def _clauses(words: Sequence[_Word]) -> Iterator[list[_Word]]:
    clause: list[_Word] = []
    for word in words:
        if word.after_mark and clause:
            yield clause
            clause = []
        clause.append(word)
    if clause:
        yield clause


def _is_within_name(before: _Word, between: Sequence[_Word], after: _Word) -> bool:
    return before.is_name and after.is_name and all(word.key in _WITHIN_NAMES for word in between)


def _may_cut(run: Sequence[_Word], place: int) -> bool:
    """Whether a run may be cut before the word at a place: not within a name."""
    before = next((word for word in reversed(run[:place]) if word.key not in _WITHIN_NAMES), None)
    after = next((word for word in run[place:] if word.key not in _WITHIN_NAMES), None)
    return not (before and after and before.is_name and after.is_name)


def _enumerations(runs: Sequence[list[_Word]], text: str) -> Iterator[list[list[_Word]]]:
    """The runs, those of one enumeration together."""
    items: list[list[_Word]] = []
    is_closed = False
    for run in runs:
        joint = _JOINT.fullmatch(text, items[-1][-1].end, run[0].start) if items else None
        if items and not joint:
            yield from [items] if is_closed else [[item] for item in items]
            items, is_closed = [], False
        items.append(run)
        is_closed |= bool(joint and joint[1])
    yield from [items] if is_closed and items else [[item] for item in items]


def _key(run: Sequence[_Word]) -> str:
    return " ".join(word.key for word in run)
