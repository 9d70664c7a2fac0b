"""Find the Chromium that tests and pictures of the web UI use (`python -m dev.browser`).

As a program, install it through apt where that is possible and it is missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from dev.apt import install

VARIABLE = "HEADWATER_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPTIONS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

MISSING = (
    f"no Chromium was found: install it (Debian: `apt-get install chromium`; macOS: `brew install "
    f"chromium`), or name its executable in {VARIABLE}, or leave out the tests that need it with "
    """`make check ARGS='-m "not browser"'`"""
)


def find_chromium() -> str | None:
    """Return the executable of a Chromium, or None."""
    named = os.environ.get(VARIABLE)
    return shutil.which(named) if named else next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Yield a Chromium without a window, which asks no other host for anything."""
    executable = find_chromium()
    if executable is None:
        raise FileNotFoundError(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=[*_OPTIONS], timeout=120_000
        )
        yield browser
        browser.close()


if __name__ == "__main__":
    install("chromium", "the tests of the web UI", find_chromium)
    if find_chromium() is None:
        sys.stderr.write(MISSING + "\n")
