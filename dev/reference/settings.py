"""The settings: variables, defaults and meanings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from dev.reference.tables import NONE, code, table
from headwater.settings.schema import SETTINGS, Settings

_DEFAULTS = Settings()


def subjects() -> Collection[str]:
    """Return the groups of settings; a setting outside of the groups counts as one."""
    return dict.fromkeys(map(_group, SETTINGS))


def settings(groups: Sequence[str]) -> Iterator[str]:
    """Yield a table of these groups."""
    return table(
        ("setting", "variable", "default", "meaning"),
        (
            (
                code(setting.path),
                code(setting.variable) if setting.variable else NONE,
                _written(setting.shown(setting.of(_DEFAULTS))),
                setting.description,
            )
            for group in groups
            for setting in SETTINGS.values()
            if _group(setting.path) == group
        ),
    )


def _group(path: str) -> str:
    return path.partition(".")[0]


def _written(value: object) -> str:
    if not value and isinstance(value, str | dict):
        return NONE
    return code(value if isinstance(value, str) else msgspec.json.encode(value).decode())
