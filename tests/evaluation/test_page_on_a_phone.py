"""HTML reports in a browser: no page is wider than a phone, by day and by night, and no answer hides a table's end."""

import pytest

from restrain_openrlhf.evaluation.figures import PageTable, write_page
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


def test_a_long_answer_without_a_space_leaves_the_columns_after_it_in_sight(tmp_path):
    answers = PageTable(
        "answers", ["id", "answer", "votes", "before", "votes"], [["q-1", "x" * 300, "84%", "7", "31%"]]
    )
    write_page(tmp_path / "report.html", "Title", "One sentence.", [answers], [])
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto((tmp_path / "report.html").as_uri())
        last = page.locator("td", has_text="31%").bounding_box()
        table = page.locator(".wide").bounding_box()
    assert last["x"] + last["width"] <= table["x"] + table["width"]
