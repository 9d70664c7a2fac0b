"""Fixtures of the web UI's tests: servers, a browser, and pages.

A test that only reads uses ``page`` on the shared ``site``. A test that changes, stops or slows
something takes ``own_site``. All tests here are synchronous, as Playwright's interface is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page

from dev.browser import find_chromium, running_chromium
from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.model.callers import AccessScope
from tests.http.key_files import add_key
from tests.ui import hostile
from tests.ui.browsing import Size, Tab, TabPool
from tests.ui.pictures import Theme, pictures
from tests.ui.site import Site

ROLES: tuple[tuple[str, tuple[AccessScope, ...], datetime | None], ...] = (
    ("operator", ("admin",), None),
    ("reader", ("read",), None),
    ("auditor", ("records",), None),
    ("expired", ("admin",), datetime.now(UTC) - timedelta(days=1)),
)

OpenTab = Callable[..., Tab]


def pytest_configure(config: pytest.Config) -> None:
    """Take pictures if asked to."""
    pictures.folder = config.getoption("--pictures")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on the shared server embedded, and the marked ones on Redis and Postgres too."""
    if "site" in metafunc.fixturenames:
        both = metafunc.definition.get_closest_marker("both_environments")
        environments = ["embedded", "production"] if both else ["embedded"]
        metafunc.parametrize("site", environments, indirect=True, scope="package")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Yield a Chromium.

    It ends with this package: while it runs, tests of other packages cannot use an event loop.
    """
    assert is_ui_installed(), f"the web UI is not built: {BUILD_UI}"
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Yield a filled server that tests share and do not change."""
    environment = {}
    if request.param == "production":
        environment = _production(
            request.getfixturevalue("redis_url"), request.getfixturevalue("postgres_url")
        )
    with _folder() as home, Site(Path(home), environment).shared() as site:
        yield site.fill()


@pytest.fixture(scope="package")
def keyed_site() -> Iterator[Site]:
    """Yield a filled server that requires keys: ``site.keys["reader"]`` is one of them.

    Each key has the name and the scope of a role; ``expired`` was valid until yesterday.
    """
    with _folder() as folder:
        home = Path(folder)
        site = Site(home, {"HEADWATER_KEYS_FILE": str(home / "keys.toml")})
        site.keys = {
            role: add_key(home / "keys.toml", role, *scopes, expires=expires)
            for role, scopes, expires in ROLES
        }
        site.key = site.keys["operator"]
        with site.shared():
            yield site.fill()


@pytest.fixture(scope="package")
def hostile_site() -> Iterator[Site]:
    """Yield a server whose store has hostile text in every field; tests may add more."""
    with _folder() as home, Site(Path(home), {}).shared() as site:
        yield hostile.fill(site)


@pytest.fixture
def own_site() -> Iterator[Site]:
    """Yield a server with an empty store, which the test may change and stop."""
    with _folder() as home:
        site = Site(Path(home), {}).start()
        try:
            yield site
        finally:
            site.close()


@pytest.fixture(scope="package")
def tab_pool(browser: Browser) -> TabPool:
    """Return the browser contexts that tests of shared servers reuse."""
    return TabPool(browser)


@pytest.fixture
def open_tab(tab_pool: TabPool) -> Iterator[OpenTab]:
    """Return a function that gives a browser context at a server; its errors fail the test."""
    with ExitStack() as stack:

        def open_tab(
            at: Site, *, size: Size = "laptop", theme: Theme = "light", key: str | None = None
        ) -> Tab:
            chosen = at.key if key is None else key
            return stack.enter_context(
                tab_pool.lent(at.url, size=size, theme=theme, key=chosen, is_kept=at.is_shared)
            )

        yield open_tab


@pytest.fixture
def tab(open_tab: OpenTab, site: Site) -> Tab:
    """Return a browser context at the shared server: ``tab.open("/ui/store")`` opens a page."""
    return open_tab(site)


@pytest.fixture
def page(tab: Tab) -> Page:
    """Return the overview of the shared server."""
    return tab.open()


def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="hw-ui-")


def _production(redis_url: str, postgres_url: str) -> dict[str, str]:
    own = uuid4().hex[:12]
    return {
        "HEADWATER_REDIS_URL": redis_url,
        "HEADWATER_REDIS_PREFIX": f"test-{own}",
        "HEADWATER_POSTGRES_URL": postgres_url,
        "HEADWATER_POSTGRES_SCHEMA": f"test_{own}",
    }


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that need a browser."""
    if _needs_browser(item):
        item.add_marker(pytest.mark.browser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of the browser first, and where none is installed only the one that says so.

    They are the longest, and the processes of xdist take their first tests in one piece: so one
    of them runs these, with one browser and one server.
    """
    own = [item for item in items if _needs_browser(item)]
    others = [item for item in items if item not in set(own)]
    if find_chromium() is None:
        items[:] = others
        config.hook.pytest_deselected(items=own)
    else:
        items[:] = [*own, *others]


def _needs_browser(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "browser" in item.fixturenames
