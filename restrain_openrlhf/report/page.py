"""A one-page HTML report: tables and figures in one self-contained file."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader


@dataclass(frozen=True)
class Table:
    """A table of text; the first column names the row."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A PNG file and what it shows."""

    title: str
    path: Path

    @property
    def data_url(self) -> str:
        """The PNG as a data URL, so that the page needs no other file."""
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode()


def write_page(path: Path, title: str, lead: str, tables: Sequence[Table], pictures: Sequence[Picture]) -> None:
    """Write the page; text is escaped, pictures are embedded."""
    environment = Environment(loader=PackageLoader("restrain_openrlhf.report", "."), autoescape=True)
    page = environment.get_template("page.html.j2").render(title=title, lead=lead, tables=tables, pictures=pictures)
    path.write_text(page, encoding="utf-8")
