"""Short texts in a tag, after a marker or on the last line, compared without case, articles and punctuation.

Also the base of kinds that compare the meanings of short texts.
"""

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from string import punctuation
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from restrain_openrlhf.answers.extract import MAX_ANSWER, WINDOW, last_boxes
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, ParsedCell, Row, number_classes, read_columns, register
from restrain_openrlhf.answers.kinds import reading
from restrain_openrlhf.answers.kinds.agreement import agreed, content_words
from restrain_openrlhf.answers.numerals import RAISED, in_ascii, on_the_line

# The a of x = a is no article.
_ARTICLES = re.compile(r"(?<!\S)(?<![^\w\s]\s)(?:a|an|the)(?!\S|\s+[^\w\s])", re.IGNORECASE)
# The dots and spaces between initials, as in J. K. and U.S.A.
_INITIALS = re.compile(r"\b([^\W\d_])\.\s{0,3}(?=[^\W\d_]\.)")
# Signs that carry a meaning. Other punctuation ends or encloses words and sentences.
_MEANT = re.compile(
    # Between digits (1.5, 2024-03-01) and between letters (a/b, R&B, f(x)); before a word (!p, @name) and beside a
    # number ($5, 5%); a decimal point, any plus, the minus of -5, -x and A-, and the sign of C#.
    r"(?<=\d)[^\w\s](?=\d)|(?<=[^\W_])[-,;/\\&@=*^%$#~|<>:!(\[{_]+(?=[^\W_])|(?<!\w)[!~/@\\&]+(?=\w)"
    r"|\$(?=\.?\d)|(?<=\d)[$%‰]|(?<![\w.])\.(?=\d)|\+|(?:(?<=\s)|^)-(?=[.]?\d|[^\W\d_]\b)|(?<=\w)-(?![\w>-])"
    r"|(?<=[^\W\d_])#"
    # Operators between what they relate: x < y, p != q, a / b.
    r"|(?<=[\w)])\s{0,3}(?:[<>!=]=?|[/&|^])(?=\s{0,3}[\w(.+-])(?<!!)|[<>]=?(?=\s{0,3}[-+.]?\d)"
)
# What separates words in one spelling and not in another: well-known, 1st,2nd.
_SEPARATORS = re.compile(r"(?<=[^\W\d_])[-,;]+(?=\w)|(?<=\d)[-,;]+(?=[^\W\d_])")
_DASHES = str.maketrans(dict.fromkeys("−–—‐‑", "-"))
# Raised digits are powers: 10⁶ is 10^6, not 106.
_POWER = re.compile(rf"(?<=\d)[{RAISED}]+")
_FRACTION = re.compile(r"\\frac\{(\d+)\}\{(\d+)\}")
_THOUSANDS_AND_SPACES = re.compile(r"(?<=\d),(?=\d{3}(?!\d))|(?<=\d)\s+(?=[%‰])")
_IS = re.compile(r"\s+(?:is|are|was|were)\s+")
_NOT = re.compile(r"not\b|never\b|n['’]t\b")
# What goes on behind an answer: "Paris, a city of light", "Paris because".
_ASIDE = re.compile(
    r"(?:,|\s[–—-])\s+(?=(?:a|an|the|which|who|whose|where|known|located|as|but|because|since|with|not|and\s(?:the|its?|is))\b)"
    r"|\s+(?=(?:because|which|who|where|since)\b)"
)
_LINKS = frozenset("actually called currently found indeed known located named situated".split())
_SUBJECT = re.compile(
    r"(?:(?:so|thus|hence|therefore|overall|in\s+conclusion|to\s+conclude)\b[\s,]*)?"
    r"(?:the|this|that|it|its|my|our|his|her|their)\b",
    re.IGNORECASE,
)


