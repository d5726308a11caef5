"""Chromium, and a page of it that notes what it should never do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

URL = os.environ.get("OCTAVO_TEST_URL", "")
KEY = "key"
# Every text that the conversation ever showed, so that a test sees an answer grow however fast it came.
RECORDER = """
window.lengths = [];
addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
  const body = document.querySelector(".turn.assistant:last-child .body");
  if (body && window.lengths.at(-1) !== body.textContent.length) window.lengths.push(body.textContent.length);
}).observe(document.getElementById("turns"), { subtree: true, childList: true, characterData: true }));
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Here, as the outer suite reads this file too, without Playwright.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium refuses to run as root within its sandbox.
        launched = playwright.chromium.launch(
            executable_path=os.environ["OCTAVO_TEST_CHROMIUM"], args=["--no-sandbox"]
        )
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """A function that opens the page in a fresh profile, with the key unless `key` is empty.

    Afterwards: no script failed, nothing was blocked, and nobody else was asked.
    """
    contexts = []
    faults: list[str] = []

    def note(page: Page) -> None:
        page.on("pageerror", lambda error: faults.append(str(error)))
        # A refusal is logged by the browser itself; tests of refusals look at the page.
        page.on(
            "console",
            lambda line: (
                faults.append(line.text)
                if line.type == "error" and "the server responded with" not in line.text
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                faults.append(request.url) if not request.url.startswith((URL, "blob:")) else None
            ),
        )

    def open_(key: str = KEY, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}} | options)
        contexts.append(context)
        context.add_init_script(RECORDER)
        if key:
            context.add_init_script(f'sessionStorage.setItem("octavo.key", "{key}")')
        page = context.new_page()
        page.set_default_timeout(60_000)
        note(page)
        page.goto(URL)
        return page

    assert urlsplit(URL).hostname == "127.0.0.1"
    yield open_
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """The page, opened with the key, its model known."""
    from playwright.sync_api import expect

    opened = open_page()
    expect(opened.locator("#model-name")).not_to_be_empty()
    return opened
