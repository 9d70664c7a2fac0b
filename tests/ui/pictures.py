"""Pictures of the states that the tests reach, for people to look at (`make ui-pictures`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

Theme = Literal["light", "dark"]

THEMES: tuple[Theme, ...] = ("light", "dark")


class Pictures:
    """A folder of pictures; without one, none is taken, because each costs a second or so."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def take(self, page: Page, name: str) -> None:
        """Write a picture of what the window shows."""
        if self.folder is not None:
            page.screenshot(path=self.folder / f"{name}.png")

    def take_in_both_themes(self, page: Page, name: str) -> None:
        """Write a picture of the whole page in each theme."""
        if self.folder is None:
            return
        is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            page.screenshot(
                path=self.folder / f"{name}-{theme}.png", animations="disabled", full_page=True
            )
        page.emulate_media(color_scheme="dark" if is_dark else "light")


pictures = Pictures()
"""The folder of this run, from the option ``--pictures``."""
