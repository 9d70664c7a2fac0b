"""One run of Schemathesis: examples, boundary values, random data and chains of linked requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import schemathesis
from hypothesis import strategies as st
from schemathesis.engine import events, from_schema

from dev.fuzz.shop import KEY, PARAMS
from headwater.model.events import NDJSON_TYPES

PHASES = ("examples", "coverage", "fuzzing", "stateful")

# Valid by their schema, and refused because of what only the server knows: an SLA or a budget
# looser than the declared one, arguments, the grammar of filters, cursors, renamed features,
# tables, fields that exclude each other.
_REFUSES_VALID_DATA = (
    "assemble_context",
    "assemble",
    "search_index",
    "run_retriever",
    "list_contexts",
    "find_contexts",
    "read_history",
    "read_windows",
    "list_versions",
    "replay_context",
    "read_past_values",
    "record_external",
    "add_outcome",
    "import_outcomes",
)
_ACCEPTED = ["2xx", "3xx", "401", "403", "404", "409", "413", "429", "5xx"]


class Report(NamedTuple):
    """What was sent, and the responses that contradict the document."""

    cases: int
    phases: Counter[str]
    statuses: Counter[int]
    violations: list[str]

    def __str__(self) -> str:
        sent = ", ".join(f"{number} {phase}" for phase, number in self.phases.items())
        statuses = ", ".join(
            f"{count} x {status}" for status, count in sorted(self.statuses.items())
        )
        return f"{self.cases} cases ({sent}); {statuses}; {len(self.violations)} violations"


def fuzz(url: str, *, seed: int, examples: int, phases: tuple[str, ...] = PHASES) -> Report:
    """Test every operation of a server's document with about so many examples each."""
    schemathesis.openapi.format("printable", st.text(min_size=1).filter(str.isprintable))
    schemathesis.openapi.format("date-time", _TIMES)
    headers = {"X-API-Key": KEY}
    document = httpx.get(f"{url}/openapi.json", headers=headers, timeout=60).json()
    config = schemathesis.Config.from_dict(_settings(url, seed, examples, phases))
    schema = schemathesis.openapi.from_dict(_with_params(document), config=config)
    report = Report(0, Counter(), Counter(), [])
    found: dict[str, str] = {}
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                report = _add(report, event, found)
            case events.NonFatalError() | events.FatalError():
                found.setdefault(str(event), f"{event}")
    return report._replace(violations=list(found.values()))


_TIMES = st.integers(0, 2**30).map(lambda second: datetime.fromtimestamp(second, UTC).isoformat())
"""Times that no route refuses: a valid time may be too far in the future for an event."""


def _with_params(document: dict[str, Any]) -> dict[str, Any]:
    """Add to the document what its reader knows of the served features file.

    A live tail is left out: its response does not end.
    """
    del document["paths"]["/v1/events/tail"]
    schemas = document["components"]["schemas"]
    for name in ("AssembleBody", "AssembleNamedBody"):
        schemas[name]["properties"]["params"] = PARAMS
        schemas[name]["required"] = [*schemas[name].get("required", ()), "params"]
    # Schemathesis does not know `contentEncoding`.
    schemas["Blob"]["properties"]["content"]["pattern"] = "^([A-Za-z0-9+/]{4})*$"
    return document


def _settings(url: str, seed: int, examples: int, phases: tuple[str, ...]) -> dict[str, object]:
    return {
        "seed": seed,
        "base-url": url,
        "headers": {"X-API-Key": KEY},
        "suppress-health-check": ["all"],
        "request-timeout": 60,
        "generation": {"max-examples": examples, "no-shrink": True},
        "phases": {name: {"enabled": name in phases} for name in PHASES},
        "checks": {"positive_data_acceptance": {"expected-statuses": _ACCEPTED}},
        "continue-on-failure": True,
    }


def _is_refused_by_state(
    check: str, definition: Mapping[str, Any], response: schemathesis.Response | None
) -> bool:
    """Return whether valid data was refused for a reason that the document cannot say.

    Administrators are refused by the state of the store, too. A response that names a field is
    right only for the arguments of a declared function: other fields are as the document says.
    """
    if check != "positive_data_acceptance" or response is None or response.status_code != 422:
        return False
    by_state = definition["operationId"] in _REFUSES_VALID_DATA or definition["x-scope"] == "admin"
    field: str = response.json().get("field", "params")
    return by_state and field.startswith("params")


def _is_slowed_down(check: str, response: schemathesis.Response | None) -> bool:
    """Return whether a request without a valid key was refused with 429 in place of 401."""
    return check == "ignored_auth" and response is not None and response.status_code == 429


@schemathesis.hook
def filter_case(_: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Leave out an entity without its id: OpenAPI cannot let a parameter require another one."""
    return "entity" not in (case.query or {}) or "entity_id" in (case.query or {})


@schemathesis.serializer(*NDJSON_TYPES)
def _lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Encode a batch as JSON lines; in place of a batch, send a line that is not an event.

    An empty batch has no form as lines, so an event is sent.
    """
    items = value if isinstance(value, list) else [[value]]
    items = items or [{"entity_id": "ada", "event_type": "purchase"}]
    return "\n".join(map(json.dumps, items)).encode()


def _add(report: Report, event: events.ScenarioFinished, found: dict[str, str]) -> Report:
    recorder = event.recorder
    report.phases[str(event.phase.value)] += len(recorder.interactions)
    for interaction in recorder.interactions.values():
        if interaction.response is not None:
            report.statuses[interaction.response.status_code] += 1
    for case_id, checks in recorder.checks.items():
        response = recorder.interactions[case_id].response
        for check in checks:
            operation = recorder.cases[case_id].value.operation
            is_right = _is_slowed_down(check.name, response) or _is_refused_by_state(
                check.name, operation.definition.raw, response
            )
            if check.failure_info is not None and not is_right:
                failure = check.failure_info.failure
                key = f"{operation.label}: {check.name}: {failure.title}"
                body = b"" if response is None else response.content
                shown = body[:500].decode(errors="replace")
                sample = check.failure_info.code_sample
                found.setdefault(key, f"{key}\n{failure.message}\n{sample}\n{shown}")
    return report._replace(cases=report.cases + len(recorder.interactions))
