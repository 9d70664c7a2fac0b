"""Hostile text in every field that users and events fill: it is shown as text, and nothing more."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import SIZES, axe, photograph
from tests.ui.conftest import OpenTab
from tests.ui.pages import NAMES, path_of
from tests.ui.site import Site

MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=1</script><b>bold</b>"
HOSTILE = {
    "markup": MARKUP,
    "attribute": '"><svg onload="window.hit=1">',
    "link": "javascript:window.hit=1",
    "template": "{{7*7}} ${7*7} {total_spend}",
    "control": "bell \a, escape \x1b[31mred, backspace \b, line\u2028separator",
    "rtl": "مرحبا \u202eTXT.EXE\u202c שלום",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "long": "x" * 10_000,
    "lines": "\n".join(["line"] * 300),
}
MARKED_ID = "<b>bold</b>"


@pytest.fixture(scope="module")
def hostile_site() -> Iterator[Site]:
    """Yield a server whose store has hostile text in every field."""
    with TemporaryDirectory(prefix="hw-ui-") as home:
        site = Site(Path(home), {}).start()
        try:
            yield fill(site)
        finally:
            site.close()


def fill(site: Site) -> Site:
    site.index("hostile", "\n\n".join(HOSTILE.values()))
    for kind, text in HOSTILE.items():
        site.index(kind, text)
        site.publish("signed_up", kind, name=text)
        site.publish("checkout", kind, country=text, kg=1)
        site.publish("purchase", kind, amount=1, **{"note": text, MARKUP: text})
    site.publish("signed_up", MARKED_ID, name=MARKUP)
    site.drain()
    for kind, text in HOSTILE.items():
        site.assemble("letter", user_id=kind, text=text)
    # The first record is the one whose page is opened.
    site.records.insert(0, site.assemble("letter", user_id=MARKED_ID, text=MARKUP))
    return site


@pytest.mark.parametrize("name", NAMES)
def test_hostile_text_is_only_ever_text(hostile_site: Site, open_tab: OpenTab, name: str) -> None:
    page = open_tab(hostile_site).open(path_of(name, hostile_site))
    expect(page.locator("main")).not_to_be_empty()
    check(page)


@pytest.mark.parametrize("kind", ["markup", "rtl", "long"])
def test_a_record_of_hostile_text_opens(hostile_site: Site, open_tab: OpenTab, kind: str) -> None:
    record = hostile_site.records[1 + list(HOSTILE).index(kind)]
    page = open_tab(hostile_site).open(f"/ui/records/{record}")
    check(page)
    axe(page)
    photograph(page, f"hostile-{kind}")


def test_keys_show_the_whole_of_a_long_text(hostile_site: Site, open_tab: OpenTab) -> None:
    record = hostile_site.records[1 + list(HOSTILE).index("long")]
    page = open_tab(hostile_site).open(f"/ui/records/{record}")
    texts = page.get_by_role("listbox", name="Items in the order of the text")
    texts.focus()
    page.keyboard.press("Home")
    first = texts.get_by_role("option").first
    expect(first).not_to_contain_text(HOSTILE["long"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(first).to_contain_text(HOSTILE["long"])
    expect(texts).to_be_focused()


def check(page: Page) -> None:
    """Fail if a text became more than a text, or widened the page."""
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src=x], main script, main b:text('bold')").count() == 0
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{page.url} is {overflow} px wider than {width} px"
