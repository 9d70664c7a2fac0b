"""The web UI: its files, their headers, and the page in an installation without them."""

import gzip
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from headwater import FeatureStore
from headwater.http.app import create_app
from tests.http.conftest import client_of, problem_of

SCRIPT = "console.log('a page of the UI');\n" * 100
INDEX = '<!doctype html><script type="module" src="./assets/index-1f2e.js"></script>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder as the build makes it, next to a file that must stay secret."""
    built = tmp_path / "ui"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text(INDEX)
    (built / "favicon.svg").write_text("<svg/>")
    (built / "assets" / "index-1f2e.js").write_text(SCRIPT)
    (built / "assets" / "index-1f2e.css").write_text("body {}")
    (built / "assets" / "inter-77aa.woff2").write_bytes(bytes(4_000))
    (tmp_path / "secret.js").write_text("the secret")
    return built


@pytest.fixture
async def browser(store: FeatureStore, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client without a key, as a browser is when it opens the page."""
    async with client_of(create_app(store, ui_folder=folder), key=None) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_root_leads_to_the_ui(browser: httpx.AsyncClient, path: str) -> None:
    response = await browser.get(path)
    assert (response.status_code, response.headers["location"]) == (303, "ui/")
    assert (await browser.get(path, follow_redirects=True)).text == INDEX


@pytest.mark.parametrize("path", ["", "index.html", "store", "no-such.js", "records?since=1h"])
async def test_a_path_that_the_ui_routes_is_answered_with_its_page(
    browser: httpx.AsyncClient, path: str
) -> None:
    response = await browser.get(f"/ui/{path}")
    assert (response.status_code, response.text) == (200, INDEX)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"


async def test_links_of_the_page_are_relative_to_its_path(browser: httpx.AsyncClient) -> None:
    response = await browser.get("/ui/records/01234")
    script = response.text.partition('src="')[2].partition('"')[0]
    assert response.url.join(script).path == "/ui/assets/index-1f2e.js"
    assert (await browser.get("/ui/" + "a/" * 20)).status_code == 404


@pytest.mark.parametrize(
    ("name", "media_type", "encoding"),
    [
        ("assets/index-1f2e.js", "text/javascript; charset=utf-8", "gzip"),
        ("assets/index-1f2e.css", "text/css; charset=utf-8", None),
        ("assets/inter-77aa.woff2", "font/woff2", None),
        ("favicon.svg", "image/svg+xml", None),
    ],
)
async def test_files_have_their_media_type_and_are_compressed_if_that_helps(
    browser: httpx.AsyncClient, folder: Path, name: str, media_type: str, encoding: str | None
) -> None:
    response = await browser.get(f"/ui/{name}")
    assert response.content == (folder / name).read_bytes()
    assert response.headers["content-type"] == media_type
    assert response.headers.get("content-encoding") == encoding
    assert response.headers["vary"] == "Accept-Encoding"


async def test_a_client_that_takes_no_gzip_gets_the_file_as_it_is(
    browser: httpx.AsyncClient,
) -> None:
    response = await browser.get("/ui/assets/index-1f2e.js", headers={"accept-encoding": "br"})
    assert "content-encoding" not in response.headers
    assert int(response.headers["content-length"]) == len(SCRIPT) > len(gzip.compress(b"")) * 10


async def test_assets_are_kept_for_a_year_and_the_page_is_asked_for_again(
    browser: httpx.AsyncClient,
) -> None:
    asset = await browser.get("/ui/assets/index-1f2e.js")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    page = await browser.get("/ui/")
    again = await browser.get("/ui/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == page.headers["etag"]


async def test_a_new_build_is_served_without_a_restart(
    browser: httpx.AsyncClient, folder: Path
) -> None:
    before = await browser.get("/ui/")
    index = folder / "index.html"
    written = index.stat().st_mtime_ns
    index.write_text(INDEX.replace("1f2e", "3d4c"))
    # Two writes within some milliseconds may have one time of modification.
    os.utime(index, ns=(written + 10**9, written + 10**9))
    after = await browser.get("/ui/", headers={"if-none-match": before.headers["etag"]})
    assert "3d4c" in after.text


@pytest.mark.parametrize(
    "path", ["/ui/", "/ui/store", "/ui/assets/index-1f2e.js", "/ui/favicon.svg"]
)
async def test_every_file_restricts_what_the_page_may_do(
    browser: httpx.AsyncClient, path: str
) -> None:
    headers = (await browser.get(path)).headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["x-request-id"]


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../secret.js",
        "/ui/%2e%2e/secret.js",
        "/ui/..%2fsecret.js",
        "/ui/assets/../../secret.js",
        "/ui/assets/..%2f..%2fsecret.js",
        "/ui/assets/%2e%2e/%2e%2e/secret.js",
        "/ui/assets/..\\..\\secret.js",
        "/ui//../secret.js",
        "/ui/assets//etc/passwd",
        "/ui/assets/index-1f2e.js%00",
        "/ui/assets/.hidden.js",
        "/ui/assets/",
        "/ui/assets",
    ],
)
async def test_no_path_leads_out_of_the_folder(
    store: FeatureStore, folder: Path, path: str
) -> None:
    (folder / "assets" / ".hidden.js").write_text("the secret")
    sent: list[bytes] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, object]) -> None:
        sent.append(bytes(message.get("body", b"")))  # type: ignore[call-overload]

    # Clients normalize a path before they send it.
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    await create_app(store, ui_folder=folder)(
        {**scope, "query_string": b"", "headers": []},
        receive,
        send,  # type: ignore[arg-type]
    )
    assert b"secret" not in b"".join(sent)


async def test_a_missing_asset_is_a_problem_and_not_the_page(
    store: FeatureStore, folder: Path
) -> None:
    async with client_of(create_app(store, ui_folder=folder)) as client:
        response = await client.get("/ui/assets/index-0000.js")
    assert problem_of(response)["status"] == 404


async def test_errors_of_the_api_stay_problems(store: FeatureStore, folder: Path) -> None:
    async with client_of(create_app(store, ui_folder=folder)) as client:
        assert problem_of(await client.get("/v1/nowhere"))["status"] == 404
        assert problem_of(await client.get("/uix"))["status"] == 404


async def test_only_reading_is_possible(browser: httpx.AsyncClient) -> None:
    head = await browser.head("/ui/assets/index-1f2e.js")
    assert head.status_code == 200
    assert head.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (await browser.post("/ui/")).status_code == 401


async def test_without_a_build_one_page_says_how_to_make_one(
    store: FeatureStore, tmp_path: Path
) -> None:
    async with client_of(create_app(store, ui_folder=tmp_path / "none"), key=None) as client:
        for path in ("/", "/ui", "/ui/", "/ui/records/01234", "/ui/assets/index-1f2e.js"):
            page = await client.get(path, follow_redirects=True)
            assert page.status_code == 200
            assert "<code>make ui</code>" in page.text
            assert page.headers["content-security-policy"].startswith("default-src 'none'")
            style = page.text.partition('href="')[2].partition('"')[0]
            assert (await client.get(page.url.join(style).path)).status_code == 200


async def test_the_ui_works_below_a_prefix(store: FeatureStore, folder: Path) -> None:
    async with client_of(create_app(store, ui_folder=folder), root_path="/tools") as client:
        assert (await client.get("/tools/", follow_redirects=True)).url.path == "/tools/ui/"
        assert (await client.get("/tools/ui/assets/index-1f2e.js")).text == SCRIPT
