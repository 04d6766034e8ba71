"""The words around answers in other languages than English, by `languages.yaml`, and the decimal commas of these."""

import re
from collections.abc import Iterable
from pathlib import Path

import yaml

# By each language's code, the columns that the file explains.
LANGUAGES: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("languages.yaml").read_text("utf-8"))
# Scripts from here on do not separate words by spaces, or add endings to words, as in Korean.
_UNSPACED = "\u0e00"
# The end of a response, by which its language is known, in characters.
_WINDOW = 3000


def any_of(*columns: str) -> str:
    """A pattern for any word in these columns of the table."""
    words = {word for row in LANGUAGES.values() for column in columns for word in row.get(column, "").split()}
    spaced = {word for word in words if word[0].isalpha() and word[0] < _UNSPACED}
    # To look at the first letter alone first is faster.
    first = "".join(sorted({word[0] for word in words}))
    return rf"(?:(?=[{first}])(?:(?<![^\W\d_])(?:{_either(spaced)})(?![^\W\d_])|{_either(words - spaced)}))"


def _either(words: Iterable[str]) -> str:
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return "|".join(word.replace("_", r"\s").replace("'", "['’]") for word in longest_first)


IS, NOT, OPTION, _AFTER = any_of("is"), any_of("not"), any_of("option"), any_of("after")
# "La respuesta a la pregunta es", "Antwort:", "答えは", and "उत्तर" before "२४ है".
ANNOUNCED = (
    rf"{any_of('answer')}[*_`]{{0,3}}(?:\s{{1,3}}(?!{IS})(?=[^.。।\n]{{1,80}}?{_AFTER})"
    rf"|(?:\s(?!{NOT})[^\s.:：=。\n]{{1,20}}){{0,5}}?\s{{0,3}}(?:[:：=]|[—–-]\s|{IS}))"
    rf"(?:\s{any_of('so')})?"
)
_CLOSING = re.compile(rf"\s*{_AFTER}(?=[\s*_`\"」』]*(?:[.。।!！]|$))")
# The words by which a text's language is known, those for "answer" first.
_KNOWN_BY = {
    code: [
        set(row.get(column, "").casefold().replace("_", " ").split()) for column in ("answer", "is", "not", "common")
    ]
    for code, row in LANGUAGES.items()
}
_MARKED = re.compile(r"\d(?:,|\{,\})\d|\d\.\d{3}")
_COMMA = re.compile(
    r"(?<![\w.,(\[|])(?<!\\\{)(?<!_\{)(?P<whole>\d{1,3}(?:\.\d{3})+|\d+)(?:,|\{,\})(?P<part>\d+)"
    r"(?!\d|[.,]\d|\s?(?:[)\]|]|\\\}))"
)
_GROUPED = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:\.\d{3})+(?!\d|[.,]\d)")
# A number whose point is no mark of thousands.
_POINT = re.compile(r"(?<![\w.,])(?:0\.\d+|\d+\.(?:\d\d?|\d{4,}))(?!\d|[.,]\d)")


def without_closing(sentence: str) -> str:
    """An answer without the verb that closes its sentence: `Bです。` is `B。`."""
    return _CLOSING.sub("", sentence, count=1)


def with_point(text: str) -> str:
    """A response's text with decimal points, if its language has decimal commas: `1.234,5` is `1234.5`.

    A mark that may be one of thousands, as in `1,234`, is left where the text also has decimal points, or where the
    language's regions differ. So is a comma within brackets, which may separate items.
    """
    row = _language_of(text[-_WINDOW:]) if _MARKED.search(text) else {}
    if "," not in row.get("decimal", ""):
        return text
    sure = row["decimal"] == "," and not _POINT.search(text)

    def pointed(found: re.Match[str]) -> str:
        whole, part = found["whole"], found["part"]
        is_certain = sure or "." in whole or len(part) != 3  # noqa: PLR2004 - the digits of a group
        return f"{whole.replace('.', '')}.{part}" if is_certain else found[0]

    def joined(found: re.Match[str]) -> str:
        return found[0].replace(".", "") if sure or found[0].count(".") > 1 else found[0]

    return _COMMA.sub(pointed, _GROUPED.sub(joined, text) if "." in row["group"] else text)


def common_words(text: str) -> frozenset[str]:
    """Frequent words of a text's language, such as "is" and articles; empty for English and where it is unclear."""
    row = _language_of(text)
    return frozenset(word for column in ("is", "so", "common") for word in row.get(column, "").casefold().split())


def _language_of(text: str) -> dict[str, str]:
    """The row of the language with the most words in a text, where "answer" counts twice; empty if unclear."""
    words = set(re.findall(r"[^\W\d_]+", text.casefold()))
    hits = {code: sum(len(words & column) for column in (known[0], *known)) for code, known in _KNOWN_BY.items()}
    best = max(hits, key=lambda code: hits[code])
    return LANGUAGES[best] if hits[best] > max(hits["en"], 1) else {}
