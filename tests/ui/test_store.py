"""The store page: everything declared, as a graph and as a list, and the card of one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

STORE = "/ui/store"

HEAD = """
from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature, retriever
store = FeatureStore()
Index(store, "help", embedder="lexical")
"""
ENTITY = """
@entity(store)
class {name}:
    {id}: str
"""
FEATURE = """
@feature(entity={entity}, trigger="event_{event}", default=0)
async def {entity_lower}_feature_{number}(user_id: str, event: ServiceEvent) -> int:
    '''Feature number {number}.'''
    return await store.get_feature("{entity_lower}_feature_{before}", user_id) + 1
"""
CONTEXT = """
@context(store)
async def context_{number}(user_id: str) -> str:
    first = await store.get_feature("customer_feature_{first}", user_id)
    return str(first) + str(await store.get_feature("customer_feature_{second}", user_id))
"""


def large_file() -> str:
    """Return a features file with 300 declarations."""
    parts = [HEAD]
    for name in ("Customer", "Product"):
        parts.append(ENTITY.format(name=name, id="user_id"))
        parts += [
            FEATURE.format(
                entity=name,
                entity_lower=name.lower(),
                number=number,
                before=number - number % 7,
                event=number % 24,
            )
            for number in range(120)
        ]
    parts += [CONTEXT.format(number=n, first=n * 3, second=n * 2 + 1) for n in range(34)]
    return "".join(parts)


FAMILY = """
from headwater import FeatureStore, ServiceEvent, context, entity, feature
store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(
    entity=User,
    trigger="purchase",
    window=["5m", "1h", "24h", "7d"],
    aggregate=["count", "sum", "avg", "min", "max", "stddev", "distinct", "p95", "last(5)"],
)
def spend(user_id: str, event: ServiceEvent) -> float:
    '''What a customer spends.'''
    return float(event.payload["amount"])

@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    return await store.get_feature("visits", user_id) + 1

@context(store)
async def support(user_id: str) -> str:
    return str(await store.get_feature("spend_sum_7d", user_id))
