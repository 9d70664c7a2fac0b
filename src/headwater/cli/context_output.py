"""Text output of `headwater context`: traces, lists, verification reports and diffs."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from shlex import quote

import typer
from msgspec import UNSET

from headwater.cli.output import (
    cell_text,
    note,
    pluralize,
    print_facts,
    print_table,
    score_text,
    second_text,
    span_text,
)
from headwater.core.json_values import plain
from headwater.messages.texts import part_text
from headwater.model.admin import OUTCOMES
from headwater.model.contexts import (
    ContextDiff,
    ContextPage,
    FeatureSide,
    ItemDiff,
    ItemSide,
    ResultSide,
)
from headwater.model.lineage import ContextTrace, ItemTrace, PastContext
from headwater.model.outcomes import Outcome
from headwater.model.values import WindowRead
from headwater.records.record import Record, Redaction

_SHORT = 60
TEXT = "/output/content"
"""The pointer of a context's text in its record."""


def print_page(page: ContextPage) -> None:
    """Print recorded contexts as a table, and how to get the next page."""
    # JSON has all digits of the times.
    rows = [
        (c.context_id, second_text(c.created_at), c.name, c.freshness_status) for c in page.contexts
    ]
    columns = ("context id", "created at", "name", "freshness")
    print_table(columns, rows, unwrapped=2, empty="No contexts.")
    if page.next_cursor:
        note(f"There are more; pass --cursor {page.next_cursor} for the next page.")


def print_redaction(
    record: Record, redacted: str, remaining: Sequence[str], inner: Mapping[str, Sequence[str]]
) -> None:
    """Print the redacted values, and where else they occur."""
    typer.echo(f"Redacted {redacted} of {record.context_id}.")
    typer.echo(f"The record hash is unchanged: {record.record_hash}")
    if remaining:
        note(
            f"The value also occurs at {' '.join(map(quote, remaining))}. Redact these pointers "
            "now: --everywhere can no longer find them, because the value is gone."
        )
    for name, places in inner.items():
        *_, outcome_id = name.rpartition(OUTCOMES)
        where = f"the inner context {name}"
        remedy = "It has a separate record; redact these, too."
        if outcome_id != name:
            where = f"outcome {outcome_id}"
            remedy = f"`headwater context redact-outcome {outcome_id}` redacts them."
        note(f"The value also occurs in {where}, at {' '.join(map(quote, places))}. {remedy}")
    note(
        "Other records, events, dead letters and features are not searched; "
        "`headwater context find` finds the contexts of an entity."
    )


def print_trace(trace: ContextTrace, redactions: Sequence[Redaction]) -> None:
    """Print a context: facts, inputs, items, reads, redactions and text."""
    print_facts(_facts(trace))
    _print_rows("Inputs", ("name", "value"), trace.inputs.items())
    _print_rows("Interaction", ("name", "value"), (trace.interaction_ref or {}).items())
    _print_items(trace)
    for warning in trace.warnings:
        typer.echo(f"Warning: {warning}.")
    _print_features(trace)
    _print_searches(trace)
    _print_rows(
        "Contexts",
        ("context id", "name", "record hash"),
        [(c.context_id, c.name, c.record_hash) for c in trace.contexts],
    )
    _print_rows(
        "Not fresh",
        ("kind", "name", "used by", "entity id", "reason", "age", "SLA"),
        [
            (
                v.kind,
                v.name,
                v.used_by,
                v.entity_id,
                v.reason,
                *map(span_text, (v.age_ms, v.sla_ms)),
            )
            for v in trace.freshness_violations
        ],
    )
    # Redacted values are listed with a reason.
    left_out = len(set(trace.withheld) - set(trace.redacted))
    if left_out:
        count = pluralize(left_out, "text or value", "texts and values")
        typer.echo(f"\nWithheld\n{count} not included in this copy")
    _print_rows(
        "Redacted",
        ("value", "redacted at", "by", "reason"),
        [(r.pointer, r.redacted_at, r.by, r.reason) for r in redactions],
    )
    missing = f"({missing_reason(trace)}; its hash is {trace.content_hash})"
    typer.echo(f"\nText\n{missing if trace.content is None else trace.content}")
    _print_shown("Outcomes", OUTCOME_COLUMNS, [*map(outcome_row, trace.outcomes)])


OUTCOME_COLUMNS = (
    *("at", "kind", "said", "explanation", "judge", "actor"),
    *("model", "predicted", "billed", "output", "cost", "outcome id"),
)


