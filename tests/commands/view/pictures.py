"""Takes docs/pictures/NAME-*.png: `python -m tests.commands.view.pictures RUN docs/pictures/NAME [GOLD]`.

RUN is a run that kept rollouts; `real` stands for real rollouts of the shared material, scored by the project's method.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

from restrain_openrlhf.commands.view.page import export
from restrain_openrlhf.commands.view.source import Material, ViewedRuns, material
from restrain_openrlhf.commands.view.summary import GroupSummary
from tests.commands.view.browser import chromium, watched
from tests.commands.view.runs import real_run
from tests.conftest import ROOT

REAL = ROOT.parent / "shared" / "rollouts" / "math_50x8.jsonl"
COLOURS = 96


def shown(found: Material) -> GroupSummary:
    """A group worth a picture: its majority flipped, it has two to four answers, and its prompt is short."""
    page = ViewedRuns(found).page()
    visits = [each.prompt_id for each in page.groups]

    def worth(group: GroupSummary) -> tuple[bool, bool, bool, int, int]:
        length = len(page.prompts[group.prompt_id])
        few = 2 <= len(group.votes) <= 4
        return group.flipped_from is not None, few, length < 400, visits.count(group.prompt_id), -length

    return max(page.groups, key=worth)


def take(page: Page, group: GroupSummary, out: Path) -> None:
    """The list with the open group; then its classes."""
    page.locator("[name=flipped]").check()
    for name in ("first_step", "last_step"):
        page.locator(f"[name={name}]").fill(str(group.step))
    page.locator(".row", has_text=f"step {group.step} · group {group.group}").first.click()
    expect(page.locator(".class").first).to_be_visible()
    save(page, out.with_name(f"{out.name}-group.png"))
    page.locator("h3", has_text="Answer classes").evaluate("heading => heading.scrollIntoView()")
    save(page, out.with_name(f"{out.name}-classes.png"))


def save(page: Page, path: Path) -> None:
    """A screenshot in few colours, which keeps it small."""
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main(run: str, out: str, gold: str | None = None) -> None:
    """Take them."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = real_run(Path(folder) / "math", REAL) if run == "real" else Path(run)
        found = material(path, REAL if run == "real" else Path(gold) if gold else None)
        export(found, Path(folder) / "view.html", 50)
        made = watched(browser)
        made.page.set_viewport_size({"width": 1280, "height": 820})
        made.open((Path(folder) / "view.html").as_uri())
        take(made.page, shown(found), Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
