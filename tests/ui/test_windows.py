"""Windows of time: their table, the curve of one, its tiles, and the value in a context."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

FEATURES = Path(__file__).with_name("window_features.py")
ADA = "/ui/lookup?entity=User&id=ada"
HOSTILE_KEY = "<img src=x onerror=\"document.title='owned'\">\u202e\u05e9"


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    """Yield a server with purchases of the last days."""
    now = datetime.now(UTC)
    with TemporaryDirectory(prefix="hw-ui-") as home:
        site = Site(Path(home), {}, FEATURES)
        with site.shared():
            site.post(
                "/ingest",
                [
                    {
                        "event_type": "purchase",
                        "entity_id": "ada",
                        "timestamp": (now - timedelta(days=days)).isoformat(),
                        "payload": {"amount": amount, "category": category},
                    }
                    for days, amount, category in (
                        *((8, 100.0, "tents"), (6, 40.0, "lamps"), (3, 25.5, "tents")),
                        *((0, 10.0, HOSTILE_KEY), (0, 1000.25, "boots")),
                    )
                ],
            )
            site.drain()
            yield site


@pytest.fixture
def tab(shop: Site, open_tab: OpenTab) -> Tab:
    return open_tab(shop)


def test_all_windows_of_a_family_are_one_table(tab: Tab) -> None:
    page = tab.open(ADA)
    table = page.get_by_role("table", name="Windows of spend")
    expect(table.locator("thead")).to_have_text("Aggregate1h7d")
    expect(table.get_by_role("row", name="count")).to_contain_text("4")
    sums = table.get_by_role("row", name="sum")
    expect(sums).to_contain_text("1,010.25")
    expect(sums).to_contain_text("1,075.75")
    expect(page.get_by_role("table", name="Values of the entity")).not_to_contain_text("spend")
    keys = page.get_by_role("table", name="Windows of bought")
    expect(keys.locator("tr").nth(2)).to_have_text("boots1,000.25")
    expect(keys).to_contain_text("<img src=x")
    assert page.locator("main img").count() == 0
    axe(page)
    check_sizes(page, "windows-lookup")
    sums.get_by_role("link", name="spend_sum_7d").click()
    page.wait_for_url("**&feature=spend_sum_7d")
    expect(page.get_by_role("region", name="spend_sum_7d", exact=True)).to_contain_text("1075.75")


def test_a_window_shows_its_curve_and_its_tiles(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=spend_sum_7d")
    value = page.get_by_role("region", name="spend_sum_7d", exact=True)
    expect(value).to_contain_text("7d, moves every 6 h")
    expect(value).to_contain_text("between 7 d and 7 d 6 h")
    expect(value).to_contain_text("Accuracyexact")
    expect(value).to_contain_text("Last fold")
    steps = page.get_by_role("table", name="Steps of the value, newest first")
    expect(steps).to_contain_text("time passed")
    expect(steps.locator("tbody tr").first).to_contain_text("purchase")
    tiles = page.get_by_role("region", name="Tiles", exact=True)
    expect(tiles).to_contain_text("one for each 6 h")
    expect(tiles).to_contain_text("Leaves next: the tile from")
    tiles.get_by_text("as a table").click()
    table = tiles.get_by_role("table", name="Tiles, newest first")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(table.locator("tbody tr").last).to_contain_text("40")
    axe(page)
    check_sizes(page, "windows-value")


def test_the_tiles_are_read_by_keyboard(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=spend_sum_7d")
    tiles = page.get_by_role("region", name="Tiles", exact=True)
    tiles.get_by_role("group", name="Tiles as a chart").focus()
    page.keyboard.press("End")
    expect(tiles.locator("figcaption")).to_contain_text("1,010.25")
    page.keyboard.press("Home")
    expect(tiles.locator("figcaption")).to_contain_text("40")
    expect(tiles.locator("figcaption")).to_contain_text("1 contribution · covered")


def test_a_sketch_says_how_far_it_may_be_off(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=spend_p95_7d")
    value = page.get_by_role("region", name="spend_p95_7d", exact=True)
    expect(value).to_contain_text("computed of a sketch; error 1 % of the value")


def test_a_keyed_window_is_a_table_of_its_keys(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=bought_sum_7d")
    keys = page.get_by_role("table", name="Values by key")
    expect(keys.locator("tbody tr").first).to_contain_text("boots")
    expect(page.get_by_role("table", name="Steps of the value")).to_contain_text("boots 1,000.25")
    axe(page)
    check_sizes(page, "windows-keyed")


def test_an_entity_without_events_has_empty_windows(tab: Tab) -> None:
    page = tab.open("/ui/lookup?entity=User&id=nobody&feature=spend_sum_7d&range=all")
    expect(page.locator("main")).to_contain_text("Nothing is stored for this id")
    expect(page.get_by_role("region", name="Curve")).to_contain_text(
        "No event has contributed. The first event of type purchase contributes."
    )
    expect(page.get_by_role("region", name="Tiles", exact=True)).to_contain_text("No tiles")
    expect(page.get_by_role("region", name="spend_sum_7d", exact=True)).to_contain_text(
        "no event has contributed"
    )
    check_sizes(page, "windows-empty")


def test_a_context_shows_the_window_of_a_value(shop: Site, tab: Tab) -> None:
    page = tab.open(f"/ui/records/{shop.assemble('brief', user_id='ada')}")
    expect(page.locator("main")).to_contain_text("sum over 7d, moves every 6 h; last fold")
    expect(page.locator("main")).to_contain_text("a sketch, error up to 1 %")
    axe(page)
    check_sizes(page, "windows-record")


def test_the_card_of_a_family_has_a_table_of_its_windows(tab: Tab) -> None:
    page = tab.open("/ui/store?card=feature:spend")
    card = page.get_by_role("region", name="feature spend", exact=True)
    expect(card).to_contain_text("family of 8 windows")
    expect(card.get_by_role("region", name="Needed by 1")).to_contain_text("brief")
    check_sizes(page, "windows-card")
    card.get_by_role("button", name="spend_p95_7d").click()
    card = page.get_by_role("region", name="feature spend_p95_7d")
    expect(card).to_contain_text("7d, moves every 6 h")
    expect(card).to_contain_text("error 1 % of the value")
    settle(page)
    axe(page)
    check_sizes(page, "windows-member-card")


def test_the_card_of_an_entity_lists_families_and_not_their_windows(tab: Tab) -> None:
    page = tab.open("/ui/store?card=entity:User")
    features = page.get_by_role("region", name="Features 3")
    expect(features).to_contain_text("with 9 windows")
    expect(features.get_by_role("button", name="spend", exact=True)).to_be_visible()
    expect(features.get_by_role("button")).to_have_count(3)
