"""Evaluations: cohorts and runs, what a run found, and both sides of a context."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import httpx
import pytest
from playwright.sync_api import expect

from headwater.records.document import load
from headwater.records.record import Record
from tests.evaluations import RUN_ID, changed_record, evaluated, write_cohort, write_run
from tests.ui.browsing import Tab, axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import ARTICLES, CUSTOMERS, QUESTIONS, Site


def record_of(site: Site, context_id: str) -> Record:
    response = httpx.get(f"{site.url}/v1/record/{context_id}", timeout=60)
    return load(response.content)


def evaluate(site: Site, *, missing: int = 0) -> list[Record]:
    """Write a run in which a smaller budget changes two of four contexts, and one fails."""
    for document, text in ARTICLES.items():
        site.index(document, text)
    for customer, named in CUSTOMERS.items():
        site.publish("signed_up", customer, name=named)
        site.publish("purchase", customer, amount=50)
    site.drain()
    records = [
        record_of(site, site.assemble("support", user_id="ada", question=question))
        for question in QUESTIONS
    ]
    after = []
    for question in QUESTIONS[:2]:
        body = {"params": {"user_id": "ada", "question": question}, "max_tokens": 40}
        after.append(record_of(site, site.post("/v1/contexts/support", body)["context_id"]))
    rows = [
        evaluated(records[0], after[0]),
        evaluated(
            records[1],
            after[1],
            fidelity="approximate",
            reasons=("the history of tier is not kept",),
        ),
        evaluated(records[2]),
        evaluated(records[3], status="failed", error="KeyError: 'country'"),
    ]
    folder = site.home / "evals"
    write_cohort(folder, "last-month", records)
    sides = [changed_record(*pair) for pair in zip(records[:2], after, strict=True)]
    at = datetime.now(UTC)
    write_run(folder, "last-month", rows, sides, started_at=at, missing=missing)
    return records


def test_a_store_without_evaluations_teaches_the_two_commands(tab: Tab) -> None:
    page = tab.open("/ui/evaluations")
    expect(page.get_by_role("heading", name="Nothing was evaluated yet")).to_be_visible()
    expect(page.locator("pre")).to_contain_text("headwater eval freeze")
    expect(page.locator("pre")).to_contain_text("headwater eval run")
    axe(page)
    check_sizes(page, "evaluations-empty")


def test_a_run_lists_what_changed_and_opens_both_sides(open_tab: OpenTab, own_site: Site) -> None:
    records = evaluate(own_site)
    page = open_tab(own_site).open("/ui/evaluations")
    runs = page.get_by_role("table", name="Runs of last-month")
    expect(runs).to_contain_text("broken")
    axe(page)
    check_sizes(page, "evaluations")
    runs.get_by_role("row").nth(1).press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/evaluations/last-month/{RUN_ID}$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 4 contexts change, 1 fail")
    expect(page.get_by_role("main")).to_contain_text("1 approximate")
    expect(page.get_by_role("table", name="Gates")).to_contain_text("max_changed")
    changed = page.get_by_role("table", name="Contexts of the run").locator("tbody tr")
    expect(changed).to_have_count(2)
    axe(page)
    check_sizes(page, "evaluation-run")
    page.get_by_label("Fidelity").select_option("approximate")
    expect(changed).to_have_count(1)
    expect(page).to_have_url(re.compile("fidelity=approximate"))
    page.get_by_label("Fidelity").select_option("")
    page.get_by_role(
        "button", name=re.compile("show the contexts that context support changed")
    ).click()
    expect(page).to_have_url(re.compile(r"cause=context\+support"))
    page.get_by_label("Status").select_option("failed")
    expect(page.get_by_text("No context matches.")).to_be_visible()
    page.get_by_label("Cause").select_option("")
    expect(changed).to_contain_text("KeyError")
    page.get_by_label("Status").select_option("changed")
    expect(changed).to_have_count(2)
    changed.first.focus()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/ui/compare.cohort=last-month"))
    expect(page.get_by_label("Recorded", exact=True)).to_contain_text(records[0].context_id[:8])
    expect(page.get_by_label("With this change", exact=True)).to_contain_text("exact")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Another text")
    expect(page.get_by_role("table", name="Text of both contexts")).to_be_visible()
    axe(page)
    check_sizes(page, "evaluation-compare")
    page.get_by_role("link", name=re.compile("Evaluation of")).click()
    expect(page).to_have_url(re.compile(f"/ui/evaluations/last-month/{RUN_ID}$"))


def test_a_run_that_goes_on_is_followed_to_its_end(open_tab: OpenTab, own_site: Site) -> None:
    evaluate(own_site, missing=2)
    page = open_tab(own_site).open(f"/ui/evaluations/last-month/{RUN_ID}")
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("4 of 6 contexts done")
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "4")
    evaluate(own_site)
    expect(title).to_have_text("2 of 4 contexts change, 1 fail")
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_redacted_values_are_not_shown_in_a_comparison(open_tab: OpenTab, own_site: Site) -> None:
    first, *_ = evaluate(own_site)
    body = {"pointers": ["/output/content"], "reason": "requested by Ada"}
    own_site.post(f"/v1/record/{first.context_id}/redact", body)
    address = f"cohort=last-month&run={RUN_ID}&context={first.context_id}"
    page = open_tab(own_site).open(f"/ui/compare?{address}")
    expect(page.get_by_role("heading", name="Both sides are withheld")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("requested by Ada")


@pytest.mark.parametrize("role", ["reader"])
def test_a_key_without_the_scope_does_not_see_the_page(
    open_tab: OpenTab, keyed_site: Site, role: str
) -> None:
    page = open_tab(keyed_site, key=keyed_site.keys[role]).open("/ui/store")
    rail = page.get_by_role("navigation", name="Pages")
    expect(rail.get_by_role("link", name="Store")).to_be_visible()
    expect(rail.get_by_role("link", name="Evaluations")).to_have_count(0)