class _TextColumns(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    aliases: Annotated[list[str] | None, ParsedCell] = None


class ShortTexts(AnswerKind):
    """Reads a short text and compares texts in the form that the settings choose.

    The row's column `aliases` has other spellings of gold, which grading alone reads: in a vote they would merge no
    answers but the right ones.
    """

    reads: ClassVar[str] = (
        'An answer is the content of the last <answer>...</answer> or box, what follows "Answer:" or "the answer '
        'is", or the last line; at most 2,000 characters.'
    )
    gold_columns: ClassVar[frozenset[str]] = frozenset({"aliases"})
    is_plain: ClassVar[bool] = True

    read: Literal["auto", "tag", "marker", "last_line", "agreed"] = "auto"
    """Where the answer is: in a `tag`, after a `marker`, or on the last line. `auto` takes the first of these that a
    response has: tag, box, marker, last line. `agreed` reads a group together: an answer is what a response has in a
    tag, in a box or after the marker, or else the phrase that it shares with most others; without one, as `auto`."""
    tag: Annotated[str, Field(min_length=1)] = "answer"
    """The tag's name: `answer` reads `<answer>...</answer>`."""
    marker: Annotated[str | None, Field(min_length=1)] = None
    """The text on the answer's line that precedes it, such as `Sentiment:`. Default: "Answer:", "the answer is" and
    `####`."""
    ignore_case: bool = True
    """Whether upper and lower case are equal."""
    ignore_articles: bool = True
    """Whether the words a, an and the are ignored."""
    ignore_punctuation: bool = True
    """Whether punctuation is ignored, except where it carries a meaning: 1.5, -5, $5, 5%, !p, a/b, x<y, A-, C#. A
    hyphen between words is a space."""

    def check_row(self, row: Row) -> None:
        """Parse the row's aliases."""
        self._aliases(row)

    def instruction_for(self, row: Row) -> str:
        """Asks for the answer where `read` says; for `auto` in a tag, or after the marker if one is set.

        For `agreed`, it asks for a sentence.
        """
        answer = "your final answer, in as few words as possible"
        if self.read == "agreed":
            return "Answer in one short sentence."
        if self.read == "last_line":
            return f"Put {answer}, alone on the last line."
        if self.read == "marker" or (self.read == "auto" and self.marker is not None):
            return f'End with "{self.marker or "Answer:"}" and {answer}.'
        return f"Put {answer}, between <{self.tag}> and </{self.tag}>."

    def extract(self, response: str, row: Row) -> str | None:
        text = response[-WINDOW:]
        ways = {"tag": self._tagged, "marker": self._marked, "last_line": reading.last_line}
        ways["auto"] = ways["agreed"] = partial(self._anywhere, str(row.get(PROBLEM, "")))
        return _short(ways[self.read](text))

    def reads_together(self, row: Row) -> bool:
        return self.read == "agreed"

    def read_together(self, responses: Sequence[str], row: Row) -> list[str | None]:
        """The answers by agreement if `read` is "agreed". A response that agrees with none is read alone."""
        if self.read != "agreed":
            return super().read_together(responses, row)
        stated = [_short(self._stated(response[-WINDOW:])) for response in responses]
        shared = agreed(responses, stated, str(row.get(PROBLEM, "")), self.ignore_case)
        pairs = zip(responses, shared, strict=True)
        return [self.extract(response, row) if answer is None else answer for response, answer in pairs]

    def key(self, answer: str, row: Row) -> str:
        """The normalised answer."""
        return self.normalised(answer)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """SQuAD's exact match with gold or any alias."""
        return answer is not None and self.normalised(answer) in {self.normalised(gold), *self._aliases(row)}

    def normalised(self, text: str) -> str:
        """The text in the form that is compared. A step that would leave nothing is skipped."""
        found = text.strip()
        for wanted, step in (
            (True, _in_one_form),
            (self.ignore_case, str.casefold),
            (self.ignore_punctuation, _without_punctuation),
            (self.ignore_articles, lambda each: _ARTICLES.sub(" ", each)),
            # After the articles, because the A of A-1 is none.
            (self.ignore_punctuation, lambda each: _SEPARATORS.sub(" ", each)),
            (True, lambda each: " ".join(each.split())),
        ):
            changed = step(found).strip() if wanted else found
            found = changed or found
        return found

    def _aliases(self, row: Row) -> set[str]:
        return {self.normalised(alias) for alias in read_columns(_TextColumns, row).aliases or ()}

    def _anywhere(self, question: str, text: str) -> str | None:
        found = self._stated(text)
        return found if found is not None else _said(reading.last_line(text), question)

    def _stated(self, text: str) -> str | None:
        """What is in the tag, in the last box or after the marker."""
        found = next(reading.enclosed(text, self.tag), None)
        return found if found is not None else self._marked(text)

    def _tagged(self, text: str) -> str | None:
        inside = reading.tagged(text, self.tag)
        return inside and (last_boxes(inside) or inside)

    def _marked(self, text: str) -> str | None:
        pattern = reading.ANSWER if self.marker is None else re.compile(rf"{re.escape(self.marker)}[*_\s]{{0,5}}", re.I)
        return next((reading.first_sentence(rest) for rest in reading.announcements(text, pattern)), None)


@register
class Text(ShortTexts):
    """Short texts such as names, dates and labels, equal if they are the same words.

    Case, articles, punctuation and white space do not count; each is a setting.
    """

    version: ClassVar[str] = "8"

    name: Literal["text"] = "text"


class ComparedTexts(ShortTexts):
    """Short texts that are equal in form are equal; `compared` decides on the other texts of a group."""

    is_plain: ClassVar[bool] = False

    ignore_case: bool = False
    """Whether texts that differ in upper and lower case are equal without a comparison."""
    ignore_articles: bool = False
    """Whether texts that differ in the words a, an and the are equal without a comparison."""
    ignore_punctuation: bool = False
    """Whether texts that differ in punctuation without a meaning are equal without a comparison."""

    @abstractmethod
    def compared(self, texts: Sequence[str], row: Row) -> Sequence[int]:
        """A number for each of two or more different, sorted texts; equal texts have equal numbers.

        Raises a RestrainError if the comparison fails, because a guess would count as a vote.
        """

    @property
    def whole_version(self) -> str:
        return f"{self.version} (text {Text.version})"

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        """Each key is compared by the first of its texts in sorted order. Raises the errors of `compared`."""
        keys = [None if answer is None else self.key(answer, row) for answer in answers]
        written: dict[str, str] = {}
        for key, answer in zip(keys, answers, strict=True):
            if key is not None and answer is not None:
                written[key] = min(answer, written.get(key, answer))
        texts = sorted(set(written.values()))
        numbers = self.compared(texts, row) if len(texts) > 1 else [0] * len(texts)
        found = dict(zip(texts, numbers, strict=True))
        return number_classes([None if key is None else found[written[key]] for key in keys])

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Whether the answer is gold or an alias in form, or answer and gold alone are compared as equal."""
        if super().is_right(answer, gold, row):
            return True
        first, second = self.classes([answer, gold], row)
        return first is not None and first == second


def _short(found: str | None) -> str | None:
    answer = reading.bare(found or "")
    return answer if answer and len(answer) <= MAX_ANSWER else None


def _said(line: str, question: str) -> str:
    """ "The sentiment is positive." and "Positive is the sentiment." as "positive"; any other line is unchanged."""
    answer = _in_the_questions_place(reading.first_sentence(line), question)
    if answer is not None:
        return answer
    sentence = reading.sentences(line)[-1]
    return "".join(reading.after_is(sentence)[-1:] if _SUBJECT.match(sentence) else ()) or line


def _in_the_questions_place(sentence: str, question: str) -> str | None:
    """What a sentence says beside "is", where the question's words stand on the other side alone; None otherwise.

    Before "is", an answer is a name, as in "Paris is the capital.", but not in "The film is positive.".
    """
    before, *rest = _IS.split(sentence, maxsplit=1)
    after = _ASIDE.split("".join(rest), maxsplit=1)[0]
    asked = content_words(question)
    is_before, is_after = (not asked.isdisjoint(content_words(side)) for side in (before, after))
    if is_before == is_after or _NOT.match(after):
        return None
    if is_after:
        return before if after.startswith("the ") and not _SUBJECT.match(before) else None
    words, idle = after.split(), _LINKS.union(question.casefold().split())
    return (
        " ".join(words[next((place for place, word in enumerate(words) if word.casefold() not in idle), 0) :]) or None
    )


def _in_one_form(text: str) -> str:
    text = in_ascii(_POWER.sub(lambda found: f"^{on_the_line(found[0])}", text))
    return unicodedata.normalize("NFKC", _FRACTION.sub(r" \1/\2", text))


def _without_punctuation(text: str) -> str:
    joined = _THOUSANDS_AND_SPACES.sub("", _INITIALS.sub(r"\1", text)).translate(_DASHES)
    meant = {place for found in _MEANT.finditer(joined) for place in range(*found.span())}
    return "".join(each for place, each in enumerate(joined) if place in meant or not _is_punctuation(each))


def _is_punctuation(character: str) -> bool:
    return character in punctuation or unicodedata.category(character).startswith("P")