"""

ServeFile = Callable[[str], Site]


@pytest.fixture
def serve_file() -> Iterator[ServeFile]:
    """Return a function that serves the text of a features file."""
    with TemporaryDirectory(prefix="hw-ui-") as folder, ExitStack() as stack:

        def serve(text: str) -> Site:
            features = Path(folder) / "features.py"
            features.write_text(text)
            site = Site(Path(folder), {}, features).start()
            stack.callback(site.close)
            return site

        yield serve


@pytest.fixture
def large_site(serve_file: ServeFile) -> Site:
    return serve_file(large_file())


def node(page: Page, name: str) -> Locator:
    return page.locator(f'[data-node="{name}"]')


def open_store(tab: Tab, query: str = "") -> Page:
    page = tab.open(STORE + query)
    page.wait_for_selector("[data-node], table, [role=region], h2")
    return page


@pytest.mark.both_environments
def test_the_graph_opens_the_card_of_a_declaration(site: Site, open_tab: OpenTab) -> None:
    page = open_store(open_tab(site, theme="dark"))
    expect(page.get_by_text("9 features of 2 entities, 1 retriever, 4 contexts")).to_be_visible()
    check_sizes(page, "store")
    node(page, "feature:total_spend").click()
    expect(page).to_have_url(re.compile("card=feature%3Atotal_spend"))
    card = page.get_by_role("region", name="feature total_spend")
    expect(card).to_contain_text("What a customer has spent, without refunds.")
    expect(card).to_contain_text("3 of 3 entities")
    expect(card.locator("pre")).to_contain_text("async def total_spend")
    expect(card.get_by_role("region", name="Needs")).to_contain_text("purchase")
    expect(card.get_by_role("link", name="Look up values")).to_have_attribute(
        "href", "/ui/lookup?entity=User&feature=total_spend"
    )
    axe(page)
    check_sizes(page, "store-card")
    card.get_by_role("button", name="blurb").click()
    expect(page.get_by_role("region", name="feature blurb")).to_contain_text("template feature")
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="feature blurb")).to_have_count(0)
    expect(page).to_have_url(re.compile(f"{STORE}$"))
    page.go_back()
    expect(page.get_by_role("region", name="feature blurb")).to_be_visible()


def test_a_failing_feature_shows_its_dead_letters(tab: Tab) -> None:
    page = open_store(tab, "?card=feature:shipping_fee")
    card = page.get_by_role("region", name="feature shipping_fee")
    expect(card).to_contain_text("failing")
    expect(card.get_by_role("link", name="Review")).to_have_attribute(
        "href", "/ui/dead-letters?feature=shipping_fee"
    )
    check_sizes(page, "store-failing")


def test_the_graph_is_walked_by_keyboard(tab: Tab) -> None:
    page = open_store(tab)
    node(page, "event:visit").focus()
    page.keyboard.press("ArrowRight")
    expect(node(page, "feature:visits")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(node(page, "feature:blurb")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="feature blurb")).to_be_visible()


def test_filters_are_in_the_address(tab: Tab) -> None:
    page = open_store(tab)
    page.get_by_label("Entity").select_option("Product")
    expect(node(page, "feature:stock")).to_be_visible()
    expect(node(page, "feature:total_spend")).to_have_count(0)
    page.get_by_label("Kind").select_option("feature")
    page.get_by_role("button", name="List").click()
    page.get_by_label("Filter by name or words").fill("sto")
    rows = page.get_by_role("table", name="Declarations").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("entity=Product&kind=feature&view=list&q=sto"))
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Filter by name or words").fill("nothing at all")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(24)


def test_the_list_is_walked_by_keyboard(site: Site, open_tab: OpenTab) -> None:
    page = open_store(open_tab(site, theme="dark"), "?view=list")
    check_sizes(page, "store-list")
    axe(page)
    rows = page.get_by_role("table", name="Declarations").locator("tbody tr")
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="entity Product")).to_contain_text("Features 2")


@pytest.mark.parametrize("kind", ["context:support", "retriever:search_help", "index:help"])
def test_other_kinds_have_cards(tab: Tab, kind: str) -> None:
    page = open_store(tab, f"?card={kind}")
    name = kind.replace(":", " ")
    expect(page.get_by_role("region", name=name)).to_contain_text("Options")
    check_sizes(page, f"store-{kind.partition(':')[0]}")


def test_an_unknown_declaration_names_the_nearest(tab: Tab) -> None:
    tab.expected.append("404")
    page = open_store(tab, "?card=feature:total_spnd")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'total_spend'?")


def test_three_hundred_declarations(large_site: Site, open_tab: OpenTab) -> None:
    page = open_store(open_tab(large_site))
    expect(page.locator("[data-node]")).to_have_count(299)
    # The picture begins with names that can be read: as tall as the smallest text of the page.
    first = page.locator("[data-node]").first.bounding_box()
    assert first is not None
    assert first["height"] >= 40
    check_sizes(page, "store-large")
    page.get_by_label("Filter by name or words").fill("customer_feature_77")
    expect(node(page, "feature:customer_feature_77")).to_be_visible()
    expect(node(page, "feature:product_feature_3")).to_have_count(0)
    check_sizes(page, "store-large-filtered")
    page.goto(f"{STORE}?view=list")
    settle(page)
    check_sizes(page, "store-large-list")
    page.get_by_role("row", name="context_33").click()
    card = page.get_by_role("region", name="context context_33")
    expect(card.get_by_role("heading", name="context_33")).to_be_in_viewport(ratio=1)


def test_an_empty_store_teaches_to_declare(serve_file: ServeFile, open_tab: OpenTab) -> None:
    site = serve_file("from headwater import FeatureStore\nstore = FeatureStore()\n")
    page = open_store(open_tab(site))
    expect(page.get_by_role("heading", name="Nothing is declared")).to_be_visible()
    check_sizes(page, "store-empty")


def test_thirty_six_windows_of_a_function_are_one_node_and_one_row(
    serve_file: ServeFile, open_tab: OpenTab
) -> None:
    page = open_store(open_tab(serve_file(FAMILY)))
    expect(page.get_by_text("37 features of 1 entity, 1 context")).to_be_visible()
    expect(page.locator("[data-node]")).to_have_count(5)
    expect(node(page, "feature:spend")).to_contain_text("36 windows · User")
    check_sizes(page, "store-family")
    page.goto(f"{STORE}?view=list")
    rows = page.get_by_role("table", name="Declarations").locator("tbody tr")
    expect(rows).to_have_count(6)
    page.get_by_role("button", name="Show the windows of spend").click()
    expect(rows).to_have_count(42)
    check_sizes(page, "store-family-list")
    page.get_by_role("button", name="Hide the windows of spend").click()
    page.get_by_label("Filter by name or words").fill("sum_7d")
    expect(rows).to_have_count(1)
    rows.first.click()
    expect(page.get_by_role("region", name="feature spend_sum_7d")).to_be_visible()
    page.get_by_label("Filter by name or words").fill("")
    expect(rows).to_have_count(42)
    page.goto(f"{STORE}?card=feature:spend_sum_7d")
    expect(node(page, "feature:spend")).to_have_attribute("aria-pressed", "true")


def test_an_event_type_shows_the_fields_of_its_payload(site: Site, open_tab: OpenTab) -> None:
    page = open_tab(site).open("/ui/store?view=list&kind=event")
    expect(page.get_by_role("row", name="review")).to_contain_text("What a customer says")
    page = open_tab(site).open("/ui/store?card=event:review")
    panel = page.get_by_role("region", name="event type review")
    expect(panel).to_contain_text("What a customer says about a product.")
    expect(panel).to_contain_text("stars: int From 1 to 5.")
    expect(panel).to_contain_text('channel: "shop" | "web"')
    expect(panel).to_contain_text("tags: list[str] | None = null")
    check_sizes(page, "store-event")
    axe(page)
