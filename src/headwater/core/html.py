"""HTML that notebooks show: escaped, without scripts, links or files, for light and dark pages.

All styles are attributes, because notebooks that are opened again drop style sheets. Colours are
those of the page, and greys that can be seen on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

import msgspec

from headwater.core.codec import encode_custom
from headwater.core.json_values import plain
from headwater.core.short_repr import printable_lines

MOST_CHARACTERS = 300
"""Of a cell."""
_MOST_COLUMNS = 30

_LINE = "rgba(128,128,128,.35)"
_CELL = (
    f"padding:3px 12px 3px 4px;border:0;border-bottom:1px solid {_LINE};background:none;"
    "vertical-align:top;max-width:48ch;overflow-wrap:break-word;"
)
_SHORT = 40
_IN_ONE_LINE = "white-space:pre;"
_WRAPPED = "white-space:pre-wrap;min-width:32ch;"
_FAINT = "opacity:.65"
_TABLE = "border-collapse:collapse;border:0;margin:4px 0;font-variant-numeric:tabular-nums"


def box(*parts: str) -> str:
    """Return parts below each other; parts that are too wide can be scrolled."""
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(parts)}</div>'


def heading(title: str, *notes: str) -> str:
    """Return a title, and notes about it in the same line."""
    rest = "".join(f" · {note}" for note in notes)
    return f'<div style="margin:4px 0"><b>{escape(title)}</b>{rest}</div>'


def text(value: object) -> str:
    """Return a text, escaped."""
    return escape(printable_lines(str(value)))


def faint(value: object) -> str:
    """Return a text that matters less."""
    return f'<span style="{_FAINT}">{text(value)}</span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under headings; only the first columns of very many."""
    shown = columns[:_MOST_COLUMNS]
    head = "".join(_cell("th", text(name), f"text-align:left;{_IN_ONE_LINE}") for name in shown)
    body = "".join(f"<tr>{''.join(map(_value_cell, row[:_MOST_COLUMNS]))}</tr>" for row in rows)
    hidden = len(columns) - len(shown)
    rest = faint(f"… {hidden} more columns") if hidden else ""
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}'
    )


def facts(values: Mapping[str, object]) -> str:
    """Return named values, one for each line, except empty ones."""
    rows = "".join(
        f"<tr>{_cell('th', text(name), f'text-align:left;font-weight:normal;{_FAINT};')}"
        f"{_value_cell(value, is_left=True)}</tr>"
        for name, value in values.items()
        if value not in (None, "", (), [])
    )
    return f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>'


def details(summary: str, body: str) -> str:
    """Return a part that readers open."""
    return (
        '<details style="margin:4px 0"><summary style="cursor:pointer">'
        f"{escape(summary)}</summary>{body}</details>"
    )


def block(value: str, most: int) -> str:
    """Return the beginning of a long text, with its line ends."""
    rest = faint(f"\n… {len(value) - most:,} more characters") if len(value) > most else ""
    return (
        '<pre style="white-space:pre-wrap;overflow-wrap:anywhere;margin:2px 0;background:none">'
        f"{text(value[:most])}{rest}</pre>"
    )


def meter(done: int, total: int) -> str:
    """Return a bar that shows a part of a whole."""
    percent = min(100, round(100 * done / total)) if total else 100
    outer = f"display:inline-block;width:12em;height:.7em;background:{_LINE};border-radius:3px"
    inner = f"display:block;width:{percent}%;height:100%;background:#3a9d78;border-radius:3px"
    return f'<span style="{outer}"><span style="{inner}"></span></span>'


def cell_text(value: object) -> str:
    """Return a value as a text that is not too long."""
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    if not isinstance(value, str):
        builtin = msgspec.to_builtins(plain(value), enc_hook=encode_custom)
        value = builtin if isinstance(builtin, str) else msgspec.json.encode(builtin).decode()
    return value if len(value) <= MOST_CHARACTERS else f"{value[:MOST_CHARACTERS]}…"


def _value_cell(value: Any, *, is_left: bool = False) -> str:
    if value is None:
        return _cell("td", faint("–"), "text-align:left;")
    content = cell_text(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not is_left
    wrapping = _WRAPPED if len(content) > _SHORT else _IN_ONE_LINE
    alignment = f"text-align:{'right' if is_number else 'left'};"
    return _cell("td", text(content), alignment + wrapping)


def _cell(tag: str, content: str, style: str) -> str:
    return f'<{tag} style="{_CELL}{style}">{content}</{tag}>'
