"""Take the pictures of the README from the data of the demo (`python -m dev.pictures`)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal, NamedTuple
from urllib.parse import urlencode

import httpx
from playwright.sync_api import Browser

from dev.browser import running_chromium
from headwater.settings.loading import environment_without_settings

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MOST_BYTES = 150_000

_SETTLED = """() => document.fonts.status === "loaded"
    && document.querySelector("main h1") !== null
    && document.querySelector("[role=status][aria-label=Loading]") === null
"""


class Picture(NamedTuple):
    """A page, and how it is shown."""

    name: str
    path: str
    theme: Literal["light", "dark"]


@contextmanager
def served_demo() -> Iterator[str]:
    """Yield the address of a demo with a week of data; its folder is removed."""
    with TemporaryDirectory(prefix="hw-pictures-") as folder:
        command = [sys.executable, "-m", "headwater", "demo", "--keep", "--json"]
        demo = subprocess.Popen(
            command,
            cwd=folder,
            env=environment_without_settings() | {"TMPDIR": folder},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert demo.stdout
            yield json.loads(_document(demo.stdout))["url"]
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()


def _document(output: IO[str]) -> str:
    """Return the first JSON document, which ends with an unindented brace."""
    lines: list[str] = []
    for line in output:
        lines.append(line)
        if line == "}\n":
            return "".join(lines)
    sys.exit("the demo ended before it served; run `headwater demo --keep`")


def telling_record(url: str) -> str:
    """Return the id of a context that has dropped items and features with ages."""
    query = urlencode({"name": "support", "limit": 100})
    listed = httpx.get(f"{url}/v1/contexts?{query}", timeout=60).raise_for_status().json()
    ids: list[str] = [each["context_id"] for each in listed["contexts"]]
    return max(ids, key=lambda each: _interest(_explained(url, each)))


def _explained(url: str, context_id: str) -> dict[str, Any]:
    response = httpx.get(f"{url}/context/{context_id}/explain", timeout=60).raise_for_status()
    explained: dict[str, Any] = response.json()
    return explained


def _interest(explained: dict[str, Any]) -> tuple[int, int]:
    items = explained["items"]
    dropped = sum(each["decision"] == "dropped" for each in items)
    return min(dropped, 2), len(items)


def take(browser: Browser, url: str, picture: Picture) -> None:
    """Write one picture to `docs/pictures`."""
    page = browser.new_page(
        viewport={"width": 1440, "height": 900},
        color_scheme=picture.theme,
        reduced_motion="reduce",
        locale="en-GB",
    )
    page.goto(url + picture.path)
    page.wait_for_function(_SETTLED, timeout=120_000)
    file = PICTURES / f"{picture.name}.webp"
    page.screenshot(path=file, type="webp", quality=85, animations="disabled")
    page.close()
    if file.stat().st_size > MOST_BYTES:
        sys.exit(f"{file.name} has {file.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    sys.stdout.write(f"wrote {file.name}, {file.stat().st_size:,} bytes\n")


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with served_demo() as url, running_chromium() as browser:
        take(browser, url, Picture("xray", f"/ui/records/{telling_record(url)}", "light"))
        take(browser, url, Picture("overview", "/ui/", "dark"))


if __name__ == "__main__":
    main()
