"""Finds the final answer of a response: what it says after its thoughts, and of that the last box or announced answer.

Without either the answer is a last formula, choice or number.
"""

import re
from dataclasses import dataclass

from restrain_openrlhf.answers import words
from restrain_openrlhf.answers.numerals import SCALES, in_ascii
from restrain_openrlhf.answers.plain_text import is_statement, prose_of

# Stored with every reference file; raise it when extraction or keys change.
EXTRACTOR_VERSION = "7"

_PHRASE = re.compile(
    rf"(?:final\s+answer\s*(?:is|:)|answer\s*(?:is|:|=)|answer(?=\s*(?:\$|\\\[|\\\())|####|(?P<other>{words.ANNOUNCED}))\s*:?",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_LETTER = r"\(?\b([A-J])\b\)?"
_LETTER_FIRST = re.compile(rf"^{_LETTER}(?=$|[.,:;)]|\s+(?:because|since|as|is|\(|-|—))")
_LETTER_ANYWHERE = re.compile(r"(?<![A-Za-z])\(([A-J])\)|^([A-J])(?=\.?$|\.\s)")
_NUMBER = re.compile(
    r"(?<![A-Za-z\d])[-−–]?(?:\d+\s(?=\d+/\d))?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+|[¼-¾⅐-⅞])?|[¼-¾⅐-⅞])"
    rf"(?:\s(?:{'|'.join(SCALES)})\b)?"
)
# Signs that the number is ruled out or a bound: not 5, isn't 5, x ≠ 5, x > 5.
RULED_OUT = re.compile(
    rf"(?:(?:\b(?:not|cannot|never)|n['’]t)(?:\s(?:be|equal(?:\sto)?|exactly))?\s|{words.NOT}\s?{words.IS}?|[≠≤≥]|[\w)}}]\s[<>]"
    r"|(?:\A|[\s($])[A-Za-z][<>])\s?\Z",
    re.IGNORECASE,
)
# Signs that the number is part of something larger: 2^10, 3:45, the decimal comma of 3,5, 7 - 2, √5; 5², 5π.
_PART_AFTER = re.compile(r"(?:\d(?:[,.:]|\s?[-−–+*×/]\s?)|[\^_√]\{?[-−]?)\Z")
_PART_BEFORE = re.compile(rf"\s?(?:[\^²³√π]|{words.NOT})")
# Signs that a formula goes on behind its dollars: $x$ = 5, $\pi$/2.
_GOES_ON = re.compile(r"[ \t]*(?:(?:[-+/^=<>≤≥≠≈×·:–]|\*(?!\*))\s?[-−\d$\\(]|\d)")
# A mark of a list item on the line after an announcement, which is no minus.
_ITEM = re.compile(r"\A[\s*]*\n\s*[-•]\s+")
_IS = re.compile(r"\b(?:is|are|equals)\s*:?\s+(?=[^\s])|=\s*")
# Marks that chat templates put after the end of an answer.
_CHAT_MARK = re.compile(r"<\|[a-z_]+\|>.*", re.DOTALL)
_BOILERPLATE = re.compile(r"\s*I hope it is correct\.?.*", re.DOTALL | re.IGNORECASE)
# Row breaks and escaped braces are matched, so that they are skipped. The bound on backslashes before a box keeps long
# runs of them fast.
_MARK = re.compile(r"\\{1,8}(?:boxed|fbox)\s*\{|\\\\|\\[{}]|[{}]")
# `\boxed 5` is a box around one token.
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
# What may stand between boxes that belong together: commas, "and", spacing, ends and starts of formulas.
_JOINT = re.compile(r"(?:[\s,;$]|\\quad|\\qquad|\\[()\[\]]|\\text\s*\{\s*(?:and|or)\s*\}|\band\b|\bor\b)*")
# Answers in words are searched only near the end (in characters), which keeps the search fast on any text.
TAIL = 1500
WINDOW = 20_000
SHORT = 60
MAX_ANSWER = 2000

# Qwen3 writes <think>…</think>, Seed-OSS <seed:think>, Magistral [THINK]. The templates of DeepSeek-R1's distillations
# put the beginning into the prompt. gpt-oss has channels; without special tokens they are decoded as
# `analysisWe add.assistantfinalThe answer is 4.`
_TAG = r"(?:(?:seed:)?think(?:ing)?|thought)>"
_BEGINNING = rf"<{_TAG}|\[THINK\]|<\|channel\|>(?:analysis|commentary)|\Aanalysis(?=[A-Z])"
_END = rf"</{_TAG}|\[/THINK\]|<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>|assistantfinal"
# A mark in a block of code, in inline code or in a string is only spoken of. An opening fence ends an unclosed block.
_QUOTED = (
    r"^```[^`\n]*\n(?:(?!.*```).*\n)*?```[ \t]*(?=$|<)"
    r"|(?<!`)`[^`\n]+`(?!`)|\"[^\"\n]*\"|(?<!\w)[bfru]{0,2}'[^'\n]*'(?!\w)"
)
_THOUGHT = re.compile(rf"(?P<beginning>{_BEGINNING})|(?P<end>{_END})|{_QUOTED}", re.MULTILINE)
# One of these is in every text with a mark, and is found sooner.
_HINTS = ("think>", "thinking>", "thought>", "THINK]", "<|channel|>", "analysis", "assistantfinal")
_AFTER_TEXT = re.compile(r"(?:(?:<\|[a-z_]+\|>|</s>|<｜end▁of▁sentence｜>|<end_of_turn>)\s*)+\Z")
# The length of the end in which the template's marks are looked for.
_END_LENGTH = 200


def said(response: str) -> str | None:
    """What follows the last end of a thought; None if a thought begins and never ends. Accepts any text.

    If the prompt began the thought and the response was cut off, nothing in it tells the thought from an answer, but
    such a response is truncated.
    """
    start: int | None = 0
    for mark in _THOUGHT.finditer(response) if any(hint in response for hint in _HINTS) else ():
        start = mark.end() if mark["end"] else None if mark["beginning"] else start
    if start is None:
        return None
    text = response[start:]
    return text[:-_END_LENGTH] + _AFTER_TEXT.sub("", text[-_END_LENGTH:])


def extract(response: str) -> str | None:
    """The final answer, without its surroundings; None if there is none. Accepts any text.

    It is as written, but for decimal commas (`words.with_point`), and digits of other scripts after an announcement.
    """
    text = words.with_point(said(response) or "")
    boxed = last_boxes(text)
    answer = ((_in_words(text) if boxed is None else boxed) or "").strip().strip("`*\n\t ").strip()
    while len(answer) > 1 and answer[0] == answer[-1] == "$":
        answer = answer[1:-1].strip()
    answer = answer.strip("$").strip() if answer.count("$") == 1 else answer
    return answer if answer and len(answer) <= MAX_ANSWER else None


def _in_words(response: str) -> str | None:
    # If the last part begins within a block of code, a fence is put before it.
    fence = "```code\n" if response[:-WINDOW].count("```") % 2 else ""
    prose, ended_in_code = prose_of(fence + response[-WINDOW:])
    tail = _CHAT_MARK.sub("", prose[-TAIL:]).strip()
    window = _CHAT_MARK.sub("", prose)
    phrases = list(_PHRASE.finditer(window))
    announced = _announced(window[phrases[-1].end() :], bool(phrases[-1]["other"])) if phrases else None
    if announced:
        return announced
    formulas = list(_FORMULA.finditer(tail))
    last = _whole(formulas[-1]) if formulas and not _is_ruled_out(tail, formulas[-1]) else None
    return last or (None if ended_in_code else _choice(tail) or _last_value(tail))


def _announced(rest: str, in_other_words: bool) -> str | None:
    """The answer in the text after "the answer is": a letter, formulas, or the rest of the sentence.

    In another language than English it is the number of the rest, if that has one among words.
    """
    rest = in_ascii(_ITEM.sub("", _BOILERPLATE.sub("", rest)).strip())
    formula = _FORMULA.match(rest)
    line = words.without_closing(rest.split("\n")[0].strip())
    letter = _LETTER_FIRST.match(line)
    if letter:
        return letter[1]
    if formula and not re.search(r"[a-zA-Z]{3}", line[formula.end() :].split(". ")[0]):
        joined = _formulas_in(line)
        return joined or _whole(formula)
    sentence = _after_is(_sentence(line))
    return (_last_value(sentence) if in_other_words and _has_one_number(sentence) else sentence) or None


def _has_one_number(sentence: str) -> bool:
    """Whether a sentence has one number among words, which `clean` knows as units in English alone: `la 12`, `24個`."""
    is_foreign = any(_is_letter(each) and not each.isascii() for each in sentence)
    has_words = is_foreign or re.search(r"[^\W\d_]{3}|[^\W\d_]\s\S*\d", sentence)
    return bool(has_words) and len(_NUMBER.findall(sentence)) == 1 and not re.search(r"[=<>≤≥\\^]", sentence)


def _sentence(line: str) -> str:
    return re.split(r"\.\s|\.$|[。।]", line)[0].strip(" *_")


def _after_is(sentence: str) -> str:
    """ "the largest n is 34" as "34"; a short answer is unchanged."""
    wordy = len(re.findall(r"(?<!\\)\b[a-zA-Z]{2,}", sentence)) > 2  # noqa: PLR2004 - a sentence, not an answer
    return _IS.split(sentence)[-1].strip() if wordy and not is_statement(sentence) else sentence


def _formulas_in(line: str) -> str | None:
    """Several formulas of one announcement, such as `$1$ and $2$`, as one list; None for any other line."""
    found = [_group(match) for match in _FORMULA.finditer(line)]
    between = _FORMULA.sub("", line)
    return ", ".join(found) if len(found) > 1 and re.fullmatch(r"(?:[\s,.;]|and|or)*", between) else None


def _group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()


def _whole(formula: re.Match[str]) -> str:
    """The formula, with the rest of its sentence if that continues behind it."""
    after = _GOES_ON.match(formula.string, formula.end())
    return _sentence(formula.string[formula.start() :].split("\n")[0]) if after else _group(formula)


def _is_ruled_out(text: str, found: re.Match[str]) -> bool:
    return bool(RULED_OUT.search(text[: found.start()][-SHORT:].rstrip(" $(\\[*") + " "))


def _choice(tail: str) -> str | None:
    last = tail.rsplit("\n", 1)[-1]
    letters = [one or other for one, other in _LETTER_ANYWHERE.findall(last)]
    return letters[-1] if letters else None


def _last_value(tail: str) -> str | None:
    """A short response of signs and digits, or else the last number of the last line, unless it is part of more."""
    line = tail.rsplit("\n", 1)[-1]
    if len(tail) <= SHORT and line == tail and re.search(r"\d", tail) and not any(map(_is_letter, tail)):
        return tail
    last = next(reversed(list(_NUMBER.finditer(line))), None)
    if last is None or _is_ruled_out(line, last) or _PART_BEFORE.match(line, last.end()):
        return None
    return None if _PART_AFTER.search(line[: last.start()][-SHORT:]) else last[0]


def _is_letter(character: str) -> bool:
    """Whether it is a letter of prose: Greek ones are of formulas."""
    return character.isalpha() and not "Α" <= character <= "ω"


@dataclass(frozen=True)
class Box:
    """The content of a box, and where the box starts and ends in the text."""

    content: str
    start: int
    end: int


def last_boxes(text: str) -> str | None:
    """The content of the last box, joined by commas with boxes right before it; None without a closed box."""
    boxes, opened = _outer_boxes(text)
    if not boxes:
        bare = _BARE_BOX.findall(text)
        return bare[-1] if bare and not opened else None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        gap = text[box.end : run[-1].start]
        if not _JOINT.fullmatch(gap) or not re.search(r",|;|and|or", gap):
            break
        run.append(box)
    return ", ".join(dict.fromkeys(box.content.strip() for box in reversed(run)))


def _outer_boxes(text: str) -> tuple[list[Box], bool]:
    """Closed boxes that are in no other closed box, in order, and whether any box was opened. It takes one pass."""
    closed: list[Box] = []
    open_braces: list[re.Match[str]] = []
    opened = False
    for mark in _MARK.finditer(text):
        if mark[0].endswith("{") and mark[0] != "\\{":
            open_braces.append(mark)
            opened = opened or len(mark[0]) > 1
        elif mark[0] == "}" and open_braces:
            start = open_braces.pop()
            if len(start[0]) > 1:
                closed.append(Box(text[start.end() : mark.start()], start.start(), mark.end()))
    outer: list[Box] = []
    for box in sorted(closed, key=lambda box: box.start):
        if not outer or box.start >= outer[-1].end:
            outer.append(box)
    return outer, opened
