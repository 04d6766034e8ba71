"""Multiple choice: finds which of the row's options a response chooses, by its letter or its text."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from string import ascii_uppercase
from typing import ClassVar, Literal

from restrain_openrlhf.answers import words
from restrain_openrlhf.answers.extract import MAX_ANSWER, WINDOW
from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, register
from restrain_openrlhf.answers.kinds import reading
from restrain_openrlhf.answers.kinds.options import Option, affirmed, lists, options_of
from restrain_openrlhf.answers.numerals import in_ascii, in_digits
from restrain_openrlhf.errors import DataError

_ANNOUNCED = reading.announcement("answers?", "option", "choice", "letter")
# "the option", "la opción", "l'option", and the article alone before a letter: "la B".
_BEFORE_LABEL = re.compile(
    r"\A(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer|letter)"
    rf"|(?:[^\W\d_]{{1,4}}(?:\s+|['’]))?{words.OPTION}|(?-i:la|el|le|die|de|[ao])(?=\s+[(*]{{0,3}}(?-i:[A-Z])\b))"
    r"\s{0,3}[:：]?\s{0,3}",
    re.IGNORECASE,
)
# A letter may stand right before a script without spaces: `Bです`.
_LABEL = re.compile(r"[(\[{<]?\s?(?P<label>[A-Za-z]|\d{1,2})(?:\s?(?P<close>[)\]}>]))?(?![A-Za-zÀ-\u0e7f\d_'’])")
_ANOTHER = re.compile(r"\s*(?:,|;|&|/|\band\b|\bor\b)\s*[(\[{]?(?:[B-HJ-Z]|[AI](?!\s+[a-z])|\d{1,2})[)\]}]?(?!\w)")
_SEPARATOR = re.compile(r"\s*[.:,](?:\s|$)|\s+[-–—]\s|\s*—")
_REASON = re.compile(r"\s+(?:because|since|as|is|for|which|due|from)\b|\s+\(")
_IN_PROSE = re.compile(
    rf"(?:\b(?:option|choice|answer)\s{{1,3}}|{words.any_of('answer', 'option')}\s{{0,3}})"
    r"[(*]{0,3}(?P<named>(?-i:[A-Z]))"
    rf"(?=[)\].,:;*。]|\s*$|\s+(?:is|because|since|as)\b|\s*{words.IS})"
    rf"|(?<!\w)(?<!\band\s)(?<!\bor\s)(?P<praised>(?-i:[A-Z]))[)*\"”]{{0,3}}\s{{0,3}}{words.IS}\s{{0,3}}"
    rf"(?:[^\W\d_]{{1,4}}\s{{1,3}}){{0,2}}(?:(?:right|best|answer)\b|{words.any_of('right')})"
    r"|\b(?:so|hence|thus|therefore|be|is|it['’]s|choose|pick|select|with),?\s{1,3}(?:it\s{1,3}is\s{1,3})?"
    r"[(*]{0,3}(?P<chosen>(?-i:[A-Z]))"
    r"(?=[)*.]{0,3}(?:\s*$|\s*—|\s+[–-]\s|,?\s+(?:because|since|as|for)\b)|\)\s(?!.*\b[A-Z]\)))"
    r"|(?<![\w(])\((?P<bracketed>(?-i:[A-Z]))\)",
    re.IGNORECASE,
)
# Words that rule out the letter after them, within a clause; and words that rule out one or more letters before them.
_NOT = re.compile(
    r"(?:\b(?:no(?=\s)(?!\sdoubt)|not|cannot|neither|nor|never|except|rule[sd]?\s+out|eliminated?)\b|n['’]t\b)"
    r"(?:(?!\b(?:is|are|but|so|hence|thus|therefore|because|since|as|leav(?:es|ing))\b"
    r"|(?:,|\band)\s{1,3}(?:choose|pick|select)\b)[^.;:!?])*\Z",
    re.IGNORECASE,
)
_IS_NOT = re.compile(
    r"[)*]{0,3}(?:\s{0,3}(?:,|/|\band\b|\bor\b|\bnor\b){1,2}\s{0,3}\(?(?-i:[A-Z])\)?){0,25}"
    r"\s{1,3}(?:is|are|was|were|can|could|do|does)(?:n['’]t|not|\s{1,3}(?:not|never|wrong|incorrect|false))\b",
    re.IGNORECASE,
)
# "A:" before a sentence is short for "Answer:", and no option.
_ANSWERS = re.compile(r"\AA:\s+(?=I\b|[^\n]*\b(?:is|are|was|am|has)\b)")
_CLAUSE = 100
_ARTICLE = re.compile(r"^(?:the|a|an)\s+|(?<=\s)(?-i:the|a|an)\s+", re.IGNORECASE)


@register
class Choice(AnswerKind):
    """The option that a response chooses: its letter, or the option's own text if the row has options.

    Two answers are equal where they choose the same option. With options in the row the vote is for the option's text,
    so that a problem whose options are shuffled keeps its votes.
    """

    version: ClassVar[str] = "11"
    is_plain: ClassVar[bool] = True
    reads: ClassVar[str] = (
        'An answer is one option: its letter in a tag, in a box, after "the answer is" or alone on the last or first '
        "line, or its text, also in a sentence that repeats the question. A letter beyond the options is no answer."
    )
    columns: ClassVar[frozenset[str]] = frozenset({"options", "choices"})
    without_effect: ClassVar[frozenset[str]] = frozenset({"gold"})

    instruction: ClassVar[str] = 'End with "The answer is" and the letter of one option.'

    name: Literal["choice"] = "choice"
    gold: Literal["auto", "letter", "place", "text"] = "auto"
    """How gold names an option: by its letter, by its place (0 is the first), or by its text. `auto` accepts all of
    them, and stops if gold could name two options."""

    def check_prompt(self, text: str, row: Row) -> None:
        options = options_of(row)
        if options and not lists(text, options) and any(option.text.strip() not in text for option in options):
            raise DataError(
                "the prompt does not list the options of its column, so that the model could not choose one. Write "
                f'them into its text, such as "({options[0].label}) {options[0].text.strip()[:40]}".'
            )

    def extract(self, response: str, row: Row) -> str | None:
        options = options_of(row)
        text = _ANSWERS.sub("", response[-WINDOW:]) if options else response[-WINDOW:]
        for span in reading.stated(text, _ANNOUNCED):
            if (found := _read(span, options)) is not None:
                return found or None
        text = _without_a_list(text, options)
        last, first = reading.last_line(text)[-MAX_ANSWER:], text.partition("\n")[0][:MAX_ANSWER]
        found = _of_line(last, options)
        found = _read(first, options, is_stated=False) if found is None else found
        found = _named(text[-MAX_ANSWER:], options, str(row.get(PROBLEM) or "")) if found is None else found
        return (affirmed(text, options, str(row.get(PROBLEM) or "")) if found is None else found) or None

    def key(self, answer: str, row: Row) -> str:
        """The option's text, or the letter if the row has no options."""
        options = options_of(row)
        return answer if any(option.text == answer for option in options) else _read(answer, options) or answer

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Raises DataError if gold names no option, or two."""
        return answer is not None and self.key(answer, row) == self.answer_of_gold(gold, row)

    def answer_of_gold(self, gold: str, row: Row) -> str:
        """Raises DataError if gold names no option, or two."""
        options = options_of(row)
        found = {text for way, text in _ways(gold.strip(), options) if self.gold in ("auto", way)}
        if len(found) == 1:
            return found.pop()
        raise DataError(
            f"The gold answer {gold[:80]!r} of the prompt {str(row.get(PROBLEM))[:60]!r} names "
            + ("no option" if not found else f"two options ({' and '.join(sorted(map(repr, found)))})")
            + f" of {[option.text[:40] for option in options]}. Correct it, or set `gold` to letter, place or text."
        )


def _read(span: str, options: tuple[Option, ...], is_stated: bool = True) -> str | None:
    """The option that a span states; empty if it names several or an unknown one; None if it names none."""
    text = reading.bare(_BEFORE_LABEL.sub("", reading.bare(span[: 2 * MAX_ANSWER])))
    # Stars around a letter are emphasis, but an option's own text may contain stars.
    letter = in_ascii(text.replace("**", ""))
    found = _LABEL.match(letter)
    if found and not letter[found.end() :].strip(" .*。।"):
        return _labelled(found, options)
    if (whole := _by_text(text, options)) is not None:
        return whole
    if found and _stands_alone(found, is_stated):
        return "" if _ANOTHER.match(letter, found.end()) else _labelled(found, options)
    named = _in_sentence(reading.first_sentence(text), options) if is_stated else set[str]()
    begun = [each for each in named if _folded(text).startswith(_folded(each))]
    return None if not begun else begun[0] if len(named) == 1 else ""


def _stands_alone(label: re.Match[str], is_stated: bool = False) -> bool:
    """Whether a letter at the beginning of a span names an option, and is not the word A or I."""
    is_word = label["label"].islower() or (label["label"] == "I" and not is_stated)
    follow = (_SEPARATOR,) if is_word else (_SEPARATOR, _ANOTHER, _REASON)
    goes_on = any(each.match(label.string, label.end()) for each in follow)
    return bool(label["close"] or goes_on) and not _IS_NOT.match(label.string, label.end())


def _labelled(found: re.Match[str], options: tuple[Option, ...]) -> str | None:
    """The option with this label. Digits are a label only if the options' labels are digits."""
    label = found["label"].upper()
    if not options:
        return label if label.isalpha() else None
    if label.isdigit() and not any(option.label.isdigit() for option in options):
        return _by_text(found[0].strip(), options)
    return next((option.text for option in options if option.label == label), "")


