"""Declarations as HTML, which notebooks show."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from headwater.core import html
from headwater.core.durations import format_duration

if TYPE_CHECKING:
    from headwater.declarations.features import FeatureDef
    from headwater.declarations.registry import Registry

_MOST_FEATURES = 100


def feature_html(feature: FeatureDef) -> str:
    """Return a feature and its options as escaped HTML."""
    window = feature.window
    return html.box(
        html.heading(feature.name, html.faint(f"{feature.mode} feature of {feature.entity.name}")),
        f"<div>{html.text(feature.description)}</div>" if feature.description else "",
        html.facts(
            {
                "type": feature.codec.expected,
                "unit": feature.unit,
                "triggers": ", ".join(feature.triggers),
                "window": window and f"{window.aggregate.text} of {window.window.name}",
                "refresh": feature.refresh and feature.refresh.text,
                "template": feature.template and feature.template.text,
                "sql": feature.sql,
                "default": feature.default,
                "ttl": _span(feature.ttl),
                "freshness SLA": _span(feature.freshness_sla),
                "owner": feature.owner,
                "tags": ", ".join(feature.tags),
                "declared at": str(feature.location),
            }
        ),
    )


def store_html(title: str, registry: Registry) -> str:
    """Return the declarations of a store as escaped HTML."""
    features = list(registry.features.values())
    columns = ["feature", "entity", "type", "mode", "triggers", "unit", "owner", "description"]
    rows = [
        [
            each.name,
            each.entity.name,
            each.codec.expected,
            each.mode,
            ", ".join(each.triggers),
            each.unit,
            each.owner,
            each.description.partition("\n")[0],
        ]
        for each in features[:_MOST_FEATURES]
    ]
    hidden = len(features) - len(rows)
    return html.box(
        html.heading(title),
        html.table(columns, rows) if rows else "",
        html.faint(f"… {hidden} more features") if hidden else "",
        html.facts(
            {
                "indexes": _names(registry.all_indexes()),
                "retrievers": _names(registry.retrievers),
                "contexts": _names(registry.contexts),
            }
        ),
    )


def _names(declared: Iterable[str]) -> str:
    return ", ".join(sorted(declared))


def _span(span: timedelta | None) -> str | None:
    return None if span is None else format_duration(span // timedelta(milliseconds=1))
