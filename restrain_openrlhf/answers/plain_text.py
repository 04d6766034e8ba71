"""Recognises what is not mathematics and is compared as text: words, dates, phone numbers, SQL, JSON, code."""

import re

from restrain_openrlhf.answers.parser import FUNCTIONS

# Runs of letters that are variables side by side: abc, xyz, the points of a figure. Other runs may be words.
_FAMILIES = tuple(map(frozenset, ("abcixyz", "uvw", "ABCD", "PQRS", "XYZ")))
_VOWELS = frozenset("aeiouyAEIOUY")
_NAMES = frozenset((*FUNCTIONS, "pi"))
_LETTERS = re.compile(r"[A-Za-z]+(?:\s+[A-Za-z]+)*[!?]*")
# Dates; digits joined by hyphens that are three or more groups, have a leading 0, or are a local telephone number;
# telephone numbers with a code.
_DIGITS = re.compile(
    r"\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2(?:\d{4}|\d\d)"
    r"|\d+(?:-\d+){2,}|0\d+(?:-\d+)+|\d+-0\d+|\d{3}-\d{4}"
    r"|(?:\+?\d{1,3}[\s.-]?)?\(\d{3}\)\s*\d{3,4}(?:[\s.-]\d{2,4})+|\+\d{1,3}(?:[\s.-]\d{2,4}){2,}"
)
_SQL = re.compile(
    r"(?:SELECT\b[^;]{1,2000}?\bFROM|INSERT\s+INTO|UPDATE\b[^;]{1,2000}?\bSET|DELETE\s+FROM|(?:CREATE|DROP|ALTER)\s+(?:TABLE|INDEX|VIEW))\b"
    r"|select\s+(?:\*|[\w.]+(?:\s*,\s*[\w.]+)*|\w+\([^()]*\))\s+from\s+\w+|insert\s+into\s+\w+\s*\("
    r"|delete\s+from\s+\w+\s*(?:;|$|where)|update\s+\w+\s+set\s+\w+\s*="
)
_SQL_LINE = re.compile(rf"^[ \t]*(?:{_SQL.pattern})", re.MULTILINE)
_JSON_KEY = re.compile(r'[{,]\s*"(?:[^"\\\n]|\\.){0,80}"\s*:')
_CODE_LINE = re.compile(
    r"(?:(?:async\s+)?def\s+\w+\s*\(|(?:class|if|elif|for|while|with|try|else|except)\b.*[:{]\s*$"
    r"|return\b(?!\s+(?:to|the|a|on|it|of)\b)|import\s+\w+|from\s+[\w.]+\s+import\b|(?:print|assert)\s*\(|assert\s+\w"
    r"|#include\b|(?:const|let|var|int|float|double|char|void|public|private|static)\s+[A-Za-z_]\w*\s*(?:\(|=.*;\s*$|;\s*$)"
    r"|[A-Za-z_$][\w.\[\]]+\s*[-+*/|&]?=[^=].*[;({\[]\s*$|\w*[._]\w+\(.*\);?\s*$|\w+\(.*\);\s*$|.*\)\s*\{\s*$"
    r"|[})\];]+\s*$|(?:raise|yield|pass|break|continue)\b\s*[\w.(]*$)"
)
# Longer lines are not tested for code, which keeps hostile texts fast.
LONGEST_LINE = 400
_FENCE = re.compile(r"```(?P<language>[^\n`]*)\n(?P<body>.*?)(?:```|\Z)", re.DOTALL)
_NOT_CODE = frozenset(("", "text", "txt", "plaintext", "math", "latex", "tex", "output", "markdown", "md"))


def is_plain(text: str) -> bool:
    """Whether an answer, or an item of one, is words, a date or a telephone number, and so has no value."""
    bare = text.strip(" $")
    if bare.isdecimal() or bare[:1] == "\\":
        return False
    inside = bare.strip("() ")
    if inside[-1:].isdecimal():
        return bool(_DIGITS.fullmatch(inside) or (inside != bare and _DIGITS.fullmatch(bare)))
    return bool(_LETTERS.fullmatch(inside)) and any(_is_word(run) for run in inside.rstrip("!?").split())


def _is_word(run: str) -> bool:
    """Whether letters are a word or an abbreviation, and not variables side by side.

    Capitals are an abbreviation. Other words are in lower case or capitalised, and have a vowel (Yes, act; not mg, kT).
    """
    if len(run) == 1 or run in _NAMES or any(family.issuperset(run) for family in _FAMILIES):
        return False
    return run.isupper() or ((run.islower() or run.istitle()) and not _VOWELS.isdisjoint(run))


def is_statement(text: str) -> bool:
    """Whether a text is certain to be a statement of SQL or an object of JSON."""
    bare = text.lstrip(" `$\n\t")
    head = bare[:1]
    return (head.isalpha() and bool(_SQL.match(bare))) or (head in '{["' and bool(_JSON_KEY.search(bare)))


def prose_of(response: str) -> tuple[str, bool]:
    """The response without fenced code and the code at its end, and whether it ended in code, SQL or JSON.

    A fence around a result does not count as code.
    """
    text, in_code = response, False
    if "```" in response:
        blocks = list(_FENCE.finditer(response))
        text = _FENCE.sub(lambda block: "\n" if _holds_code(block) else f"\n{block['body'].strip()}\n", response)
        in_code = bool(blocks) and _holds_code(blocks[-1]) and not response[blocks[-1].end() :].strip()
    text = text.rstrip()
    while paragraph := text.rsplit("\n\n", 1)[-1]:
        if not _is_code(paragraph):
            break
        text, in_code = text[: -len(paragraph)].rstrip(), True
    return text, in_code


def _holds_code(block: re.Match[str]) -> bool:
    return block["language"].strip().lower() not in _NOT_CODE or _is_code(block["body"].rstrip())


def _is_code(paragraph: str) -> bool:
    """Whether a paragraph is code, by its last line or the lines above an indented one; or is SQL or JSON."""
    lines = paragraph.split("\n")
    above = lines[:-1] if lines[-1][:1].isspace() else []
    tested = [line.strip() for line in (lines[-1], *above) if len(line) <= LONGEST_LINE]
    if any(map(_CODE_LINE.match, tested)) or _SQL_LINE.search(paragraph):
        return True
    return paragraph[-1:] in ("}", "]") and bool(_JSON_KEY.search(paragraph))
