"""Programs of steps: running one, and finding the steps without which it does not fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

from headwater.settings.schema import Settings

Step = TypeVar("Step")

Open = Callable[[], AbstractContextManager[Settings]]
"""Returns the settings of an empty store."""

Run = Callable[[Sequence[Step], Settings], Awaitable[None]]
"""Runs a program in an empty store; everything that is observed must agree."""


def failure(program: Sequence[Step], new_store: Open, run: Run[Step]) -> BaseException | None:
    """Return why a program fails; None if it does not."""
    with new_store() as chosen:
        try:
            asyncio.run(_awaited(run(program, chosen)))
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all are failures
            return error
    return None


async def _awaited(running: Awaitable[None]) -> None:
    await running


def check(program: Sequence[Step], new_store: Open, run: Run[Step], hint: str = "") -> None:
    """Run a program; if it fails, leave out the steps without which it fails as well."""
    found = failure(program, new_store, run)
    if found is None:
        return
    needed = list(program)
    for step in program:
        rest = [each for each in needed if each is not step]
        if rest and (other := failure(rest, new_store, run)) is not None:
            needed, found = rest, other
    lines = "".join(f"    {step!r},\n" for step in needed)
    raise AssertionError(f"{found}\n{hint}with the program [\n{lines}]") from found
