"""The public names of ``import headwater``, the modules it loads, and its types."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import headwater
import headwater.errors
import headwater.testing
from headwater.model.contexts import Mode
from headwater.model.problems import OnStep

ROOT = Path(__file__).parents[1]

DECORATORS = {"entity", "event", "feature", "retriever", "context"}

LOADS = {"headwater", "msgspec", "uuid_utils"}

# Of the store only the declarations of its verbs.
CLIENT_LOADS = {
    *("client", "core", "declarations", "errors", "messages"),
    *("model", "records", "settings", "store", "windows"),
}
MOST_MODULES_OF_A_CLIENT = 126
MOST_MODULES_OF_A_STORE = 176

LOADED = """
import sys
before = set(sys.modules)
{statement}
tops = {{name.partition(".")[0] for name in set(sys.modules) - before}}
# msgspec looks for typing_extensions and does without.
print(*sorted(tops - sys.stdlib_module_names - {{"typing_extensions"}}))
"""


def test_the_public_names_are_these() -> None:
    assert dir(headwater) == [
        "AuditEntry",
        "AuditPage",
        "AuditReport",
        "BackupReport",
        "Blob",
        "Chunk",
        "ChunkLineage",
        "ConsumerGroup",
        "ConsumerLag",
        "Context",
        "ContextCauses",
        "ContextDiff",
        "ContextHistogram",
        "ContextItem",
        "ContextLineage",
        "ContextPage",
        "ContextTrace",
        "DeadLetter",
        "Document",
        "EntityWindows",
        "Event",
        "EventLoadReport",
        "EventPage",
        "Feature",
        "FeatureLineage",
        "FeatureRow",
        "FeatureStore",
        "FeatureTrial",
        "FeatureValue",
        "ForgetReport",
        "FreshnessSLAError",
        "FreshnessViolation",
        "Graph",
        "HeadwaterError",
        "Health",
        "HistoricalValue",
        "ImportReport",
        "Index",
        "IndexStatus",
        "InputLineage",
        "ItemLineage",
        "LetterGroups",
        "LoadReport",
        "LoggedEvent",
        "MentionPage",
        "Message",
        "ModelRequest",
        "NestedLineage",
        "Outcome",
        "OutcomeImport",
        "OutcomeRecord",
        "Overrides",
        "PastContext",
        "PruneReport",
        "PublishResult",
        "PublishedEvent",
        "Reasoning",
        "RebuildReport",
        "Record",
        "RecordSummary",
        "Replay",
        "Response",
        "RetrieverLineage",
        "Score",
        "ServiceEvent",
        "Settings",
        "SettledLetter",
        "StoredDocument",
        "TextPart",
        "TokenBudgetError",
        "Tool",
        "ToolCall",
        "ToolResult",
        "Uri",
        "Usage",
        "VerificationReport",
        "WindowLevel",
        "WindowRead",
        "WindowTile",
        "WindowValue",
        "Worker",
        "context",
        "create_app",
        "current_context",
        "entity",
        "event",
        "feature",
        "format_duration",
        "parse_duration",
        "retriever",
        "verify_record",
        "wrap",
    ]
    tree = set(re.findall(r"^[│ ├└─]*(\w+Error)\b", headwater.errors.__doc__ or "", re.M))
    public = {
        name
        for name, kind in vars(headwater.errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert public == tree
    assert sorted(headwater.testing.__all__) == ["ManualClock", "ModelServer", "temporary"]


def named(annotation: Any) -> Iterator[Any]:
    """The classes that an annotation names, inside of its containers."""
    if get_args(annotation):
        for part in get_args(annotation):
            yield from named(part)
    elif inspect.isclass(annotation) and annotation.__module__.startswith("headwater."):
        yield annotation


def test_the_results_of_all_verbs_of_the_store_have_public_names() -> None:
    store = headwater.FeatureStore()
    groups = (store, store.bus, store.records, store.dead_letters, store.admin, store.sync)
    verbs = [
        verb
        for kind in (*map(type, groups), headwater.Feature, headwater.Worker)
        for name, verb in inspect.getmembers(kind, inspect.isfunction)
        if name[0] != "_" and name not in DECORATORS
    ]
    # Types that only an open store needs are not in the namespace of the store's modules.
    public = {name: getattr(headwater, name) for name in headwater.__all__}
    public |= {"Mode": Mode, "OnStep": OnStep}
    results = {
        kind.__name__
        for verb in (*verbs, headwater.verify_record)
        for kind in named(get_type_hints(verb, localns=public)["return"])
    }
    assert {"PastContext", "ContextPage", "DeadLetter", "AuditReport"} <= results
    assert results <= set(headwater.__all__)


def test_the_parts_of_a_context_and_its_lineage_have_public_names() -> None:
    kinds: list[Any] = [headwater.Context, headwater.ContextPage]
    for kind in kinds:
        parts = [part for hint in get_type_hints(kind).values() for part in named(hint)]
        kinds += [part for part in parts if part not in kinds]
    assert {kind.__name__ for kind in kinds} <= set(headwater.__all__)


def run(script: str) -> set[str]:
    """The words that a script prints in a separate process."""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100
    )
    return set(result.stdout.split())


def loaded_by(statement: str) -> set[str]:
    """The third-party packages that a statement loads."""
    return run(LOADED.format(statement=statement))


def modules_of(statement: str) -> set[str]:
    """The modules of Headwater that a statement loads, without the name of the package."""
    names = run(f"import sys; {statement}; print(*sys.modules)")
    return {name.removeprefix("headwater.") for name in names if name.startswith("headwater.")}


def packages_of(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_headwater_loads_nothing_but_itself() -> None:
    assert loaded_by("import headwater") == {"headwater"}


def test_using_headwater_loads_no_driver_no_web_framework_and_no_duckdb() -> None:
    assert loaded_by("from headwater import *; FeatureStore()") == LOADS | {"prometheus_client"}


def test_opening_a_store_without_indexes_loads_neither_numpy_nor_duckdb(tmp_path: Path) -> None:
    statement = (
        "import asyncio; from headwater import FeatureStore; "
        f"asyncio.run(FeatureStore(home={str(tmp_path)!r}).open())"
    )
    assert not loaded_by(statement) & {"numpy", "duckdb"}


def test_declaring_features_loads_nothing_that_only_an_open_store_needs() -> None:
    declare = "from headwater import FeatureStore, context, entity, event, feature, retriever"
    assert loaded_by(f"{declare}; FeatureStore()") == LOADS
    opened = "backends.connect", "contexts.assembler", "contexts.recorded", "engine.worker"
    modules = modules_of(declare)
    assert not modules.intersection(opened)
    assert len(modules) <= MOST_MODULES_OF_A_STORE


def test_importing_the_client_loads_the_shared_types_and_nothing_of_a_store() -> None:
    modules = modules_of("import headwater.client")
    store = {name for name in modules if name.startswith("store.")}
    assert all(name.startswith("store.verbs") for name in store)
    assert packages_of(modules) == CLIENT_LOADS
    assert len(modules) <= MOST_MODULES_OF_A_CLIENT


def test_importing_headwater_testing_needs_no_pytest() -> None:
    assert loaded_by("from headwater.testing import *") == LOADS
