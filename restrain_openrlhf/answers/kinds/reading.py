"""Finds where a response states its answer: in a tag, in a box, after an announcement, or on its last line."""

import re
from collections.abc import Iterator
from functools import lru_cache

from restrain_openrlhf.answers.extract import last_boxes
from restrain_openrlhf.answers.words import ANNOUNCED, without_closing

_FENCE_LINE = re.compile(r"\s*(?:```|~~~)[\w+-]*\s*")
# "is", after at most a phrase such as "to the question …".
_SAYS = (
    r"[*_`]{0,3}(?:\s(?:to|of|for)\s[^.:\n]{1,100}?)?\s{0,3}(?:(?:\b(?:would|should|must)\s)?\b(?:is|be|are)\b|[:=])"
    r"(?:\s(?:actually|certainly|clearly|definitely|indeed|likely|obviously|probably|simply)\b)?"
)
_LIST_MARK = re.compile(r"\A(?:[-*•>#]{1,6}\s{1,9}){1,6}")
_AFTER_IS = re.compile(r"(?:\b(?:is|are|was|were|equals?(?:\sto)?)\b:?|=)\s+")
_LATEX_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}")
_WRAPPERS = (
    *(("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")),
    *(("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("“", "”")),
)
_SENTENCE_END = re.compile(r"(?<=[^\s.])(?:[.!?](?=\s+[^\sa-z\d])|\.\Z)|[。！？।]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s.(])(?:[^\W\d_]|[dm]r|mrs|ms|prof|st|mt|ft|jr|sr|vs|capt|gen|col|lt|sgt|rev|gov|sen|rep|inc|ltd|co|corp"
    r"|etc|[ap]\.m)\Z",
    re.IGNORECASE,
)


def announcement(*words: str) -> re.Pattern[str]:
    """A pattern of what introduces an answer: a word with "is" or a colon, "answer" in any language, or `####`."""
    return re.compile(rf"(?:\b(?:{'|'.join(words)}){_SAYS}|{ANNOUNCED}|####)[*_:：,、\s]{{0,5}}", re.IGNORECASE)


ANSWER = announcement("answers?")
# Words and numbers by which a sentence is known to repeat a question, without those of any question or instruction.
_TOKEN = re.compile(r"[^\W\d_]{3,}|\d+(?:[.,]\d+)*")
_OF_ANY_QUESTION = frozenset(
    "and answer are can could did does for had has have how many not one the was were what when which who will".split()
)
# Limits on hostile texts.
_ANNOUNCEMENTS, _LONGEST = 5, 4000


def stated(text: str, announced: re.Pattern[str] = ANSWER) -> Iterator[str]:
    """The content of the last tag `answer`, of the last box, and the text after each announcement, last first."""
    yield from enclosed(text)
    yield from announcements(text, announced)


def enclosed(text: str, tag: str = "answer") -> Iterator[str]:
    """The content of the last pair of tags, or of the last box in it, and that of the last box."""
    inside = tagged(text, tag)
    found = (inside and (last_boxes(inside) or inside), last_boxes(text))
    yield from (each for each in found if each is not None)


def tagged(text: str, tag: str = "answer") -> str | None:
    """The content of the last pair `<tag>...</tag>`; None if none is closed."""
    opened: int | None = None
    found: str | None = None
    for mark in re.finditer(rf"<(/?){re.escape(tag)}>", text, re.IGNORECASE):
        if not mark[1]:
            opened = mark.end()
        elif opened is not None:
            found, opened = text[opened : mark.start()], None
    return found


def announcements(text: str, announced: re.Pattern[str]) -> Iterator[str]:
    """The text after each announcement, last first: the rest of its line, or else the next line with content."""
    for mark in reversed(list(announced.finditer(text))[-_ANNOUNCEMENTS:]):
        lines = text[mark.end() : mark.end() + _LONGEST].split("\n")
        rest = next((line for line in lines if bare(line)), None)
        if rest is not None:
            yield without_closing(rest.strip())


def last_line(text: str) -> str:
    """The last line with content, without marks of lists and quotes; empty if there is none."""
    for line in reversed(text.split("\n")):
        if bare(line):
            return _LIST_MARK.sub("", line.strip(), count=1)
    return ""


def bare(span: str) -> str:
    r"""The span without fences, Markdown's emphasis, quotes, dollars and `\text{}` around it."""
    lines = [line for line in span.split("\n") if not _FENCE_LINE.fullmatch(line)]
    text = _LATEX_TEXT.sub(lambda found: found[1], "\n".join(lines)).strip()
    unwrapped = _unwrap(text)
    while unwrapped != text:
        text, unwrapped = unwrapped, _unwrap(unwrapped)
    return text


def _unwrap(text: str) -> str:
    for opening, closing in _WRAPPERS:
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            inside = text[len(opening) : -len(closing)]
            return text if opening in inside or closing in inside else inside.strip()
    return text.strip("*`").strip() if not text.strip("*_`$ ") or 1 in (text.count("**"), text.count("`")) else text


def sentences(span: str) -> list[str]:
    """The span's sentences, without full stops; at least one. Initials and titles do not end a sentence."""
    span, start, found = span.strip(), 0, list[str]()
    for end in _SENTENCE_END.finditer(span):
        if end[0] != "." or not _ABBREVIATION.search(span[max(end.start() - 12, start) : end.start()]):
            found.append(span[start : end.start()].strip())
            start = end.end()
    return [*found, span[start:].strip()] if span[start:].strip() or not found else found


def first_sentence(span: str) -> str:
    return sentences(span)[0]


def repeats(sentence: str, question: str) -> bool:
    """Whether the sentence has two of the question's words and numbers, or all of them if there are fewer."""
    asked = content(question)
    return len(asked & content(sentence)) >= min(len(asked), 2)


@lru_cache(maxsize=1000)
def content(text: str) -> frozenset[str]:
    """The words and numbers of a text that are not those of any question, without the s of a plural."""
    words = _TOKEN.findall(text[-_LONGEST:].lower())
    return frozenset(word.removesuffix("s") for word in words if word not in _OF_ANY_QUESTION)


def after_is(sentence: str) -> list[str]:
    """The texts after each "is" or equals sign, without full stops."""
    return [part.strip().removesuffix(".").strip() for part in _AFTER_IS.split(sentence)[1:]]
