"""HTML reports in a browser: no page is wider than a phone, by day and by night, and no answer hides a table's end."""

import pytest

from restrain_openrlhf.evaluation.figures import PageTable, write_page
from tests.commands.view.browser import chromium, missing

if missing() is not None:
    pytest.skip(missing(), allow_module_level=True)


def test_a_report_fits_a_phone_and_no_long_answer_hides_a_tables_end(tmp_path):
    wide = PageTable("wide", [f"column {number}" for number in range(12)], [["35.8% to 71.8%"] * 12])
    answers = PageTable("answers", ["id", "answer", "votes", "before", "votes"], [["q", "x" * 300, "84%", "7", "31%"]])
    write_page(tmp_path / "report.html", "Title", "One sentence. " + "x" * 200, [wide, answers], [])
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page.goto((tmp_path / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert max(red, green, blue) < 60
        page.set_viewport_size({"width": 1280, "height": 800})
        last, table = page.locator("td", has_text="31%").bounding_box(), page.locator(".wide").nth(1).bounding_box()
    assert last["x"] + last["width"] <= table["x"] + table["width"]
