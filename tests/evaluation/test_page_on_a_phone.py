"""HTML reports on a phone: no page is wider than the screen, whatever its tables hold, by day and by night."""

import pytest

from restrain_openrlhf.evaluation.figures.page import PageTable, write_page
from tests.commands.view.browser import chromium, missing

if missing() is not None:
    pytest.skip(missing(), allow_module_level=True)


def test_a_report_fits_a_phone_and_is_dark_where_the_reader_wants_it(tmp_path):
    wide = PageTable("wide", [f"column {number}" for number in range(12)], [["35.8% to 71.8%"] * 12])
    facts = PageTable("facts", ["", ""], [["model", "/a/folder" * 20], ["method", "restrain"]])
    write_page(tmp_path / "report.html", "Title", "One sentence. " + "x" * 200, [wide, facts], [])
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page.goto((tmp_path / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("td", has_text="restrain").bounding_box()["x"] < 200, "seen without scrolling"
        assert page.evaluate("document.querySelectorAll('.wide')[1].scrollWidth") <= 390
        red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(red, green, blue) < 60
