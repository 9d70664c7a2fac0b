"""The site of the documentation has all pages, links with targets, and loads from no other host."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from playwright.sync_api import expect
from typer.testing import CliRunner

from dev.browser import running_chromium
from dev.site import build, list_versions
from headwater.cli import app
from tests.docs.pages import DOCS, ROOT

_ID = re.compile(r'\bid="([^"]+)"')
_HREF = re.compile(r'<a [^>]*href="([^"]+)"')
_LISTED = re.compile(r'<a href="([^"]+)" class="md-nav__link')
_LOADED = re.compile(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(https?:)?//')

# Of links, in site.css.
_LIGHT, _DARK = "rgb(43, 95, 217)", "rgb(126, 162, 245)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build this version, beside an older one."""
    newest = build(tmp_path_factory.mktemp("site"))
    older = newest.with_name("0.0")
    shutil.copytree(newest, older)
    (older / "index.html").write_text(
        (older / "index.html").read_text(encoding="utf-8").replace("Events keep", "Older events"),
        encoding="utf-8",
    )
    list_versions(newest.parent)
    return newest


def test_the_site_has_every_page_and_every_link_has_a_target(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    wanted = {site / file.relative_to(DOCS).with_suffix(".html") for file in DOCS.rglob("*.md")}
    assert wanted <= pages.keys()
    ids = {page: {*_ID.findall(text)} for page, text in pages.items()}
    start = site / "index.html"
    tree = {(site / target).resolve() for target in _LISTED.findall(pages[start])}
    # What an example indexes is a file of its own, not a page.
    beside = {site / "404.html", *(site / "examples" / "support" / "help").iterdir()}
    assert pages.keys() - beside <= tree, "a page is not in the tree of mkdocs.yml"
    for page, text in pages.items():
        assert not _LOADED.search(text), f"{page.name} loads from another host"
        for target in _HREF.findall(text):
            path, _, anchor = target.partition("#")
            assert not target.startswith("/"), f"{page.name}: {target} breaks below a path"
            if "://" in target or target.startswith("mailto:"):
                continue
            other = (page.parent / path).resolve() if path else page
            assert other.exists() or (other / "index.html").exists(), f"{page.name}: {target}"
            # Diagrams and the search have ids of their own.
            if anchor and not anchor.startswith("__") and other in ids:
                assert anchor in ids[other], f"{page.name}: {target}: no such heading"


def test_long_names_in_tables_are_broken_after_their_parts(site: Path) -> None:
    settings = (site / "reference" / "settings.html").read_text(encoding="utf-8")
    assert "<code>HEADWATER_<wbr>KEYS_<wbr>FILE</code>" in settings
    assert "<wbr>" not in settings.partition("<table>")[0]


def test_material_for_mkdocs_has_the_icons_of_the_configuration() -> None:
    sets = {*re.findall(r"icon: (\w+)/", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))}
    assert sets == {"material"}  # also: fontawesome, octicons, simple


def test_links_of_alerts_lead_to_sections_of_the_site(site: Path) -> None:
    command = ["metrics", "alerts", "--docs-url", "https://docs.example/headwater/latest/"]
    printed = CliRunner().invoke(app, command)
    for rule in yaml.safe_load(printed.stdout)["groups"][0]["rules"]:
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        page = site.parent / address.removeprefix("https://docs.example/headwater/")
        assert anchor in _ID.findall(page.read_text(encoding="utf-8"))


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        """Serves the site below a path, and its page 404.html in place of what is missing."""

        error_message_format = (site / "404.html").read_text(encoding="utf-8").replace("%", "%%")

        def translate_path(self, path: str) -> str:
            return super().translate_path(path.removeprefix("/below"))

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site.parent))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/below"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.browser
def test_a_reader_finds_a_page_and_sees_its_diagram(site: Path, address: str) -> None:
    with running_chromium() as browser:
        page = browser.new_page()
        foreign: list[str] = []
        page.on("request", lambda asked: foreign.append(asked.url))
        page.goto(address)
        page.wait_for_url("**/latest/index.html")
        page.get_by_role("button", name="Search").first.click()
        page.keyboard.type("dead letters")
        page.get_by_role("link", name="Events and failures").first.wait_for()
        page.goto(f"{address}/{site.name}/explanation/events.html")
        page.locator("div.mermaid").first.wait_for()
        assert [url for url in foreign if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.browser
def test_a_missing_page_leads_to_the_start_below_any_path(site: Path, address: str) -> None:
    with running_chromium() as browser:
        page = browser.new_page()
        for version in (site.name, "latest"):
            missing = page.goto(f"{address}/{version}/how-to/of/long-ago.html")
            assert missing
            assert missing.status == 404
            page.get_by_role("link", name="Begin at its start").click()
            page.wait_for_url(f"{address}/{version}/index.html")
            page.get_by_role("button", name="Search").first.wait_for()


@pytest.mark.browser
def test_a_link_to_the_latest_version_arrives_at_its_section(site: Path, address: str) -> None:
    with running_chromium() as browser:
        page = browser.new_page()
        stable = f"{address}/latest/how-to/errors-faq.html#too-many-requests"
        page.goto(stable)
        expect(page.get_by_role("heading", name="too-many-requests")).to_be_in_viewport()
        expect(page.get_by_role("button", name="Select version")).to_have_text(site.name)
        assert page.url == stable


@pytest.mark.browser
def test_a_reader_chooses_an_older_version(site: Path, address: str) -> None:
    with running_chromium() as browser:
        page = browser.new_page()
        page.goto(address)
        page.get_by_text("Events keep").wait_for()
        chosen = page.get_by_role("button", name="Select version")
        expect(chosen).to_have_text(site.name)
        page.locator(".md-version").hover()
        offered = page.locator(".md-version__link")
        expect(offered).to_have_text([site.name, "0.0"])
        offered.last.click()
        page.wait_for_url(f"{address}/0.0/")
        page.get_by_text("Older events").wait_for()
        expect(chosen).to_have_text("0.0")


@pytest.mark.browser
def test_the_site_is_dark_where_the_reader_or_the_browser_wants_it(
    site: Path, address: str
) -> None:
    with running_chromium() as browser:
        page = browser.new_page(color_scheme="dark")
        page.goto(f"{address}/{site.name}/index.html")
        link = page.get_by_role("link", name="tutorial", exact=True).first
        expect(link).to_have_css("color", _DARK)
        page.get_by_title("Light").click()
        expect(link).to_have_css("color", _LIGHT)
        page.reload()
        expect(link).to_have_css("color", _LIGHT)
        page.get_by_title("Dark").click()
        expect(link).to_have_css("color", _DARK)
