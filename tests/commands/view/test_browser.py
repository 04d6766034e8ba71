"""The page in a real browser: filters, an open group, the chart, gold, keys, hostile text, and a run that goes on."""

import json
import re
import socket
import threading
from dataclasses import replace

import pytest

from restrain_openrlhf.commands.view.page import export
from restrain_openrlhf.commands.view.source import ViewedRuns, material
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
def serving():
    """Serves a run in a thread; returns the address."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the web stack: pip install restrain-openrlhf[service]")
    from restrain_openrlhf.commands.view.server import application

    ends = []

    def serve(found, token=None):
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(application(ViewedRuns(found), token), log_level="error", lifespan="off")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        ends.append((server, thread))
        return f"http://127.0.0.1:{listening.getsockname()[1]}/"

    yield serve
    for server, thread in ends:
        server.should_exit = True
        thread.join()


@pytest.fixture(params=["served", "exported"])
def opened(request, tmp_path, write_jsonl, page):
    """The small run with gold for one prompt, on the server and as a file."""
    gold = write_jsonl("gold.jsonl", [{"problem": PROMPT, "answer": "5"}])
    found = material(small_run(tmp_path / "run"), gold)
    if request.param == "served":
        page.open(request.getfixturevalue("serving")(found))
    else:
        export(found, tmp_path / "view.html", 50)
        page.open((tmp_path / "view.html").as_uri())
    yield page
    assert page.troubles == []
    own = page.page.url.split("#")[0].removesuffix("view.html")
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


def test_responses_that_come_late_leave_the_group_that_was_opened_meanwhile(tmp_path, page, serving):
    page.open(serving(material(small_run(tmp_path), None)))
    late = []

    def hold(route):
        late.append(route)

    page.page.route(re.compile(r"/groups/0/1/0$"), hold)
    page.page.locator(".row").nth(0).click()
    page.page.locator(".row").nth(1).click()
    expect(page.page.locator("h2")).to_have_text(re.compile("^Step 1, group 1"))
    assert late, "the first group's responses were never asked for"
    with page.page.expect_response(late[0].request.url):
        late[0].continue_()
    page.page.evaluate("new Promise(requestAnimationFrame)")
    expect(page.page.locator("#list")).to_have_attribute("aria-activedescendant", "row-1")
    assert page.texts("h2")[0].startswith("Step 1, group 1")


def test_a_reload_keeps_filters_and_the_open_group_and_finds_new_steps(tmp_path, page, serving):
    page.open(serving(material(small_run(tmp_path), None)))
    page.page.locator("[name=flipped]").check()
    page.page.locator(".row").nth(1).click()
    page.page.wait_for_selector(".class")
    write_run(tmp_path, [scored_group(4, 0, PROMPT, boxed("6"))])
    page.page.reload()
    page.page.wait_for_selector(".class")
    assert page.texts("#reading") == ["10 groups of 3 prompts at 4 steps"]
    assert rows(page) == ["step 2 · group 0", "step 2 · group 1", "step 4 · group 0"]
    assert page.texts("h2")[0].startswith("Step 2, group 1")
    assert page.troubles == []


# A panel is written once it is in sight, and those above it, as they are written, may move it away again.
WRITTEN_ONCE_SEEN = "panel => { panel.scrollIntoView(); return panel.querySelector('.written') !== null; }"


@pytest.mark.parametrize("way", ["served", "exported"])
def test_text_of_rollouts_never_runs(tmp_path, page, serving, way):
    groups = [scored_group(1, 0, "\n".join(HOSTILE), [*HOSTILE, *boxed(*HOSTILE[:4])])]
    found = material(write_run(tmp_path / "<i>run", groups), None)
    if way == "exported":
        export(found, tmp_path / "view.html", 50)
    page.open((tmp_path / "view.html").as_uri() if way == "exported" else serving(found))
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


def one_group(folder, *responses, prompt="How much?"):
    return material(write_run(folder, [scored_group(1, 0, prompt, responses)]), None)


def opened_group(page, serving, found):
    page.open(serving(found))
    page.page.locator(".row").first.click()
    page.page.wait_for_selector(".class")
    return page.page.locator("main")


def test_a_long_text_without_a_space_is_shown_in_pieces(tmp_path, page, serving):
    """A megabyte at once kept the page from answering for minutes."""
    text = "x" * 1_000_000
    main = opened_group(page, serving, one_group(tmp_path, f"{text}\\boxed{{1}}", "\\boxed{2}"))
    written = main.locator(".class").first.locator(".written")
    expect(written).to_have_count(1)
    assert len(written.inner_text()) == 10_000
    main.get_by_role("button", name="Show more: 990,009 characters left").click()
    expect(written).to_have_count(2)
    assert [len(each) for each in written.all_inner_texts()] == [10_000, 10_000]


def test_a_text_of_many_formulas_is_drawn_in_pieces(tmp_path, page, serving):
    """Thousands of formulas at once kept the page from answering for half a minute."""
    main = opened_group(page, serving, one_group(tmp_path, "$x$ " * 1_000 + "$" * 5_000, "\\boxed{2}"))
    card = main.locator(".class", has_text="no answer")
    expect(card.locator(".katex")).to_have_count(300)
    card.get_by_role("button", name="Show more: 7,800 characters left").click()
    expect(card.locator(".katex")).to_have_count(600)
    page.page.keyboard.press("r")
    expect(card.locator(".katex")).to_have_count(0)
    assert len(card.locator(".written").inner_text()) == 9_000


@pytest.mark.parametrize(
    "formula",
    ["\\frac{1}{" * 400 + "x" + "}" * 400, "\\sqrt{" * 300 + "x" + "}" * 300, "x" + "^{x" * 300 + "}" * 300],
)
def test_a_formula_that_is_nested_too_deep_for_a_browser_is_shown_as_it_was_written(tmp_path, page, serving, formula):
    """Chromium's tab crashed on each of these."""
    main = opened_group(page, serving, one_group(tmp_path, f"${formula}$ \\boxed{{1}}", "$x$ \\boxed{2}"))
    expect(main.locator(".class .written").first).to_contain_text(formula)
    expect(main.locator(".class .written .katex")).to_have_count(1)


