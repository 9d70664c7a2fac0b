"""Budgets of the web UI: bytes of its scripts, time to the first paint, large contexts."""

import gzip
import math

from playwright.sync_api import Page, expect

from headwater.core.ui_files import UI_FOLDER
from tests.ui.browsing import Tab
from tests.ui.pages import NAMES
from tests.ui.site import Site, until

MOST_SCRIPT = 400_000
MOST_FIRST_SCRIPT = 220_000
"""Gzipped bytes of all scripts, and of those that the overview loads before a page is opened."""

PAINTED = """async () => {
    const found = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
    while (found() === undefined) await new Promise(requestAnimationFrame);
    return found();
}"""
PLAIN_PAGE_TIMES = 40
FASTEST_MILLISECONDS = 1_000
ITEMS = 1_000


def gzipped(name: str) -> int:
    return len(gzip.compress((UI_FOLDER / "assets" / name).read_bytes()))


def test_all_scripts_together_are_small() -> None:
    scripts = {file.name: gzipped(file.name) for file in UI_FOLDER.glob("assets/*.js")}
    assert sum(scripts.values()) <= MOST_SCRIPT, scripts
    index = (UI_FOLDER / "index.html").read_text()
    first = {name: size for name, size in scripts.items() if name in index}
    assert sum(first.values()) <= MOST_FIRST_SCRIPT, first


def test_pages_are_loaded_when_they_are_opened() -> None:
    scripts = [file.name for file in UI_FOLDER.glob("assets/*.js")]
    index = (UI_FOLDER / "index.html").read_text()
    pages = [name for name in scripts if "Page-" in name]
    assert len(pages) == len((*NAMES, "evaluations", "run of an evaluation"))
    assert not any(name in index for name in pages)


def test_the_overview_is_painted_at_once(tab: Tab) -> None:
    """Compare with a page without scripts, and try again, because the machine may be busy."""
    plain, overview = math.inf, math.inf

    def is_quick() -> bool:
        nonlocal plain, overview
        plain = min(plain, painting(tab, "/docs"))
        overview = min(overview, painting(tab, "/ui/"))
        return overview <= max(FASTEST_MILLISECONDS, PLAIN_PAGE_TIMES * plain)

    until(is_quick)


def painting(tab: Tab, path: str) -> float:
    """Return the milliseconds to the first paint of a page."""
    page = tab.blank()
    page.goto(path)
    milliseconds: float = page.evaluate(PAINTED)
    page.close()
    return milliseconds


def test_a_context_of_a_thousand_items_opens(tab: Tab, site: Site) -> None:
    """The page shows only the rows in its window, so that it stays quick."""
    page = tab.open(f"/ui/records/{site.assemble('many_items', count=ITEMS)}")
    expect(page.get_by_text("Item 0 of 1000.").first).to_be_visible()
    assert elements(page) < elements_of_small(tab, site) + 8 * ITEMS


def elements(page: Page) -> int:
    found: int = page.evaluate("document.querySelectorAll('*').length")
    return found


def elements_of_small(tab: Tab, site: Site) -> int:
    return elements(tab.open(f"/ui/records/{site.records[0]}"))