def outcome_row(outcome: Outcome) -> Sequence[object]:
    """Return an outcome as a row of `OUTCOME_COLUMNS`."""
    response, score = outcome.response, outcome.score
    usage = None if response is None else response.usage
    return (
        second_text(outcome.at),
        outcome.kind,
        _line(_said(outcome)),
        None if score is None else _line(score.explanation),
        outcome.judge,
        outcome.actor,
        None if response is None else response.model or response.model_asked,
        outcome.predicted,
        None if usage is None else usage.input,
        None if usage is None else usage.output,
        dollars(outcome.cost_nano_usd),
        outcome.outcome_id,
    )


def _said(outcome: Outcome) -> str | None:
    """Return what an outcome says, as text; None if it is withheld."""
    if outcome.score is not None:
        score = outcome.score
        given = [score.value, score.label, score.flag, score.text]
        values = [cell_text(value) for value in given if value is not None]
        return f"{score.name} = {values[0] if values else 'withheld'}"
    response = outcome.response
    if response is None or response.error_type is not None:
        return None if response is None else response.error_type
    parts = [part_text(part) for message in response.messages for part in message.parts]
    return "\n".join(parts) or None


def missing_reason(context: ContextTrace | PastContext) -> str:
    """Return why a context has no text."""
    return "redacted" if TEXT in context.redacted else "withheld"


_GRADES = {"exact": "exact", "provider": "counted by the provider", "estimate": "estimated"}


def _facts(trace: ContextTrace) -> dict[str, object]:
    margin = f", {trace.margin_percent} % added" if trace.margin_percent else ""
    accuracy = _GRADES[trace.count.grade] + margin
    budget = "without a budget" if trace.max_tokens is None else f"of {trace.max_tokens}"
    sla_ms = trace.freshness_sla_ms
    sla = "not checked: no SLA" if sla_ms is None else f"SLA {span_text(sla_ms)}"
    return {
        "context": trace.name if trace.version is None else f"{trace.name} {trace.version}",
        "context id": trace.context_id,
        "record hash": trace.record_hash,
        "content hash": trace.content_hash,
        "created at": trace.created_at,
        "environment": trace.environment,
        "assembled by": trace.caller,
        "signed by": trace.signed_by,
        "model": trace.model,
        "tokens": f"{trace.tokens} {budget} ({trace.count.source}, {accuracy})",
        "reserved": None if trace.max_output is None else f"{trace.max_output} for the answer",
        "cost": dollars(trace.cost_nano_usd),
        "freshness": f"{trace.freshness_status} ({sla}, oldest {span_text(trace.stalest_ms)})",
        "assembly": f"{trace.assembly_ms:g} ms",
        "summary": trace.summary,
    }


def dollars(nano_usd: int | None) -> str | None:
    """Return a cost in US dollars."""
    return None if nano_usd is None else f"{Decimal(nano_usd).scaleb(-9).normalize():f} USD"


def _print_items(trace: ContextTrace) -> None:
    rows = [
        (
            position,
            *_message_cells(item),
            item.decision,
            item.priority,
            item.tokens,
            item.source_kind
            + ("" if item.source_ref is None else f" {_line(cell_text(plain(item.source_ref)))}"),
            item.section,
            item.why.removeprefix(f"{item.decision}, because "),
            _line(item.content),
        )
        for position, item in enumerate(trace.items)
    ]
    columns = ("decision", "priority", "tokens", "source", "section", "why", "text")
    has_messages = any(item.message is not None for item in trace.items)
    of_messages = ("message", "role") if has_messages else ()
    _print_shown("Items", ("position", *of_messages, *columns), rows)


def _message_cells(item: ItemTrace) -> tuple[object, ...]:
    message = item.message
    return () if message is None else (message.number, message.role or message.kind)


def _print_features(trace: ContextTrace) -> None:
    _print_rows(
        "Features",
        ("feature", "entity id", "value", "source", "rule", "age", "as of", "fresh"),
        [
            (name, f.entity_id, f.value, f.source, f.rule, span_text(f.age_ms), f.as_of, f.fresh)
            for read in trace.features
            for name, f in [
                (read.feature if read.used else f"{read.feature} (dropped)", read),
                *((f"  {inner.feature}", inner) for inner in read.inputs),
            ]
        ],
    )
    _print_rows(
        "Windows",
        ("feature", "entity id", "of", "window", "read at", "last fold", "error"),
        [
            (
                value.feature,
                value.entity_id,
                f"{window.aggregate} of {window.family}",
                _window(window),
                window.read_at,
                window.last_fold,
                window.relative_error,
            )
            for read in trace.features
            for value in (read, *read.inputs)
            if (window := value.window) is not UNSET
        ],
    )


