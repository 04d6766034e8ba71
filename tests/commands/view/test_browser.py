"""The page in a real browser: filters, an open group, the chart, gold, keys, hostile text, and a run that goes on."""

import json
import re
from dataclasses import replace

import pytest

from restrain_openrlhf.commands.view.groups import viewed_run
from restrain_openrlhf.commands.view.page import export
from tests.commands.view.browser import chromium, missing, watched
from tests.commands.view.runs import boxed, scored_group, small_run, write_run

if missing() is not None:
    pytest.skip(missing(), allow_module_level=True)

from playwright.sync_api import expect

PROMPT = "What is \\(2 + 3\\)?"
HOSTILE = (
    "</script><script>document.title = 'ran'</script>",
    "<img src=x onerror=\"document.title = 'ran'\"><svg onload=\"document.title = 'ran'\">",
    "\\(\\href{javascript:document.title='ran'}{click}\\) \\(\\url{https://evil.example/a}\\)",
    "\\(\\includegraphics{https://evil.example/b.png}\\) \\(\\htmlStyle{position:fixed}{x}\\)",
    "\\(\\def\\x{\\x\\x}\\x\\) \\(\\rule{99999em}{99999em}\\) \\(" + "{" * 20_000 + "\\)",
    "\u202e reversed \x00 and $ alone \\boxed{<b>1</b>}",
)


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser):
    made = watched(browser)
    yield made
    made.page.close()


@pytest.fixture
def show(tmp_path, page):
    """Writes the page of a run and opens it."""

    def open_page(run, gold=None):
        export(viewed_run(run, gold), tmp_path / "view.html", 50)
        page.open((tmp_path / "view.html").as_uri())
        return page

    return open_page


@pytest.fixture
def opened(tmp_path, write_jsonl, show):
    """The small run with gold for one prompt."""
    gold = write_jsonl("gold.jsonl", [{"problem": PROMPT, "answer": "5"}])
    page = show(small_run(tmp_path / "run"), gold)
    yield page
    assert page.troubles == []
    own = page.page.url.split("#")[0]
    assert [url for url in page.requests if not url.startswith((own, "data:"))] == []


def rows(page):
    return page.page.locator(".row .where").all_text_contents()


def test_filters_choose_groups(opened):
    form = opened.page.locator("#filters")
    assert opened.texts("#reading") == ["9 groups of 3 prompts at 3 steps"]
    assert opened.texts("output") == ["2", "2", "3"]
    for name, expected in {
        "flipped": ["step 2 · group 0", "step 2 · group 1"],
        "penalized": ["step 1 · group 1", "step 2 · group 1"],
        "missing": [f"step {step} · group 1" for step in (1, 2, 3)],
    }.items():
        form.locator(f"[name={name}]").check()
        assert rows(opened) == expected
        form.locator(f"[name={name}]").uncheck()
    form.locator("[name=first_step]").fill("2")
    form.locator("[name=last_step]").fill("2")
    assert rows(opened) == [f"step 2 · group {group}" for group in range(3)]
    form.locator("[name=most_votes]").fill("3")
    form.locator("[name=least_votes]").fill("3")
    assert rows(opened) == ["step 2 · group 0"]
    form.get_by_role("button", name="Clear").click()
    expect(opened.page.locator(".row")).to_have_count(9)
    form.locator("[name=text]").fill("SHEEP")
    assert rows(opened) == [f"step {step} · group 1" for step in (1, 2, 3)]
    form.locator("[name=text]").fill("")
    form.locator("[name=order]").select_option("smallest")
    assert rows(opened)[0] == "step 1 · group 1"
    opened.page.get_by_label("majority of 2: 1 group").click()
    assert rows(opened) == ["step 2 · group 1"]


def test_gold_says_what_was_right(opened):
    form = opened.page.locator("#filters")
    for value, expected in {
        "right": ["step 2 · group 0", "step 3 · group 0"],
        "wrong": ["step 1 · group 0"],
        "lost": ["step 1 · group 0"],
        "none": [f"step {step} · group {group}" for step in (1, 2, 3) for group in (1, 2)],
    }.items():
        form.locator("[name=gold]").select_option(value)
        assert rows(opened) == expected
    form.locator("[name=gold]").select_option("lost")
    opened.page.locator(".row").click()
    opened.page.wait_for_selector(".class")
    assert ["right" in text for text in opened.texts(".class .marks")] == [False, True]
    assert "gold" in opened.page.locator("main > .facts").inner_text()


