"""Writes a report: figures as PNG files, and a self-contained HTML page of tables and figures."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure

from restrain_openrlhf.data.outputs import replacing, write_whole


def save_figures(figures: Mapping[str, Figure], out: Path) -> list[Path]:
    """Write each figure as NAME.png into `out`. Returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.png" for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        with replacing(path, "wb") as file:
            figure.savefig(file, dpi=120)
    return paths


@dataclass(frozen=True)
class PageTable:
    """A table of text, whose first column names the rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A PNG file, and what it shows."""

    title: str
    path: Path

    @property
    def data_url(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode()


def write_page(path: Path, title: str, lead: str, tables: Sequence[PageTable], pictures: Sequence[Picture]) -> None:
    """Write the page, with text escaped and pictures embedded."""
    environment = Environment(loader=PackageLoader("restrain_openrlhf.evaluation.figures", "."), autoescape=True)
    page = environment.get_template("page.html.j2").render(title=title, lead=lead, tables=tables, pictures=pictures)
    write_whole(path, page)
