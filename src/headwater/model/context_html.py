"""A context as HTML, which notebooks show: messages, budget, freshness, and the dropped items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from headwater.core import html
from headwater.core.durations import format_duration
from headwater.messages.parts import Blob, Message, Part, Reasoning, TextPart, ToolCall, Uri

if TYPE_CHECKING:
    from headwater.model.lineage import ContextFacts, ContextLineage, FreshnessViolation

_MOST_CHARACTERS = 20_000
_MOST_MESSAGES = 50
_MOST_ITEMS = 50
_MESSAGE = "border-left:3px solid rgba(128,128,128,.5);padding:0 0 0 10px;margin:6px 0"


def context_html(context: ContextFacts, lineage: ContextLineage) -> str:
    """Return a context as escaped HTML."""
    return html.box(
        html.heading(context.name, *_notes(context, lineage)),
        html.faint(f"{context.context_id} of {context.created_at.isoformat(' ', 'seconds')}"),
        "".join(f"<div>⚠ {html.text(_violation(v))}</div>" for v in context.freshness_violations),
        *_content(context),
        *_decisions(lineage),
        *_reads(lineage),
    )


def _notes(context: ContextFacts, lineage: ContextLineage) -> Iterator[str]:
    if lineage.max_tokens:
        meter = html.meter(context.tokens, lineage.max_tokens)
        yield f"{meter} {context.tokens} of {lineage.max_tokens} tokens"
    else:
        yield f"{context.tokens} tokens"
    if context.cost_nano_usd is not None:
        yield f"{context.cost_nano_usd / 1e9:.6f} USD"
    if context.model is not None:
        yield html.text(context.model)
    yield html.text(f"freshness {context.freshness_status}")


def _violation(violation: FreshnessViolation) -> str:
    age = "" if violation.age_ms is None else f", {format_duration(violation.age_ms)} old"
    return f"{violation.name}: {violation.reason}{age}"


def _content(context: ContextFacts) -> Iterator[str]:
    if context.content is None:
        yield html.block(f"(withheld: {context.content_hash})", _MOST_CHARACTERS)
    elif context.request is None:
        yield html.block(context.content, _MOST_CHARACTERS)
    else:
        messages = context.request.messages
        yield from map(_message, messages[:_MOST_MESSAGES])
        if len(messages) > _MOST_MESSAGES:
            yield html.faint(f"… {len(messages) - _MOST_MESSAGES} more messages")
        if context.request.tools:
            names = ", ".join(tool.name for tool in context.request.tools)
            yield f"<div>{html.faint(f'tools: {names}')}</div>"


def _message(message: Message) -> str:
    body = html.block("".join(map(_part, message.parts)), _MOST_CHARACTERS)
    return f'<div style="{_MESSAGE}"><b>{html.text(message.role)}</b>{body}</div>'


def _part(part: Part) -> str:
    match part:
        case TextPart():
            return part.content
        case ToolCall():
            return f"[call of {part.name} {_json(part.arguments)}]\n"
        case Blob():
            return f"[{part.mime_type}, {len(part.content):,} bytes]\n"
        case Uri():
            return f"[image {part.uri}]\n"
        case Reasoning():
            return f"[reasoning {part.content}]\n"
    return f"[result {_json(part.response)}]\n"


def _json(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _decisions(lineage: ContextLineage) -> Iterator[str]:
    """Yield the items that are not in the context as they were offered."""
    changed = [item for item in lineage.items if item.decision != "kept"]
    if changed:
        columns = ["decision", "reason", "section", "priority", "tokens", "emitted_tokens"]
        rows = [[getattr(item, name) for name in columns] for item in changed[:_MOST_ITEMS]]
        summary = f"dropped: {lineage.items_dropped}, truncated: {lineage.items_truncated}"
        yield html.details(f"{summary}, of {lineage.items_provided}", html.table(columns, rows))


def _reads(lineage: ContextLineage) -> Iterator[str]:
    if lineage.features:
        rows = [
            [read.feature, read.entity_id, read.value, _age(read.age_ms), read.fresh]
            for read in lineage.features[:_MOST_ITEMS]
        ]
        columns = ["feature", "entity_id", "value", "age", "fresh"]
        yield html.details(f"features read: {len(lineage.features)}", html.table(columns, rows))
    if lineage.retrievers:
        rows = [
            [call.retriever, call.query, call.count, _age(call.age_ms), call.fresh]
            for call in lineage.retrievers[:_MOST_ITEMS]
        ]
        columns = ["retriever", "query", "results", "age", "fresh"]
        yield html.details(f"searches: {len(lineage.retrievers)}", html.table(columns, rows))


def _age(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_duration(milliseconds)
