"""Words that pages do not use: a reader had to read such sentences twice.

This list stands in for the style checker Vale: the package on PyPI (3.25.1.0) holds no checker, it downloads one at its
first start, and Debian has none.
"""

import re

import pytest

from tests.conftest import ROOT

# What was written, and what an engineer would write.
INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"(goes|go|going|went|gone) on": "resume or continue",
    r"(that|which) exists": "existing",
    r"in the mean": "on average, or a mean of",
    r"as (it is|they are) taken|taken as (it is|they are)": "used unchanged",
}
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "decisions" not in path.parts)


def avoided(text: str) -> list[str]:
    """Each word that is not to be used, with its place and what to write."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [
        f"{found[0]!r} in {line.strip()[:80]!r}: write {better}"
        for line in prose.splitlines()
        for pattern, better in INSTEAD.items()
        for found in re.finditer(rf"\b(?:{pattern})\b", line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_use_plain_words(path):
    assert avoided(path.read_text(encoding="utf-8")) == []


def test_such_words_are_seen():
    assert len(avoided("It goes on in a file that exists, and is mended.")) == 3
    assert avoided("`goes on` and\n```\nmended\n```\n") == []
