"""Pages of a browser that fail their test for errors, policy violations and outside hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    ViewportSize,
    expect,
)

from dev.ui_build import MODULES
from tests.ui.pictures import Theme, pictures
from tests.ui.site import SECONDS

Size = Literal["wide", "laptop", "phone"]

SIZES: dict[Size, tuple[int, int]] = {
    "wide": (1600, 1000),
    "laptop": (1280, 860),
    "phone": (390, 844),
}
_REST = "/ui/drop.svg"
"""A file of the site without scripts; the browser would leave an empty page for a new process."""

LOADING = "[role=status][aria-label=Loading]"
"""Skeletons, which stand for data that has not come yet."""

_MILLISECONDS = SECONDS * 1000
_AXE = (MODULES / "axe-core" / "axe.min.js").read_text
_GRAVE = {"serious", "critical"}
COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules of axe whose result depends on the theme."""

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

    def __init__(self, context: BrowserContext, url: str, size: Size, theme: Theme) -> None:
        self._context = context
        self._host = urlsplit(url).netloc
        self._size: ViewportSize = {"width": SIZES[size][0], "height": SIZES[size][1]}
        self._theme: Theme = theme
        self._unused: list[Page] = []
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
        page = self._unused.pop() if self._unused else self.blank()
        page.goto(path)
        settle(page)
        return page

    def blank(self) -> Page:
        """Return an empty page."""
        return self._context.new_page()

    def _hear(self, message: ConsoleMessage) -> None:
        url = message.location["url"]
        # A server that has just started, or is busy, may not be ready yet.
        is_starting = "503" in message.text and url.endswith("/readyz")
        # The file that is shown between two tests names no icon, and the browser asks for this one.
        if not is_starting and not url.endswith("/favicon.ico"):
            self._note(message.type, f"{message.text} at {url}")

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

    def reset(self) -> None:
        """Keep one page, empty and as it was at first, for the next test."""
        self._context.unroute_all()
        kept, *others = self._context.pages or [self.blank()]
        for page in others:
            page.close()
        kept.mouse.move(0, 0)
        kept.goto(_REST)
        kept.evaluate("localStorage.clear(); sessionStorage.clear()")
        kept.set_viewport_size(self._size)
        kept.emulate_media(color_scheme=self._theme)
        self._unused = [kept]
        self.expected.clear()
        self.errors.clear()

    def close(self) -> None:
        self._context.close()


class TabPool:
    """Tabs at shared servers, which tests use one after the other.

    A page in a new context needs a new process and loads all scripts again, which takes more than
    half of the time of most tests.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[tuple[str, Size, Theme, str | None], list[Tab]] = {}

    @contextmanager
    def lent(
        self, url: str, *, size: Size, theme: Theme, key: str | None, is_kept: bool
    ) -> Iterator[Tab]:
        """Yield a tab without storage, with a key as if its user had entered it.

        Its errors fail the test. It is closed at the end, or kept for the next test.
        """
        free = self._free.setdefault((url, size, theme, key), [])
        tab = free.pop() if free else _tab(self._browser, url, size, theme, key)
        try:
            yield tab
            tab.check()
            if is_kept:
                tab.reset()
                free.append(tab)
        finally:
            if tab not in free:
                tab.close()


def _tab(browser: Browser, url: str, size: Size, theme: Theme, key: str | None) -> Tab:
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
    return Tab(context, url, size, theme)


def settle(page: Page) -> None:
    """Wait until fonts are loaded and no skeleton is shown."""
    page.wait_for_function(_SETTLED, timeout=_MILLISECONDS)


def axe(page: Page, rules: tuple[str, ...] = ()) -> None:
    """Fail if axe finds a serious or critical violation of accessibility in a page.

    With rules, check only these.
    """
    settle(page)
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE())
    only = {"runOnly": rules} if rules else {}
    found: list[dict[str, Any]] = page.evaluate(
        "async (options) => (await axe.run(document, options)).violations",
        {"resultTypes": ["violations"], **only},
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


def check_sizes(page: Page, name: str) -> None:
    """Fail if a page is wider than its window in one of the sizes.

    With ``--pictures`` also write a picture of each size and theme, named after the state.
    """
    before = page.viewport_size
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        settle(page)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{page.url} is {overflow} px wider than a {size} window"
        pictures.take_in_both_themes(page, f"{name}-{size}")
    if before is not None:
        page.set_viewport_size(before)