def _print_searches(trace: ContextTrace) -> None:
    _print_rows(
        "Retrievers",
        ("search", "retriever", "arguments", "found", "latency", "cache", "age"),
        [
            (
                search,
                r.retriever,
                r.arguments,
                "failed" if r.failed else r.count,
                f"{r.latency_ms:g} ms",
                "hit" if r.cache_hit else "miss",
                span_text(r.age_ms),
            )
            for search, r in enumerate(trace.retrievers)
        ],
    )
    _print_rows(
        "Indexes",
        ("search", "index", "version", "embedder", "mode", "query", "filters"),
        [
            (search, r.index, r.index_version, r.embedder, r.mode, _line(r.query), r.filters)
            for search, r in enumerate(trace.retrievers)
            if r.index is not None
        ],
    )
    _print_shown(
        "Found",
        ("search", "rank", "id", "score", "document", "position", "age", "text"),
        [
            (
                search,
                rank,
                result.id,
                score_text(result.score),
                result.document,
                result.position,
                None if result.age_ms is None else span_text(result.age_ms),
                _line(result.content),
            )
            for search, r in enumerate(trace.retrievers)
            for rank, result in enumerate(r.results, 1)
        ],
    )


def print_diff(diff: ContextDiff) -> None:
    """Print the differences between two contexts; equal parts are left out."""
    print_facts(
        {
            "before": diff.before,
            "after": diff.after,
            "text": "equal" if diff.same_content else "different",
            "tokens": f"{diff.tokens_before} → {diff.tokens_after} ({diff.tokens_delta:+d})",
        }
    )
    columns = ("name", "change", "before", "after")
    for title, values in (
        ("Inputs", diff.inputs),
        ("Interaction", diff.interaction_ref),
        ("Rules", diff.rules),
    ):
        _print_rows(title, columns, [(v.name, v.change, v.before, v.after) for v in values])
    _print_rows(
        "Items",
        ("item", "change", "before", "after", "tokens"),
        [
            (i.identity, _item_change(i), _side(i.before), _side(i.after), f"{i.tokens_delta:+d}")
            for i in diff.items
            if _item_change(i) != "same"
        ],
    )
    _print_rows(
        "Features",
        ("feature", "entity id", "change", "before", "after"),
        [
            (
                f.feature,
                f.entity_id,
                "same value" if f.change == "same" else f.change,
                _side(f.before),
                _side(f.after),
            )
            for f in diff.features
            if f.change != "same" or f.before != f.after
        ],
    )
    _print_rows(
        "Found",
        ("retriever", "id", "change", "before", "after"),
        [
            (r.retriever, r.id, r.change, _side(r.before), _side(r.after))
            for r in diff.results
            if r.change != "same"
        ],
    )
    if diff.text is None and not diff.same_content:
        typer.echo("\nThe texts cannot be compared: one of them is withheld.")
    elif diff.text:
        typer.echo(f"\nText\n{diff.text}")


def _item_change(item: ItemDiff) -> str:
    """Return how an item changed; an item with equal text may have moved."""
    before, after = item.before, item.after
    moved = before and after and before.place != after.place
    return "moved" if moved and item.change == "same" else item.change


def _side(side: ItemSide | FeatureSide | ResultSide | None) -> str | None:
    """Return an item, a feature or a search result of one of the contexts."""
    match side:
        case ItemSide():
            return f"{side.decision} at {side.place}, {pluralize(side.emitted_tokens, 'token')}"
        case FeatureSide():
            of = "" if side.window is UNSET else f" of {_window(side.window)}"
            return f"{cell_text(side.value)}{of} ({side.source}, age {span_text(side.age_ms)})"
        case ResultSide():
            return f"rank {side.rank}, score {cell_text(score_text(side.score))}"
    return None


def _window(window: WindowRead) -> str:
    return f"{span_text(window.span_us // 1_000)} in hops of {span_text(window.hop_us // 1_000)}"


def _print_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table under a title, or nothing if it has no rows."""
    listed = list(rows)
    if listed:
        typer.echo(f"\n{title}")
        print_table(columns, listed)


def _print_shown(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table without the columns that are empty in all rows."""
    shown = [c for c in range(len(columns)) if any(row[c] is not None for row in rows)]
    _print_rows(title, [columns[c] for c in shown], [[row[c] for c in shown] for row in rows])


def _line(text: str | None) -> str | None:
    """Return the beginning of a text on one line."""
    if text is None:
        return None
    line = " ".join(text[: 2 * _SHORT].split())
    return line if len(line) <= _SHORT and len(text) <= 2 * _SHORT else f"{line[: _SHORT - 1]}…"