def test_a_text_that_defines_macros_is_shown_as_it_was_written(tmp_path, page, serving):
    """One long macro, used often, is millions of symbols, which kept the page from answering for minutes."""
    text = "\\(\\def\\a{" + "x" * 9_000 + "}" + "\\a" * 300 + "\\)"
    main = opened_group(page, serving, one_group(tmp_path, text, "\\[x \\tag{1}\\] \\boxed{2}"))
    expect(main.locator(".class .written", has_text="\\def").locator(".katex")).to_have_count(0)
    expect(main.locator(".class .written .katex-tag")).to_contain_text("(1)")


@pytest.mark.parametrize(("answers", "formulas"), [({}, 1), ({"answers": {"name": "json"}}, 0)])
def test_an_answer_is_drawn_as_a_formula_if_it_is_mathematics(tmp_path, page, serving, answers, formulas):
    """KaTeX draws JSON without its braces, and programs without their spaces."""
    group = scored_group(1, 0, "Who?", boxed("1"))
    object_ = replace(group, rollouts=(replace(group.rollouts[0], answer='{"a_b": 1}'),))
    (write_run(tmp_path, [object_]) / "run.json").write_text(json.dumps(answers))
    main = opened_group(page, serving, material(tmp_path, None))
    expect(main.locator(".class h4 .katex")).to_have_count(formulas)
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
def test_money_is_no_formula(tmp_path, page, serving, text, formulas):
    main = opened_group(page, serving, one_group(tmp_path, f"{text} [done]", "none"))
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


@pytest.mark.parametrize("way", ["served", "exported"])
def test_two_runs_are_shown_side_by_side(tmp_path, page, serving, way):
    one = small_run(tmp_path / "demo" / "restrain")
    other = write_run(tmp_path / "demo" / "ttrl", [scored_group(step, 5, PROMPT, boxed("7", "7")) for step in (2, 9)])
    found = material(one, None, beside=other)
    if way == "exported":
        export(found, tmp_path / "view.html", 50)
    page.open((tmp_path / "view.html").as_uri() if way == "exported" else serving(found))
    assert page.page.title() == "Rollouts of restrain and ttrl"
    assert page.texts("#reading") == ["11 groups of 3 prompts at 4 steps"], "step 2 of both runs is one step"
    assert rows(page)[-1] == "ttrl · step 9 · group 5"
    page.page.locator(".row", has_text="restrain · step 3 · group 0").click()
    page.page.wait_for_selector(".class")
    assert page.texts("figcaption") == ["restrain", "ttrl"]
    assert page.texts("h3")[-1].startswith("ttrl · step 2, the same prompt")
    assert page.texts(".class h4") == ["5", "7"]
    page.page.locator("[name=run]").select_option("1")
    assert rows(page) == ["ttrl · step 2 · group 5", "ttrl · step 9 · group 5"]
    assert page.troubles == []