def test_an_open_group_has_its_classes_side_by_side(opened):
    opened.page.locator(".row").first.click()
    opened.page.wait_for_selector(".class")
    assert opened.texts("h2")[0].startswith("Step 1, group 0")
    assert opened.texts(".class h4") == ["4", "5"]
    assert "3 votes" in opened.texts(".class .marks")[0]
    facts = opened.texts(".class .facts")
    assert all(name in facts[0] for name in ("A⁺", "A⁻", "log-prob gap", "0.0020"))
    assert opened.texts(".class summary mark") == ["4", "5"]
    # At one moment: what is above may still move when fonts come.
    places = opened.page.locator(".class").evaluate_all(
        "all => all.map(each => [each.getBoundingClientRect().x, each.getBoundingClientRect().y])"
    )
    assert places[0][1] == places[1][1]
    assert places[0][0] < places[1][0]
    # Formulas are drawn; the other responses are there when they are opened.
    expect(opened.page.locator(".class").first.locator(".written .katex")).to_have_count(1)
    opened.page.locator(".class").nth(1).locator("summary").click()
    opened.page.locator(".class").nth(1).locator("summary").click()
    expect(opened.page.locator(".class").nth(1).locator(".written .katex")).to_have_count(1)


def test_the_chart_follows_a_prompt_over_the_steps(opened):
    opened.page.locator(".row").first.click()
    columns = opened.page.locator(".columns button")
    expect(columns).to_have_count(3)
    assert [each.get_attribute("aria-label") for each in columns.all()] == [
        "step 1: 4 3, 5 1",
        "step 2: 5 3, 4 1",
        "step 3: 5 4",
    ]
    bottoms = [each.locator(".stack span").first.get_attribute("class") for each in columns.all()]
    assert bottoms[0] != bottoms[1] == bottoms[2]
    columns.nth(2).click()
    expect(opened.page.locator("h2")).to_have_text(re.compile("^Step 3, group 0"))
    opened.page.get_by_role("button", name="List this prompt's 3 groups").click()
    assert rows(opened) == [f"step {step} · group 0" for step in (1, 2, 3)]
    opened.page.get_by_role("button", name="All prompts").click()
    assert len(rows(opened)) == 9


def test_keys_do_what_the_mouse_does(opened):
    keys = opened.page.keyboard
    opened.page.locator("#list").focus()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    expect(opened.page.locator("h2")).to_have_text(re.compile("^Step 1, group 1"))
    expect(opened.page.locator("#list")).to_have_attribute("aria-activedescendant", "row-1")
    keys.press("End")
    expect(opened.page.locator("h2")).to_have_text(re.compile("^Step 3, group 2"))
    keys.press("k")
    keys.press("r")
    expect(opened.page.locator("main .written .katex")).to_have_count(0)
    keys.press("/")
    keys.type("frac")
    assert rows(opened) == [f"step {step} · group 2" for step in (1, 2, 3)]


def test_a_reload_keeps_filters_and_the_open_group_and_finds_new_steps(tmp_path, show):
    run = small_run(tmp_path / "run")
    page = show(run)
    page.page.locator("[name=flipped]").check()
    page.page.locator(".row").nth(1).click()
    page.page.wait_for_selector(".class")
    write_run(run, [scored_group(4, 0, PROMPT, boxed("6"))])
    export(viewed_run(run, None), tmp_path / "view.html", 50)
    page.page.reload()
    page.page.wait_for_selector(".class")
    assert page.texts("#reading") == ["10 groups of 3 prompts at 4 steps"]
    assert rows(page) == ["step 2 · group 0", "step 2 · group 1", "step 4 · group 0"]
    assert page.texts("h2")[0].startswith("Step 2, group 1")
    assert page.troubles == []
    page.open(f"{page.page.url.split('#')[0]}?again#open=9/9")
    expect(page.page.locator("main")).to_contain_text("names the group 9/9 (step, group), which was not kept")


# A panel is written once it is in sight, and those above it, as they are written, may move it away again.
WRITTEN_ONCE_SEEN = "panel => { panel.scrollIntoView(); return panel.querySelector('.written') !== null; }"


