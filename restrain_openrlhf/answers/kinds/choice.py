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

_ANNOUNCED = reading.announcement("answers?", "option", "choice")
# "the option", "la opción", "l'option", and the article alone before a letter: "la B".
_BEFORE_LABEL = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer|letter)"
    rf"|(?:[^\W\d_]{{1,4}}(?:\s+|['’]))?{words.OPTION}|(?-i:la|el|le|die|de|[ao])(?=\s+[(*]{{0,3}}(?-i:[A-Z])\b))"
    r"\s{0,3}[:：]?\s{0,3}",
    re.IGNORECASE,
)
# A letter may stand right before a script without spaces: `Bです`.
_LABEL = re.compile(
    r"(?P<open>[(\[{<]?)\s?(?P<label>[A-Za-z]|\d{1,2})(?:\s?(?P<close>[)\]}>]))?(?![A-Za-zÀ-\u0e7f\d_'’])"
)
_ANOTHER = re.compile(r"\s*(?:,|;|&|/|\band\b|\bor\b)\s*[(\[{]?(?:[B-HJ-Z]|[AI](?!\s+[a-z])|\d{1,2})[)\]}]?(?!\w)")
_SEPARATOR = re.compile(r"\s*[.:,](?:\s|$)|\s+[-–—]\s|\s*—")
_REASON = re.compile(r"\s+(?:because|since|as|is|for|which|due|from)\b|\s+\(")
_IN_PROSE = re.compile(
    rf"(?:\b(?:option|choice|answer)\s{{1,3}}|{words.any_of('answer', 'option')}\s{{0,3}})"
    r"[(*]{0,3}(?P<named>(?-i:[A-Z]))"
    rf"(?=[)\].,:;*。]|\s*$|\s+(?:is|because|since|as)\b|\s*{words.IS})"
    rf"|^\W{{0,3}}(?P<first>(?-i:[A-Z]))[)*]{{0,3}}\s{{0,3}}{words.IS}\s{{0,3}}"
    rf"(?:[^\W\d_]{{1,4}}\s)?{words.any_of('right')}"
    r"|(?<!\w)(?<!\band\s)(?<!\bor\s)(?P<praised>(?-i:[A-Z]))[)*\"”]{0,3}\s{1,3}is\s{1,3}(?:the\s{1,3})?"
    r"(?:only\s{1,3})?(?:correct|right|best|answer)\b"
    r"|\b(?:so|hence|thus|therefore|be|it['’]s|choose|pick|select|with),?\s{1,3}(?:it\s{1,3}is\s{1,3})?"
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
# A sentence that speaks of what the one before spoke of.
_GOES_ON = re.compile(r"(?:it|its|they|this|these|he|she)\b", re.IGNORECASE)
_CLAUSE = 100
# What follows is a reason or a contrast, and not what is chosen.
_ASIDE = re.compile(r"(?<=\w),?\s(?:because|since|while|whereas|unlike)\b.*", re.IGNORECASE)
_BUT = re.compile(r"(?<=\w)[,;]\s(?:but|so|yet)\s", re.IGNORECASE)
_DENIED = re.compile(r"\s(?:is|are|was|were|can|could|do|does|did|has|have)(?:n['’]t|not|\s(?:not|never))\b")
_ARTICLE = re.compile(r"^(?:the|a|an)\s+|(?<=\s)(?-i:the|a|an)\s+", re.IGNORECASE)


@register
class Choice(AnswerKind):
    """The option that a response chooses: its letter, or the option's own text if the row has options.

    Two answers are equal where they choose the same option. With options in the row the vote is for the option's text,
    so that a problem whose options are shuffled keeps its votes.
    """

    version: ClassVar[str] = "10"
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
        found = _marked(first, options) if found is None else found
        found = _named(text[-MAX_ANSWER:], options, str(row.get(PROBLEM) or "")) if found is None else found
        found = _said(last, options) if found is None else found
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


def _read(span: str, options: tuple[Option, ...]) -> str | None:
    """The option that a span states; empty if it names several or an unknown one; None if it names none."""
    text = reading.bare(span[: 2 * MAX_ANSWER])
    text = _BEFORE_LABEL.sub("", text, count=1) if _BEFORE_LABEL.match(text) else text
    text = reading.bare(text)
    # Stars around a letter are emphasis, but an option's own text may contain stars.
    letter = in_ascii(text.replace("**", ""))
    found = _LABEL.match(letter)
    if found and not letter[found.end() :].strip(" .*。।"):
        return _labelled(found, options)
    whole = _by_text(text, options)
    if whole is not None:
        return whole
    if found and _stands_alone(found, letter[found.end() :], options):
        return "" if _ANOTHER.match(letter, found.end()) else _labelled(found, options)
    return _by_start(text, options)


def _labelled(found: re.Match[str], options: tuple[Option, ...]) -> str | None:
    """The option with this label. Digits are a label only if the options' labels are digits."""
    label = found["label"].upper()
    if not options:
        return label if label.isalpha() else None
    if label.isdigit() and not any(option.label.isdigit() for option in options):
        return _by_text(found[0].strip(), options)
    return next((option.text for option in options if option.label == label), "")


def _stands_alone(found: re.Match[str], rest: str, options: tuple[Option, ...]) -> bool:
    """Whether a letter at the beginning of a span names an option, and is not the word A or I."""
    marked = bool(found["close"] or found["open"] or re.match(r"[.:]\s", rest))
    if found["label"].islower():
        return marked
    if _IS_NOT.match(rest):
        return False
    if _ANOTHER.match(rest) or _SEPARATOR.match(rest) or _REASON.match(rest):
        return True
    return bool(found["close"]) or _by_text(reading.first_sentence(rest.lstrip("-–—")), options) is not None


@lru_cache(maxsize=4000)
def _folded(text: str) -> str:
    return _ARTICLE.sub("", _plain(text)).casefold()


@lru_cache(maxsize=4000)
def _plain(text: str) -> str:
    """The text in one Unicode form, without spaces, punctuation and dollars around it. Case is kept."""
    return " ".join(unicodedata.normalize("NFKC", reading.bare(text)).split()).strip(" .,;:!*_$。।")


# From the strictest to the most lenient, by which "the lungs" equals "Lungs".
_FORMS: tuple[Callable[[str], str], ...] = (
    *(str.strip, _plain, lambda text: _plain(text).casefold(), _folded),
    lambda text: in_digits(_folded(text)),
)


def _by_text(span: str, options: tuple[Option, ...]) -> str | None:
    """The only option whose text equals the span, by the strictest form that finds exactly one."""
    for form in _FORMS:
        wanted = form(span)
        found = {option.text for option in options if form(option.text) == wanted}
        if len(found) == 1:
            return found.pop()
    return None


def _by_start(span: str, options: tuple[Option, ...]) -> str | None:
    """The longest option whose text begins the span, followed by a comma, a bracket or a reason.

    Empty if another option follows it, as in a list.
    """
    begun = _folded(span)
    starts = [(len(folded), option.text) for option in options if _begins(begun, folded := _folded(option.text))]
    longest = {text for length, text in starts if length == max(starts)[0]}
    if len(longest) != 1:
        return None
    return "" if len(_in_sentence(reading.first_sentence(span), options)) > 1 else longest.pop()


def _begins(span: str, option: str) -> bool:
    rest = span[len(option) :]
    goes_on = _SEPARATOR.match(rest) or (_REASON.match(rest) and not _DENIED.match(rest))
    return bool(option) and span.startswith(option) and bool(goes_on)


def _without_a_list(text: str, options: tuple[Option, ...]) -> str:
    """The text without lines one after another that begin with different labels, because none is the choice."""
    known = {option.label for option in options} or set(ascii_uppercase)
    lines = [line for line in text.split("\n") if reading.bare(line)]
    found = [_LABEL.match(reading.last_line(line).replace("**", "")) for line in lines]
    labels = [each["label"].upper() if each and _is_marked(each) else None for each in found]
    runs = [list(run) for _, run in groupby(zip(lines, labels, strict=True), key=lambda each: each[1] in known)]
    listed = [run[0][1] in known and len({label for _, label in run}) > 1 for run in runs]
    return "\n".join(line for run, is_list in zip(runs, listed, strict=True) if not is_list for line, _ in run)


def _is_marked(label: re.Match[str]) -> bool:
    return bool(label["close"] or re.match(r"[.:](?:\s|$)", label.string[label.end() :]))


def _of_line(line: str, options: tuple[Option, ...]) -> str | None:
    """The option in the last line: the whole line, or a letter named in prose; empty if it names several in a list."""
    # Of several sentences, the first one may name an option that is not the choice.
    is_one = len(reading.sentences(line)) == 1 or _LABEL.match(line) is not None
    whole = _read_strictly(line, options) if is_one else None
    if whole is not None:
        return whole
    named = [found for found in _IN_PROSE.finditer(line) if not _is_ruled_out(line, *found.span(found.lastgroup or 0))]
    if not named:
        return None
    if named[-1]["bracketed"] and len({found["bracketed"] for found in named if found["bracketed"]}) > 1:
        return ""
    label = named[-1][named[-1].lastgroup or 0]
    return next((option.text for option in options if option.label == label), "") if options else label


def _marked(line: str, options: tuple[Option, ...]) -> str | None:
    """The option of a first line that has only its letter, or begins with it in an option's form: `C) Paris`."""
    text = reading.bare(line).replace("**", "").strip(" .*")
    found = _LABEL.match(text)
    if found is None or found["label"].islower() or _IS_NOT.match(text, found.end()):
        return None
    return _labelled(found, options) if found.end() == len(text) or _is_marked(found) else None


def _named(text: str, options: tuple[Option, ...], question: str) -> str | None:
    """The only option that the sentences name by its text of which each repeats the question and names one option."""
    # Beside its place among the options, what the question names is given and not chosen.
    asked = {each.text for each in options if _count(each.text.casefold(), question.casefold()) > 1}
    found, about = set[str](), ""
    whole = [_ASIDE.sub("", each) for line in text.split("\n") for each in reading.sentences(line) if each]
    clauses = [clause for sentence in whole for clause in _BUT.split(sentence)]
    for sentence in clauses:
        named = _in_sentence(sentence, options) - asked
        rest = _folded(sentence).replace(_folded(next(iter(named), "")), "").strip(" .,*")
        is_all = not rest or len(clauses) == 1
        about = f"{about} {rest}" if _GOES_ON.match(sentence) else rest
        if len(named) == 1 and (is_all or reading.repeats(about, question)):
            found |= named
    return found.pop() if len(found) == 1 else None


def _in_sentence(sentence: str, options: tuple[Option, ...]) -> set[str]:
    """The options whose texts the sentence has as words and does not rule out; of two at one place the longer one.

    A letter is too often a part of something else, and "no" counts at the beginning alone. Numbers are in digits.
    """
    text, found = in_digits(_folded(sentence)), set[str]()
    named = [(len(name), name, each.text) for each in options if (name := in_digits(_folded(each.text)))]
    for length, name, option in sorted(named, reverse=True):
        is_short = length <= len("no") and not name.isdecimal()
        pattern = rf"\A{re.escape(name)}(?=,|\Z)" if is_short else _as_word(name)
        places = list(re.finditer(pattern, text)) if length > is_short else []
        before = [text[max(each.start() - _CLAUSE, 0) : each.start()] for each in places]
        denied = [
            _NOT.search(said) or _DENIED.match(text, each.end()) for said, each in zip(before, places, strict=True)
        ]
        if not all(denied):
            found.add(option)
        text = re.sub(pattern, " ", text) if places else text
    return found


def _as_word(name: str) -> str:
    return rf"(?<![\w$€£-])(?<!\d[.,]){re.escape(name)}s?(?!\w|[.,]\d)"


def _count(name: str, text: str) -> int:
    return len(re.findall(_as_word(name), text))


def _said(line: str, options: tuple[Option, ...]) -> str | None:
    """What the last sentence says after "is", if it says one thing."""
    said = {_read_strictly(each, options) for each in reading.after_is(reading.sentences(line)[-1]) if each} - {None}
    return said.pop() if len(said) == 1 else None


def _is_ruled_out(line: str, start: int, end: int) -> bool:
    """Whether the line says that this letter is not the answer."""
    return bool(_NOT.search(line[max(start - _CLAUSE, 0) : start]) or _IS_NOT.match(line, end))


def _read_strictly(line: str, options: tuple[Option, ...]) -> str | None:
    """As `_read`. Prose may begin with the word A or I, so there only an option's whole text counts."""
    text = reading.bare(line).replace("**", "")
    found = _LABEL.match(text)
    is_prose = found is not None and not found["close"] and bool(re.match(r"\s+\w", text[found.end() :]))
    return _by_text(line, options) if is_prose else _read(line, options)


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
