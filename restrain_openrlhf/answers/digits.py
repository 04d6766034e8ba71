"""Numbers written in groups of three digits, as one number each."""

import re

# Commas between groups, the first group without a leading zero; (12,102) stays a pair.
_BY_COMMA = re.compile(r"(?<![\d.,(\[])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,)\]])")
# LaTeX's own comma that is no separator of items: 12{,}345, 12,\!345.
_BY_BRACED_COMMA = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,\\!|\\!,)\s*(?=\d{3}(?!\d))")
# Spaces between groups; another group of digits, or a fraction bar as in 3 125/1000, makes it several numbers.
_GAP = r"(?:[ ~\u00a0\u2000-\u200a\u202f]|\\[,;: ])+"
_BY_SPACE = re.compile(rf"(?<![\w.^])(?:(?<!\d,)|(?!\d{{3}}))[1-9]\d{{0,2}}(?:{_GAP}\d{{3}})+(?!(?:{_GAP})?[\d/])")
_DECIMALS_BY_SPACE = re.compile(rf"(?<!\d)\d+\.\d{{3}}(?:{_GAP}\d{{3}})+(?!(?:{_GAP})?\d)")
# After these a digit or two stand for themselves: \log_2 100, x^2 100, \frac 3 100.
_TAKES_DIGIT = re.compile(r"(?:[_^]|\\(?:[cdt]?frac|[dt]?binom|sqrt))\s*$")


def join_braced_commas(text: str) -> str:
    """`12{,}345` as `12345`."""
    return _BY_BRACED_COMMA.sub("", text)


def join_commas(text: str) -> str:
    """`12,345` as `12345`."""
    return _BY_COMMA.sub(lambda found: found[0].replace(",", ""), text)


def join_spaces(text: str) -> str:
    r"""`12 345`, `12\,345` and `0.123 456` as one number, where nothing before the digits takes them for its own."""
    text = _BY_SPACE.sub(lambda found: _joined(found, text), text)
    return _DECIMALS_BY_SPACE.sub(lambda found: re.sub(_GAP, "", found[0]), text)


def _joined(found: re.Match[str], text: str) -> str:
    before = text[max(found.start() - 10, 0) : found.start()]
    return found[0] if _TAKES_DIGIT.search(before) else re.sub(_GAP, "", found[0])