def test_text_of_rollouts_never_runs(tmp_path, show):
    groups = [scored_group(1, 0, "\n".join(HOSTILE), [*HOSTILE, *boxed(*HOSTILE[:4])])]
    page = show(write_run(tmp_path / "<i>run", groups))
    page.page.locator(".row").click()
    page.page.wait_for_selector(".class")
    for closed in page.page.locator("details:not([open])").element_handles():
        closed.query_selector("summary").click()
    for panel in page.page.locator("details .panel").element_handles():
        page.page.wait_for_function(WRITTEN_ONCE_SEEN, arg=panel)
    assert page.page.title() == f"Rollouts of {tmp_path.name}/<i>run"
    assert page.page.locator("main img, main script, main a, main iframe, main svg[onload], main b").count() == 0
    assert [url for url in page.requests if "evil" in url] == []
    assert all(text in page.page.locator("main").inner_text() for text in ("<img src=x", "</script>", "\\url{https:"))
    assert page.troubles == []
    # A formula draws inside its panel alone, however large.
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
def opened_group(tmp_path, show):
    """Opens a group of these responses."""

    def open_group(*responses):
        page = show(write_run(tmp_path / "run", [scored_group(1, 0, "How much?", responses)])).page
        page.locator(".row").first.click()
        page.wait_for_selector(".class")
        return page.locator("main")

    return open_group


def test_long_texts_and_many_formulas_are_shown_in_pieces(opened_group):
    """A megabyte without a space, or thousands of formulas at once, kept the page from answering for minutes."""
    main = opened_group("x" * 1_000_000 + "\\boxed{1}", "$x$ " * 1_000 + "$" * 5_000 + "\\boxed{2}")
    long, many = main.locator(".class").first, main.locator(".class").nth(1)
    expect(long.locator(".written")).to_have_count(1)
    assert len(long.locator(".written").inner_text()) == 10_000
    long.get_by_role("button", name="Show more: 990,009 characters left").click()
    expect(long.locator(".written")).to_have_count(2)
    expect(many.locator(".katex")).to_have_count(300)
    many.get_by_role("button", name="Show more: 7,809 characters left").click()
    expect(many.locator(".katex")).to_have_count(600)
    main.page.keyboard.press("r")
    expect(many.locator(".katex")).to_have_count(0)


@pytest.mark.parametrize(
    "formula",
    [
        "\\frac{1}{" * 400 + "x" + "}" * 400,
        "x" + "^{x" * 300 + "}" * 300,
        "\\def\\a{" + "x" * 9_000 + "}" + "\\a" * 300,
    ],
)
def test_a_formula_that_a_browser_cannot_draw_is_shown_as_it_was_written(opened_group, formula):
    """Chromium's tab crashed on each of these, or did not answer for minutes: a macro is millions of symbols."""
    main = opened_group(f"${formula}$ \\boxed{{1}}", "$x$ \\boxed{2}")
    expect(main.locator(".class .written").first).to_contain_text(formula[:200])
    expect(main.locator(".class .written .katex")).to_have_count(1)


@pytest.mark.parametrize(("answers", "formulas"), [({}, 1), ({"answers": {"name": "json"}}, 0)])
def test_an_answer_is_drawn_as_a_formula_if_it_is_mathematics(tmp_path, show, answers, formulas):
    """KaTeX draws JSON without its braces, and programs without their spaces."""
    group = scored_group(1, 0, "Who?", boxed("1"))
    object_ = replace(group, rollouts=(replace(group.rollouts[0], answer='{"a_b": 1}'),))
    run = write_run(tmp_path / "run", [object_])
    (run / "run.json").write_text(json.dumps(answers))
    page = show(run)
    page.page.locator(".row").click()
    page.page.wait_for_selector(".class")
    expect(page.page.locator(".class h4 .katex")).to_have_count(formulas)
    if not formulas:
        assert page.texts(".class h4") == page.texts(".row .top") == ['{"a_b": 1}']


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("It costs $5 and the other $6.", 0),
        ("Between $5 and $10, so $5/$10.", 0),
        ("Here $x + 1$ is it.", 1),
        ("It costs $5, and $x$ is $2^3$.", 2),
        ("$$x$$ and \\(y\\) for $3", 2),
        ("Compute $ \\frac{1}{31} \\div 2 $.", 1),
        ("For $5 and 2^3 more it is $8.", 0),
    ],
)
def test_money_is_no_formula(opened_group, text, formulas):
    main = opened_group(f"{text} [done]", "none")
    written = main.locator(".class .written").first
    expect(written.locator(".katex")).to_have_count(formulas)
    if not formulas:
        assert written.inner_text() == f"{text} [done]"


def test_responses_are_searched_when_the_reader_asks(opened):
    opened.page.locator("[name=text]").fill("DO NOT know")
    expect(opened.page.locator(".row")).to_have_count(0)
    opened.page.locator("[name=responses]").check()
    expect(opened.page.locator(".row")).to_have_count(3)
    assert rows(opened) == [f"step {step} · group 1" for step in (1, 2, 3)]
    opened.page.locator("[name=text]").fill("2 + 3")
    expect(opened.page.locator(".row .where").first).to_have_text("step 1 · group 0")