@lru_cache(maxsize=4000)
def _folded(text: str) -> str:
    return _ARTICLE.sub("", _plain(text)).casefold()


@lru_cache(maxsize=4000)
def _plain(text: str) -> str:
    """The text in one Unicode form, without spaces, punctuation and dollars around it. Case is kept."""
    return " ".join(unicodedata.normalize("NFKC", reading.bare(text)).split()).strip(" .,;:!*_$。।")


# From the strictest to the most lenient, by which "the lungs" equals "Lungs".
_FORMS: tuple[Callable[[str], str], ...] = (str.strip, _plain, _folded, lambda text: in_digits(_folded(text)))


def _by_text(span: str, options: tuple[Option, ...]) -> str | None:
    """The only option whose text equals the span, by the strictest form that finds exactly one."""
    for form in _FORMS:
        wanted = form(span)
        found = {option.text for option in options if form(option.text) == wanted}
        if len(found) == 1:
            return found.pop()
    return None


def _without_a_list(text: str, options: tuple[Option, ...]) -> str:
    """The text without lines one after another that begin with different labels, because none is the choice."""
    known = {option.label for option in options} or set(ascii_uppercase)
    lines = [line for line in text.split("\n") if reading.bare(line)]
    found = [_LABEL.match(reading.last_line(line).replace("**", "")) for line in lines]
    labels = [each["label"].upper() if each and _stands_alone(each) else None for each in found]
    runs = [list(run) for _, run in groupby(zip(lines, labels, strict=True), key=lambda each: each[1] in known)]
    listed = [run[0][1] in known and len({label for _, label in run}) > 1 for run in runs]
    return "\n".join(line for run, is_list in zip(runs, listed, strict=True) if not is_list for line, _ in run)


