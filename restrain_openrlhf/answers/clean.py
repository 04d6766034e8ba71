"""Writes an answer in one notation: LaTeX letters; no spacing, fonts, units, currency or thousands separators."""

import re
from decimal import Decimal

from restrain_openrlhf.answers.numerals import RAISED, SCALES, in_ascii, on_the_line, without_ordinals
from restrain_openrlhf.answers.structure import separator

# Degrees are a unit to drop, but not inside a trigonometric function.
_DEGREE = re.compile(r"\^\s*\{?\s*(?:\\circ|\\degree)\s*\}?|\\degree|°")
_REPLACEMENTS = (
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (
        re.compile(
            r"\\(?:left|right|bigl?|bigr|Bigl?|Bigr|biggl?|biggr|displaystyle|textstyle|limits|mathop)(?![a-zA-Z])"
        ),
        "",
    ),
    (re.compile(r"\\[dt]binom"), r"\\binom"),
    (re.compile(r"(?<!\\)\\[!,;: ]|\\(?:quad|qquad|,|;)(?![a-zA-Z])|~|[\u00a0\u2000-\u200a\u202f]"), " "),
    (
        re.compile(
            r"\\(?:mathrm|mathbf|mathit|mathsf|textbf|textit|textrm|mathbb|boldsymbol|bm|operatorname|bf|rm|mathcal)(?![a-zA-Z])\*?"
        ),
        "",
    ),
    (_DEGREE, " "),
    (re.compile(r"\\?%"), ""),
    (re.compile(r"\\(?:leqslant|leq|le)(?![a-zA-Z])|≤|<="), r"\\le "),
    (re.compile(r"\\(?:geqslant|geq|ge)(?![a-zA-Z])|≥|>="), r"\\ge "),
    (re.compile(r"\\(?:neq|ne)(?![a-zA-Z])|≠"), r"\\ne "),
    (re.compile(r"\\(?:lt)(?![a-zA-Z])"), "<"),
    (re.compile(r"\\(?:gt)(?![a-zA-Z])"), ">"),
    (re.compile(r"\\(?:infin|infty)|∞"), r"\\infty "),
    (re.compile(r"[−–—]"), "-"),
    (re.compile(r"×|\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z])|\\ast(?![a-zA-Z])|·"), "*"),
    (re.compile(r"÷|\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\varnothing|∅"), r"\\emptyset"),
    (re.compile("√"), r"\\sqrt "),
    (re.compile(r"\\[lr]?vert(?![a-zA-Z])"), "|"),
    (re.compile(r"\\[lc]?dots[bc]?(?![a-zA-Z])|\.\.\.|…"), r"\\dots "),
)
# Text in a formula, with an exponent that makes it a unit of area or volume.
_TEXT = re.compile(r"\\(?:text|textnormal|mbox|hbox)\s*\{([^{}]*)\}(\s*\^\s*\{?[23]\}?)?")
_TRIGONOMETRIC = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_UNIT_AND = re.compile(r"([A-Za-z]+)\s+(and|or)")
_EMPTY_ITEM = re.compile(r",\s*,")
_SCALE = re.compile(rf"\b(?:{'|'.join(SCALES)})s?\b")
# A number and a word that multiplies it, which may begin a text: 1.5 million, 2\text{ million dollars}.
_SCALED = re.compile(
    r"(?<![\w.,^/{}])(?P<number>\d[\d,]*(?:\.\d+)?)(?:\s|~|\\[ ,;:!])*(?P<text>\\(?:text|mathrm)\s*\{)?\s*"
    rf"(?P<word>{'|'.join(SCALES)})s?\b"
)
_TIME_OF_DAY = re.compile(r"[ap]\.?\s*m\.?", re.IGNORECASE)
_CURRENCY = re.compile(r"^(?:\\?\$|Rs\.?|USD|EUR|[€£¥₹])\s*(?=[-\d.])")
# A number and its unit: words, the first of which has three letters or more, or is sq.
_UNIT = re.compile(
    r"^(?P<number>[-+]?\s*(?:\d[\d.,/]*|\.\d+))\s*(?:[A-Za-z]{3,}|sq)(?:[A-Za-z\s./-]*[A-Za-z])?(?:\s*\^\s*\{?\d\}?)?$"
)
# Commas between groups, the first group without a leading zero; (12,102) stays a pair.
_BY_COMMA = re.compile(r"(?<![\d.,(\[])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,)\]])")
# A comma that LaTeX marks as no separator of items: 12{,}345, 12,\!345.
_BY_BRACED_COMMA = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,\\!|\\!,)\s*(?=\d{3}(?!\d))")
# Spaces between groups; another group of digits, or a fraction bar as in 3 125/1000, makes it several numbers.
_GAP = r"(?:[ ~\u00a0\u2000-\u200a\u202f]|\\[,;: ])+"
_BY_SPACE = re.compile(rf"(?<![\w.^])(?:(?<!\d,)|(?!\d{{3}}))[1-9]\d{{0,2}}(?:{_GAP}\d{{3}})+(?!(?:{_GAP})?[\d/])")
_DECIMALS_BY_SPACE = re.compile(rf"(?<!\d)\d+\.\d{{3}}(?:{_GAP}\d{{3}})+(?!(?:{_GAP})?\d)")
# After these, the next digit is an argument and not part of a longer number: \log_2 100, x^2 100, \frac 3 100.
_TAKES_DIGIT = re.compile(r"(?:[_^]|\\(?:[cdt]?frac|[dt]?binom|sqrt))\s*$")
# Characters outside ASCII: Greek letters, signs, and digits above and below the line.
_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
).split()
_GREEK = {chr(ord("α") + place): rf"\{name} " for place, name in enumerate(_NAMES)}
_CAPITALS = dict(zip("ΓΔΘΛΞΠΣΦΨΩ", "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(), strict=True))
_SIGNS = {"∪": "cup", "∈": "in", "±": "pm", "∠": "angle", "△": "triangle"}
_TABLE = str.maketrans(_GREEK | {sign: rf"\{name} " for sign, name in (_CAPITALS | _SIGNS).items()})
_RUN_BELOW, _RUN_ABOVE = re.compile("[₀-₉]+"), re.compile(f"[{RAISED}⁻]+")


def clean(answer: str) -> str:
    """The answer in one notation. Text in it stays text."""
    text = answer.strip().strip("$").strip()
    if "\\begin" not in text:
        # Backslashes are doubled, as after a round trip through JSON.
        text = re.sub(r"\\\\(?=[a-zA-Z{}])", lambda _found: "\\", text)
    text = re.sub(r"^\\[(\[]\s*|\s*\\[)\]]$", "", text)
    if _TRIGONOMETRIC.search(text):
        text = _DEGREE.sub(r"(\\pi/180)", text)
    text = _join_spaces(_SCALED.sub(_multiplied, _BY_BRACED_COMMA.sub("", without_ordinals(_plain_letters(text)))))
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = _TEXT.sub(_unwrap, text)
    text = _EMPTY_ITEM.sub(",", text)
    text = _CURRENCY.sub("", text.strip().rstrip("\\").rstrip(".").strip().rstrip("€£¥₹ "))
    text = re.sub(r"\\?\$", " ", text).strip()
    text = _BY_COMMA.sub(lambda found: found[0].replace(",", ""), text)
    unit = _UNIT.match(text)
    return unit["number"].strip() if unit and " and " not in text else text


def _unwrap(found: re.Match[str]) -> str:
    """Replace text in a formula: a conjunction by a separator, a unit after a value by a space; keep other words."""
    words = found[1].strip()
    before = found.string[: found.start()].rstrip()
    follows_value = bool(before) and before[-1] in "0123456789})]!"
    after = found.string[found.end() :]
    conjunction = _without_unit(words, after) if follows_value else words
    between = separator(conjunction, found.string)
    if between:
        return between
    is_unit = not (_TIME_OF_DAY.fullmatch(words) or _SCALE.search(words) or re.search(r"\d", words))
    # In `5 km 300 m` the first unit is not dropped.
    last = not after.lstrip()[:1].isdigit()
    return " " if follows_value and is_unit and last else f" {words} {found[2] or ''}"


def _multiplied(found: re.Match[str]) -> str:
    """`1.5 million` as 1500000, and the rest of a text as the text."""
    value = Decimal(found["number"].replace(",", "")).scaleb(SCALES[found["word"]])
    return f"{value:f}{found['text'] or ''}"


def _without_unit(words: str, after: str) -> str:
    """`cm and` as `and` if the text `after` it has the same unit; 5 hours and 30 minutes are no list."""
    found = _UNIT_AND.fullmatch(words)
    same = found and {text.strip() for text, _exponent in _TEXT.findall(after)} == {found[1]}
    return found[2] if found and same else words


def _join_spaces(text: str) -> str:
    r"""Join `12 345`, `12\,345` and `0.123 456`, unless the first digits are an argument of what precedes them."""

    def joined(found: re.Match[str]) -> str:
        before = found.string[max(found.start() - 10, 0) : found.start()]
        return found[0] if _TAKES_DIGIT.search(before) else re.sub(_GAP, "", found[0])

    return _DECIMALS_BY_SPACE.sub(lambda found: re.sub(_GAP, "", found[0]), _BY_SPACE.sub(joined, text))


def _plain_letters(text: str) -> str:
    r"""Write Greek letters, subscripts and superscripts as LaTeX: `αx₁²` becomes `\alpha x_{1}^{2}`."""
    if text.isascii():
        return text
    text = _RUN_BELOW.sub(lambda run: f"_{{{on_the_line(run[0])}}}", in_ascii(text).translate(_TABLE))
    return _RUN_ABOVE.sub(lambda run: f"^{{{on_the_line(run[0])}}}", text)
