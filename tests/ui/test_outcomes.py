"""The answer of a model on the page of its context: read, scored, corrected and found again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.http.key_files import add_key
from tests.ui.browsing import axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.hostile import HOSTILE
from tests.ui.site import Site

FEATURES = Path(__file__).with_name("chat_features.py")
ANSWER = {
    "messages": [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "The policy says so.\nI answer briefly."},
                {"type": "text", "content": "Refunds take three working days."},
                {
                    "type": "tool_call",
                    "id": "call_1",
                    "name": "start_refund",
                    "arguments": {"order_id": "A-17"},
                },
            ],
        }
    ],
    "response_id": "chatcmpl-9f8a7b6c5d4e3f2a1b",
    "provider": "openai",
    "model_asked": "gpt-4o",
    "model": "gpt-4o-2024-11-20",
    "finish_reasons": ["tool_calls"],
    "usage": {
        "input": 1_060,
        "output": 58,
        "cache_read": 1_024,
        "reasoning": 20,
        "raw": {"prompt_tokens": 1_060},
    },
    "latency_ms": 1_840.0,
    "first_token_ms": 410.0,
}


@pytest.fixture(scope="package")
def judged() -> Iterator[Site]:
    """Yield a server with an answered, a failed and a hostile context, and keys that may judge."""
    with TemporaryDirectory(prefix="hw-outcomes-") as folder:
        home = Path(folder)
        site = Site(home, {"HEADWATER_KEYS_FILE": str(home / "keys.toml")}, FEATURES)
        site.keys = {
            "operator": add_key(home / "keys.toml", "operator", "admin"),
            "auditor": add_key(home / "keys.toml", "auditor", "records"),
            "judge": add_key(home / "keys.toml", "judge", "records", "outcomes"),
        }
        site.key = site.keys["operator"]
        with site.shared():
            # Only tokens of messages are predicted: a text is not all that is sent.
            for name in ("chat", *("support",) * 4):
                site.assemble(name, user_id="ada", question="How long does a refund take?")
            answered, failed, _, _, hostile = site.records
            add(site, failed, error={"error_type": "RateLimitError", "model_asked": "gpt-4o"})
            add(site, answered, answer=ANSWER)
            score = {"name": "helpful", "value": 2.0, "explanation": "No date.", "identifier": "v3"}
            add(site, answered, score=score, judge="model", actor="rubric")
            add(site, answered, correction="Refunds take up to five days.", judge="human")
            text = " ".join(HOSTILE.values())
            parts = [
                {"type": "text", "content": text},
                {"type": "tool_call", "id": text, "name": text, "arguments": {text: text}},
            ]
            message = {"role": "assistant", "parts": parts}
            add(site, hostile, answer={"messages": [message], "model": HOSTILE["markup"]})
            add(
                site,
                hostile,
                score="tone",
                label="שלום" + "W" * 900,
                explanation=text,
                actor=HOSTILE["markup"],
            )
            yield site


def add(site: Site, context_id: str, **outcome: Any) -> None:
    site.post(f"/v1/context/{context_id}/outcomes", outcome)


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


def said(page: Page) -> Locator:
    return page.get_by_role("list", name="Scores and corrections").get_by_role("listitem")


def test_the_answer_has_its_facts_its_scores_and_corrections(
    judged: Site, open_tab: OpenTab
) -> None:
    page = open_tab(judged, key=judged.keys["auditor"]).open(f"/ui/records/{judged.records[0]}")
    answer = card(page, "The answer")
    predicted = judged.get(f"/context/{judged.records[0]}/explain")["outcomes"][0]["predicted"]
    for fact in (
        "Refunds take three working days.",
        'start_refund({"order_id":"A-17"})',
        "gpt-4o-2024-11-20, asked for gpt-4o",
        "tool_calls",
        "1.8 s, first token after 410 ms",
        "1,060 in (1,024 read from the cache)",
        "58 out (20 of reasoning)",
        f"{predicted}, billed 1,060 (+{1_060 - predicted:,}",
        "¢",
    ):
        expect(answer).to_contain_text(fact)
    expect(answer.get_by_text("I answer briefly.")).to_be_hidden()
    answer.get_by_text("characters of reasoning").click()
    expect(answer.get_by_text("I answer briefly.")).to_be_visible()
    expect(said(page).nth(0)).to_contain_text("helpful 2 by v3")
    expect(said(page).nth(0)).to_contain_text("rubric (model)")
    expect(said(page).nth(0)).to_contain_text("No date.")
    expect(said(page).nth(1)).to_contain_text("Refunds take up to five days.")
    expect(page.get_by_role("form")).to_have_count(0)  # a key without the scope
    proof = card(page, "Proof, checked in this browser")
    expect(proof.get_by_role("list", name="Outcomes").locator("summary")).to_have_count(3)
    axe(page)
    check_sizes(page, "answer")
    page.emulate_media(color_scheme="dark")
    axe(page)


def test_a_failed_call_says_so(judged: Site, open_tab: OpenTab) -> None:
    page = open_tab(judged).open(f"/ui/records/{judged.records[1]}")
    failed = card(page, "A failed call")
    expect(failed).to_contain_text("the call failed")
    expect(failed).to_contain_text("RateLimitError: the model gave no answer.")
    check_sizes(page, "answer-failed")


def test_people_score_and_correct_an_answer_with_the_keyboard(
    judged: Site, open_tab: OpenTab
) -> None:
    page = open_tab(judged, key=judged.keys["judge"]).open(f"/ui/records/{judged.records[2]}")
    expect(card(page, "The answer")).to_contain_text("No answer was recorded.")
    form = page.get_by_role("form", name="Score this answer")
    expect(form.get_by_role("button", name="Save score")).to_be_disabled()
    form.get_by_role("button", name="Bad").press("Enter")
    form.get_by_label("Why (optional)").fill("It names no day.")
    form.get_by_role("button", name="Save score").press("Enter")
    expect(said(page)).to_have_count(1)
    expect(said(page)).to_contain_text("helpful no")
    expect(said(page)).to_contain_text("It names no day.")
    expect(said(page)).to_contain_text("judge")  # the name of the key
    form.get_by_label("Score by").select_option("value")
    form.get_by_label("Number").fill("many")
    expect(form).to_contain_text("Not a number")
    form.get_by_label("Number").fill("0.5")
    form.get_by_label("Name").fill("accuracy")
    form.get_by_label("Number").press("Enter")
    expect(said(page)).to_have_count(2)
    expect(said(page).nth(1)).to_contain_text("accuracy 0.5")
    form.get_by_role("button", name="Correct…").click()
    correcting = page.get_by_role("form", name="Correct this answer")
    axe(page)
    check_sizes(page, "answer-correcting")
    correcting.get_by_role("textbox").fill("Three working days.")
    correcting.get_by_role("button", name="Save correction").click()
    expect(said(page).nth(2)).to_contain_text("Three working days.")
    # The proof covers what was added.
    proof = card(page, "Proof, checked in this browser")
    expect(proof.get_by_role("list", name="Outcomes").locator("summary")).to_have_count(3)
    stored = judged.get(f"/v1/context/{judged.records[2]}/outcomes")["outcomes"]
    assert [each["kind"] for each in stored] == ["score", "score", "correction"]
    assert {(each["judge"], each["actor"]) for each in stored} == {("human", "judge")}


def test_a_score_that_was_not_saved_says_so_and_is_sent_again(
    judged: Site, open_tab: OpenTab
) -> None:
    tab = open_tab(judged, key=judged.keys["judge"])
    tab.expected.append("ERR_FAILED|Failed to load resource")
    page = tab.open(f"/ui/records/{judged.records[3]}")

    def stored_but_unheard(route: Route) -> None:
        if route.request.method == "POST":
            route.fetch()
            route.abort()
        else:
            route.continue_()

    tab.route("**/outcomes", stored_but_unheard)
    form = page.get_by_role("form", name="Score this answer")
    form.get_by_role("button", name="Good").click()
    form.get_by_role("button", name="Save score").click()
    expect(said(page).get_by_role("alert")).to_contain_text("not saved")
    check_sizes(page, "answer-not-saved")
    page.unroute_all()
    page.context.unroute_all()
    said(page).get_by_role("button", name="Try again").click()
    expect(said(page).get_by_role("alert")).to_have_count(0)
    expect(said(page)).to_have_count(1)
    stored = judged.get(f"/v1/context/{judged.records[3]}/outcomes")["outcomes"]
    assert len(stored) == 1  # the first request had arrived


def test_contexts_are_found_by_score_label_model_and_error(judged: Site, open_tab: OpenTab) -> None:
    answered, failed = judged.records[:2]
    page = open_tab(judged).open("/ui/records?range=all")
    page.get_by_role("button", name="Answers").click()
    score = page.get_by_label("Score", exact=True)
    expect(score).to_be_focused()
    score.press_sequentially("helpful<")
    expect(page.get_by_text("Such as helpful<3 or helpful=false")).to_be_visible()
    score.press_sequentially("3")
    expect(page.get_by_role("checkbox")).to_have_count(1)
    expect(page.get_by_label(f"Compare {answered}")).to_be_visible()
    expect(page).to_have_url(re.compile("score=helpful%3C3"))
    axe(page)
    check_sizes(page, "records-by-score")
    page.get_by_role("button", name="Clear").click()
    expect(score).to_have_count(0)
    page.goto("/ui/records?range=all&error=RateLimitError")
    expect(page.get_by_label("Error of the call")).to_have_value("RateLimitError")
    expect(page.get_by_label(f"Compare {failed}")).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(1)
    page.goto("/ui/records?range=all&answer_model=gpt-4o-2024-11-20")
    expect(page.get_by_label(f"Compare {answered}")).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(1)


def test_a_hostile_answer_is_shown_as_text(judged: Site, open_tab: OpenTab) -> None:
    page = open_tab(judged).open(f"/ui/records/{judged.records[4]}")
    expect(said(page)).to_have_count(1)
    assert page.evaluate("window.hit") is None
    expect(page.locator("main img")).to_have_count(0)
    axe(page)
    check_sizes(page, "answer-hostile")
