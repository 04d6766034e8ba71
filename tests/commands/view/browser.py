"""Debian's Chromium for tests, by playwright: a page that counts what it asks for and what goes wrong on it."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


def missing() -> str | None:
    """Why there is no browser here; None where there is one."""
    if shutil.which("chromium") is None:
        return "needs Chromium (Debian: chromium)"
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        return "needs playwright: pip install restrain-openrlhf[dev]"
    return None


@dataclass
class Watched:
    """A page, what it asked for, and the errors, dialogs and refusals of its policy."""

    page: Any
    requests: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def open(self, address: str) -> None:
        """Load it and wait for all groups."""
        from playwright.sync_api import expect

        self.page.goto(address)
        expect(self.page.locator("#reading")).to_have_text(re.compile(r"groups? of .* steps?$"), timeout=60_000)

    def texts(self, selector: str) -> list[str]:
        """What its elements say."""
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Its sandbox needs a user that is not root.
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


def watched(browser: Any, **settings: Any) -> Watched:
    """A fresh page."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, **settings)
    found = Watched(page)
    page.on("request", lambda request: found.requests.append(request.url))
    page.on("pageerror", lambda error: found.troubles.append(str(error)))
    page.on("console", lambda message: found.troubles.append(message.text))
    page.on("dialog", lambda dialog: (found.troubles.append(dialog.message), dialog.dismiss()))
    return found
