"""Checks of the models of contexts: how exactly their tokens are counted, and the billed tokens."""

from __future__ import annotations

from datetime import date, timedelta

from headwater.contexts.counters import error_percent
from headwater.core.models import ModelTable
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import ConfigError, HeadwaterError
from headwater.messages.chat_templates import load_chat_template
from headwater.model.health import Finding, Findings
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

_OLD = timedelta(days=183)
_MODELS_SHOWN = 20
_CHECK = "tokens of models"


def add_models(settings: Settings, registry: Registry, today: date, report: Findings) -> None:
    """Add the models of declared contexts that are only estimated, and a table that is old."""
    table = ModelTable(settings.tokens.models)
    found = {
        context.model: table.find(context.model)
        for context in registry.contexts.values()
        if context.model and context.count == "local"
    }
    estimated = sorted(name for name, model in found.items() if not model.encoding)
    estimated = [name for name in estimated if found[name].folder is None]
    if estimated:
        report.unknown(
            _CHECK,
            f"{', '.join(estimated)}: counted by an estimate, with a margin",
            'set tokens.models to the encoding or the folder of the model, or declare count="'
            'provider"',
            "tokens.models",
        )
    elif found:
        report.ok(_CHECK, f"counted exactly for {len(found)} models of contexts", "tokens.models")
    for name, model in found.items():
        try:
            if model.folder is not None:
                load_chat_template(model.folder)
        except ConfigError as error:
            what, _, remedy = str(error).partition("; ")
            report.error(_CHECK, f"{name}: {what}", remedy, "tokens.models")
    age = today - table.as_of
    if age > _OLD:
        report.warning(
            "table of models",
            f"it is of {table.as_of}, {age.days} days old, and may miss newer models and rules",
            "update headwater, or name newer models in tokens.models",
        )
    else:
        report.ok("table of models", f"version {table.version} of {table.as_of}")


async def measured(store: FeatureStore) -> list[Finding]:
    """Return the models that were billed for more tokens than predicted."""
    report = Findings("workload", "answers of models")
    try:
        records = (await runtime_of(store).open()).backends.records
        models = await records.measured_models()
        for model in models[:_MODELS_SHOWN]:
            pairs = [pair for pair in await records.measured(model) if min(pair) > 0]
            more = sum(billed > predicted for predicted, billed in pairs)
            if not more:
                report.ok("billed tokens", f"{model}: never more than predicted in {len(pairs)}")
                continue
            report.warning(
                "billed tokens",
                f"{model}: more than predicted for {more} of {len(pairs)} answers, by up to "
                f"{error_percent(pairs)} % for 99 of 100",
                "its margin follows by itself; set tokens.models if the model is of another "
                'family, or declare count="provider"',
                model,
            )
    except HeadwaterError as error:
        report.unknown("billed tokens", str(error), "see the message")
    return report.all
