"""What cells show can be read in JupyterLab, in its light and its dark theme.

The notebook is that of `examples/notebook`, with cells for all else that is shown as HTML. The
option ``--pictures`` writes a picture of each output, for people to look at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from dev.browser import running_chromium
from engines.downloads import ROOT, environment
from engines.processes import free_ports, wait_for_port
from tests.ui.pictures import THEMES

_NOTEBOOK = ROOT / "examples" / "notebook" / "tour.ipynb"
_KERNEL = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_SETTINGS: dict[str, dict[str, Any]] = {
    "apputils-extension/themes": {"adaptive-theme": True},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Otherwise cells outside of the window are not drawn.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
# Before the last cell, which closes the store; the last has more rows than are shown.
_MORE = (
    "store",
    'store.sync.get_feature_history("total_spend", "ada")',
    "store.sync.get_context_at(ctx.context_id)",
    'for n in range(25):\n    store.sync.publish("visit", "ada", {"page": f"/{n}"})\n'
    "store.sync.bus.list(limit=30)",
)
# What each output says, in order; the ones of pandas are here because they are beside ours.
_SAID = (
    *("All that a customer has spent.", "cleo", "2026-03-21", "purchases_count_7d"),
    *("Spent so far: 70.00 EUR.", "purchases", "2026-03-10", "Where is my parcel?"),
    "… 10 more rows",
)
_SECONDS = 60
_LEAST_TEXTS = 60
_READABLE = 4.5
"""The ratio that WCAG asks of texts."""
_HTML = ".jp-OutputArea-output.jp-RenderedHTML"
# Colours and backgrounds are laid over what is below them, from the page to the text.
_CONTRASTS = """(selector) => {
    const parts = (text) => {
        const [red, green, blue, alpha = 1] = text.match(/[\\d.]+/g).map(Number);
        return { rgb: [red, green, blue], alpha };
    };
    const over = (above, alpha, below) =>
        below.map((each, i) => above[i] * alpha + each * (1 - alpha));
    const backgroundOf = (element) => {
        if (element === null) return [255, 255, 255];
        const { rgb, alpha } = parts(getComputedStyle(element).backgroundColor);
        return over(rgb, alpha, backgroundOf(element.parentElement));
    };
    const opacityOf = (element) =>
        element === null ? 1 : getComputedStyle(element).opacity * opacityOf(element.parentElement);
    const luminance = (rgb) => {
        const linear = rgb.map((each) => each / 255).map((each) =>
            each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05;
    };
    const found = {};
    for (const output of document.querySelectorAll(selector)) {
        const walker = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const text = walker.currentNode.textContent.trim();
            const element = walker.currentNode.parentElement;
            if (text === "" || !element.checkVisibility()) continue;
            const below = backgroundOf(element);
            const { rgb, alpha } = parts(getComputedStyle(element).color);
            const seen = luminance(over(rgb, alpha * opacityOf(element), below));
            const behind = luminance(below);
            const contrast = Math.max(seen, behind) / Math.min(seen, behind);
            found[text] = Math.min(contrast, found[text] ?? Infinity);
        }
    }
    return found;
}"""


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """Yield the address of the notebook in a JupyterLab whose kernel is this Python."""
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    notebook.cells[-1:-1] = [nbformat.v4.new_code_cell(source) for source in _MORE]
    work = folder / "work"
    work.mkdir()
    nbformat.write(notebook, work / _NOTEBOOK.name)
    kernel = {"argv": _KERNEL, "display_name": "Python 3", "language": "python"}
    written = {folder / "data" / "kernels" / "python3" / "kernel.json": kernel}
    for name, settings in _SETTINGS.items():
        file = f"{name}.jupyterlab-settings"
        written[folder / "config" / "lab" / "user-settings" / "@jupyterlab" / file] = settings
    for path, content in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    (port,) = free_ports(1)
    options = ("--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}")
    access = ("--IdentityProvider.token=", f"--ServerApp.root_dir={work}")
    variables = {f"JUPYTER_{name.upper()}_DIR": name for name in ("config", "data", "runtime")}
    # The path comes before the kernels of the environment itself.
    variables |= {"JUPYTER_PATH": "data", "IPYTHONDIR": "ipython", "HOME": "home"}
    with (folder / "lab.log").open("w") as log:
        process = subprocess.Popen(
            [str(environment("jupyterlab")), "-m", "jupyterlab", *options, *access],
            env=os.environ | {name: str(folder / each) for name, each in variables.items()},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for_port(process, port)
            yield f"http://127.0.0.1:{port}/lab/tree/{_NOTEBOOK.name}"
        finally:
            process.terminate()
            process.wait()


def run_all(page: Page) -> list[Locator]:
    """Run all cells; return their outputs that are HTML."""
    expect(page.get_by_role("button", name="Python 3 | Idle")).to_be_visible(
        timeout=_SECONDS * 1000
    )
    page.get_by_role("menuitem", name="Run").click()
    page.get_by_text("Run All Cells", exact=True).click()
    cells = page.locator(".jp-CodeCell")
    numbers = page.locator(".jp-CodeCell .jp-InputPrompt").filter(has_text="]:")
    last = page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output")
    expect(last).to_have_text("degraded ['stale']\nTrue\n", timeout=_SECONDS * 1000)
    expect(numbers).to_have_text([f"[{n + 1}]:" for n in range(cells.count())])
    return page.locator(_HTML).all()


def contrasts(page: Page) -> dict[str, float]:
    """Return the contrast of each text of the outputs, as WCAG computes it."""
    found: dict[str, float] = page.evaluate(_CONTRASTS, _HTML)
    return found


def test_outputs_can_be_read_in_both_themes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    problems: list[str] = []
    pictures: Path | None = request.config.getoption("--pictures")
    with jupyterlab(tmp_path) as url, running_chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, locale="en-GB")
        page.on(
            "console",
            lambda said: problems.append(said.text) if said.type == "error" else None,
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        outputs = run_all(page)
        for summary in page.locator(".jp-OutputArea-output summary").all():
            summary.click()
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            is_light = str(theme == "light").lower()
            expect(page.locator("body")).to_have_attribute("data-jp-theme-light", is_light)
            for number, (output, said) in enumerate(zip(outputs, _SAID, strict=True)):
                output.scroll_into_view_if_needed()
                expect(output).to_be_visible()
                expect(output).to_contain_text(said)
                expect(output.locator("table").first).to_be_visible()
                if pictures is not None:
                    output.screenshot(path=pictures / f"jupyterlab-{number}-{theme}.png")
            seen = contrasts(page)
            assert len(seen) > _LEAST_TEXTS
            assert {text: ratio for text, ratio in seen.items() if ratio < _READABLE} == {}
    assert problems == []
