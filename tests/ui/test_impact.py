"""Which contexts saw a feature, an entity, a document or a chunk."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.ui.browsing import Tab, axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import Site


@pytest.mark.both_environments
def test_every_context_that_saw_a_document_is_listed_and_exported(tab: Tab, site: Site) -> None:
    found = site.get("/v1/contexts/by-provenance?document=returns")["contexts"]
    assert found
    page = tab.open("/ui/impact?document=returns&index=help")
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text(f"{len(found)} contexts saw document returns with index help")
    expect(page.get_by_role("checkbox")).to_have_count(len(found))
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="NDJSON").click()
    assert len(download.value.path().read_text().splitlines()) == len(found)


def test_the_form_asks_for_each_kind_of_thing(tab: Tab, site: Site) -> None:
    page = tab.open("/ui/impact")
    check_sizes(page, "impact-empty")
    page.get_by_label("Feature", exact=True).select_option("total_spend")
    page.get_by_label("Entity id").fill("ada")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("feature=total_spend&entity_id=ada"))
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("4 contexts saw feature total_spend with entity ada")
    page.get_by_label("Kind").select_option("entity_id")
    page.get_by_label("Entity", exact=True).select_option("Product")
    page.get_by_label("Entity id").fill("lamp")
    page.get_by_role("button", name="Find contexts").click()
    expect(title).to_have_text("1 context saw Product lamp")
    expect(page).not_to_have_url(re.compile("feature="))
    page.get_by_label("Kind").select_option("chunk")
    page.get_by_label("Chunk id").fill("<b>no such chunk</b>")
    page.keyboard.press("Enter")
    expect(title).to_have_text("No context saw chunk <b>no such chunk</b>")
    check_sizes(page, "impact-nothing")


def test_an_auditor_may_type_the_name_of_a_feature(keyed_site: Site, open_tab: OpenTab) -> None:
    page = open_tab(keyed_site, key=keyed_site.keys["auditor"]).open("/ui/impact")
    page.get_by_role("textbox", name="Feature", exact=True).fill("total_spend")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("12 contexts saw feature total_spend")


def test_pictures_of_the_impact_of_a_feature(tab: Tab) -> None:
    page = tab.open("/ui/impact?feature=total_spend")
    expect(page.get_by_role("heading", level=1)).to_have_text("12 contexts saw feature total_spend")
    axe(page)
    check_sizes(page, "impact")
