"""Contexts as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_BAR = "display:inline-block;width:12em;height:.7em;background:#ddd;vertical-align:middle"


def context_html(
    *,
    title: str,
    content: str,
    tokens: int,
    max_tokens: int | None,
    freshness: str,
    violations: Sequence[str],
) -> str:
    """Return the text of a context with its tokens and its freshness as escaped HTML."""
    counted = f"{tokens} tokens"
    if max_tokens:
        percent = min(100, round(100 * tokens / max_tokens))
        filled = f"display:block;width:{percent}%;height:100%;background:#4a8"
        bar = f'<span style="{_BAR}"><span style="{filled}"></span></span>'
        counted = f"{bar} {tokens} of {max_tokens} tokens"
    stale = "".join(f"<li>{escape(violation)}</li>" for violation in violations)
    return (
        f"<div><b>{escape(title)}</b> · {counted} · {escape(freshness)}"
        f"{f'<ul>{stale}</ul>' if stale else ''}"
        f'<pre style="white-space:pre-wrap">{escape(content)}</pre></div>'
    )
