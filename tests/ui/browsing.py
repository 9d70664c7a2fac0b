"""Pages of a browser that fail their test for errors, policy violations and outside hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from dev.ui_build import MODULES
from tests.ui.site import SECONDS

Size = Literal["wide", "laptop", "phone"]
Theme = Literal["light", "dark"]

SIZES: dict[Size, tuple[int, int]] = {
    "wide": (1600, 1000),
    "laptop": (1280, 860),
    "phone": (390, 844),
}
THEMES: tuple[Theme, ...] = ("light", "dark")
PICTURES = Path(__file__).parents[2] / "build" / "pictures"
LOADING = "[role=status][aria-label=Loading]"
"""Skeletons, which stand for data that has not come yet."""

_MILLISECONDS = SECONDS * 1000
_AXE = (MODULES / "axe-core" / "axe.min.js").read_text
_GRAVE = {"serious", "critical"}
# Not async: a promise would count as true.
_SETTLED = f"""() => document.fonts.status === "loaded"
    && document.querySelector("main")?.hasChildNodes()
    && document.querySelector("{LOADING}") === null
"""
_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => {
    console.error(`policy violated: ${event.effectiveDirective} by ${event.blockedURI} `
        + `${event.sourceFile}:${event.lineNumber}`);
});
"""

# An empty page, which every tab begins with, has no storage.
_KEY = "if (location.host) sessionStorage.setItem('headwater.key', %s);"

expect.set_options(timeout=_MILLISECONDS)


class Tab:
    """A browser context with its own storage; pages in it share the storage, as tabs do."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self._context = context
        self._host = urlsplit(url).netloc
        self.expected: list[str] = []
        """Patterns of errors that the test causes on purpose."""
        self.errors: list[str] = []
        self.route = context.route
        context.set_default_timeout(_MILLISECONDS)
        context.add_init_script(_VIOLATIONS)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self._note("error", str(error.error)))
        context.on("request", lambda request: self._check_host(request.url))

    def open(self, path: str = "/ui/") -> Page:
        """Open a page and return when its data is shown."""
        page = self.blank()
        page.goto(path)
        settle(page)
        return page

    def blank(self) -> Page:
        """Return an empty page."""
        return self._context.new_page()

    def _hear(self, message: ConsoleMessage) -> None:
        # A server that has just started, or is busy, may not be ready yet.
        if not ("503" in message.text and message.location["url"].endswith("/readyz")):
            self._note(message.type, message.text)

    def _note(self, kind: str, text: str) -> None:
        if kind == "error":
            self.errors.append(text)

    def _check_host(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.errors.append(f"request to another host: {url}")

    def check(self) -> None:
        """Fail if a page logged an error or asked another host."""
        unexpected = [
            each
            for each in self.errors
            if not any(re.search(known, each) for known in self.expected)
        ]
        assert not unexpected, "errors in the browser:\n" + "\n".join(unexpected)


@contextmanager
def new_tab(
    browser: Browser,
    url: str,
    *,
    size: Size = "laptop",
    theme: Theme = "light",
    key: str | None = None,
    is_checked: bool = True,
) -> Iterator[Tab]:
    """Yield a new browser context at a server, with a key as if its user had entered it."""
    width, height = SIZES[size]
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme=theme,
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
        has_touch=size == "phone",
    )
    if key:
        context.add_init_script(_KEY % json.dumps(key))
    try:
        tab = Tab(context, url)
        yield tab
        if is_checked:
            tab.check()
    finally:
        context.close()


def settle(page: Page) -> None:
    """Wait until fonts are loaded and no skeleton is shown."""
    page.wait_for_function(_SETTLED, timeout=_MILLISECONDS)


def axe(page: Page) -> None:
    """Fail if axe finds a serious or critical violation of accessibility in a page."""
    settle(page)
    page.evaluate(_AXE())
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    grave = [
        f"{each['id']} ({each['impact']}): {each['help']}\n"
        + "\n".join(
            f"    {' '.join(map(str, node['target']))}: {node['failureSummary']}"
            for node in each["nodes"][:5]
        )
        for each in found
        if each["impact"] in _GRAVE
    ]
    assert not grave, f"axe at {page.url}:\n" + "\n".join(grave)


def photograph(page: Page, name: str) -> None:
    """Write pictures of a page in all sizes and themes to `build/pictures`, for people to look at.

    Fail if the page is wider than the window in one of them.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            settle(page)
            page.screenshot(
                path=PICTURES / f"{name}-{size}-{theme}.png", animations="disabled", full_page=True
            )
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{page.url} is {overflow} px wider than a {size} window"
    page.emulate_media(color_scheme=None)
    if before is not None:
        page.set_viewport_size(before)