def _of_line(line: str, options: tuple[Option, ...]) -> str | None:
    """The option in the last line: the whole line, or a letter named in prose; empty if it names several in a list."""
    if (whole := _read(line, options, is_stated=False)) is not None:
        return whole
    named = [found for found in _IN_PROSE.finditer(line) if not _is_ruled_out(line, *found.span(found.lastgroup or 0))]
    if not named:
        return None
    if named[-1]["bracketed"] and len({found["bracketed"] for found in named if found["bracketed"]}) > 1:
        return ""
    label = named[-1][named[-1].lastgroup or 0]
    return next((option.text for option in options if option.label == label), "") if options else label


def _named(text: str, options: tuple[Option, ...], question: str) -> str | None:
    """The only option that the sentences name by its text of which each repeats the question and names one option."""
    # Beside its place among the options, what the question names is given and not chosen.
    asked = {each.text for each in options if len(re.findall(_as_word(each.text), question, re.IGNORECASE)) > 1}
    found = set[str]()
    sentences = [each for line in text.split("\n") for each in reading.sentences(line) if each]
    for sentence in sentences:
        named = _in_sentence(sentence, options) - asked
        rest = _folded(sentence).replace(_folded(next(iter(named), "")), "").strip(" .,*")
        if len(named) == 1 and (not rest or len(sentences) == 1 or reading.repeats(rest, question)):
            found |= named
    return found.pop() if len(found) == 1 else None


def _in_sentence(sentence: str, options: tuple[Option, ...]) -> set[str]:
    """The options whose texts the sentence has as words and does not rule out; of two at one place the longer one."""
    text, found = in_digits(_folded(sentence)), set[str]()
    names = {in_digits(_folded(each.text)): each.text for each in options}
    for name in sorted(filter(None, names), key=len, reverse=True):
        if any(not _is_ruled_out(text, *each.span()) for each in re.finditer(_as_word(name), text)):
            found.add(names[name])
        text = re.sub(_as_word(name), " ", text)
    return found


def _as_word(name: str) -> str:
    return rf"(?<![\w$€£-])(?<!\d[.,]){re.escape(name)}s?(?!\w|[.,]\d)"


def _is_ruled_out(line: str, start: int, end: int) -> bool:
    """Whether the line says that this letter is not the answer."""
    return bool(_NOT.search(line[max(start - _CLAUSE, 0) : start]) or _IS_NOT.match(line, end))


def _ways(gold: str, options: tuple[Option, ...]) -> Iterator[tuple[str, str]]:
    """The ways in which gold names an option (letter, place or text), each with the option's text or letter."""
    bare = gold.strip("()[]. ")
    if not options and len(bare) == 1 and bare.upper() in ascii_uppercase:
        yield "letter", bare.upper()
    for place, option in enumerate(options):
        if bare.upper() == option.label:
            yield "letter", option.text
        if gold == str(place):
            yield "place", option.text
    if (text := _by_text(gold, options)) is not None:
        yield "text", text
    if not options and gold.isdecimal() and int(gold) < len(ascii_uppercase):
        yield "place", ascii_uppercase[int(gold)]
