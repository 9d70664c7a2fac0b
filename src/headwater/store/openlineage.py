"""OpenLineage events: which history went into which files, for a catalog of data.

They are JSON documents of version 2 of the specification, sent by HTTP or appended to a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from headwater.core.http_urls import without_credentials
from headwater.core.logging import log
from headwater.store.runtime import Runtime

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PRODUCER = f"urn:headwater:{version('headwater')}"
_TIMEOUT_SECONDS = 5.0


class LineageRun:
    """A run of a job: its inputs and outputs, as far as they are known."""

    def __init__(self, namespace: str, kind: str, name: str) -> None:
        self.run_id = str(uuid4())
        self._namespace = namespace
        self._job = {
            "namespace": namespace,
            "name": f"{kind}.{name}",
            "facets": {
                "jobType": _facet(
                    "2-0-4/JobTypeJobFacet",
                    processingType="BATCH",
                    integration="HEADWATER",
                    jobType=kind.upper(),
                )
            },
        }
        self._inputs: dict[str, dict[str, Any]] = {}
        self._outputs: dict[str, dict[str, Any]] = {}

    def reads(self, series: Iterable[str], version: str) -> None:
        """Note that it reads series of history, in a version of the table."""
        self._read([f"history.{name}" for name in series], version)

    def reads_events(self, types: Iterable[str], version: str) -> None:
        """Note that it reads events of some types, up to a moment."""
        self._read([f"events.{name}" for name in types], version)

    def _read(self, names: Iterable[str], version: str) -> None:
        facet = _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=version)
        for name in names:
            dataset = {"namespace": self._namespace, "name": name, "facets": {"version": facet}}
            self._inputs[name] = dataset

    def writes(self, series: str, rows: int | None = None) -> None:
        """Note that it writes a series of history."""
        name = f"history.{series}"
        self._outputs[name] = {"namespace": self._namespace, "name": name} | _counted(rows)

    def writes_file(self, file: Path, columns: Sequence[str] = (), rows: int | None = None) -> None:
        """Note that it writes a file or folder, with columns."""
        fields = [{"name": column} for column in columns]
        facets = {"schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields)} if fields else {}
        name = str(file.absolute())
        self._outputs[name] = {"namespace": "file", "name": name, "facets": facets} | _counted(rows)

    def event(self, kind: str, moment: str, problem: str | None = None) -> bytes:
        """Return an event about this run as JSON."""
        facets = {}
        if problem is not None:
            facets["errorMessage"] = _facet(
                "1-0-1/ErrorMessageRunFacet", message=problem, programmingLanguage="python"
            )
        return msgspec.json.encode(
            {
                "eventType": kind,
                "eventTime": moment,
                "producer": _PRODUCER,
                "schemaURL": _EVENT,
                "run": {"runId": self.run_id, "facets": facets},
                "job": self._job,
                "inputs": [*self._inputs.values()],
                "outputs": [*self._outputs.values()],
            }
        )


@asynccontextmanager
async def lineage_of(runtime: Runtime, kind: str, name: str) -> AsyncIterator[LineageRun]:
    """Tell about the run of a job inside: that it starts, and how it ends.

    An event that cannot be delivered is logged, and does not fail the run.
    """
    settings = runtime.settings.lineage
    run = LineageRun(settings.namespace, kind, name)
    if not settings.openlineage_url:
        yield run
        return

    async def tell(event: str, problem: str | None = None) -> None:
        content = run.event(event, runtime.clock.now().isoformat(), problem)
        try:
            await _deliver(content, settings.openlineage_url, settings.api_key)
        except (httpx.HTTPError, OSError) as error:
            log.warning("lineage event not delivered", error=f"{type(error).__name__}: {error}")

    await tell("START")
    try:
        yield run
    except asyncio.CancelledError:
        await asyncio.shield(tell("ABORT"))
        raise
    except Exception as error:
        # The text of an error may quote values.
        is_private = runtime.settings.record.is_private
        await tell("FAIL", type(error).__name__ if is_private else str(error))
        raise
    await tell("COMPLETE")


async def _deliver(event: bytes, place: str, key: str) -> None:
    if "://" not in place:
        await asyncio.to_thread(_append, Path(place), event + b"\n")
        return
    url, credentials = without_credentials(httpx.URL(place))
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, auth=credentials) as client:
        (await client.post(url, content=event, headers=headers)).raise_for_status()


def _append(file: Path, line: bytes) -> None:
    with file.open("ab", buffering=0) as output:
        output.write(line)


def _facet(name: str, **fields: Any) -> dict[str, Any]:
    kind = name.rpartition("/")[2]
    schema = f"{_SPEC}/facets/{name}.json#/$defs/{kind}"
    return {"_producer": _PRODUCER, "_schemaURL": schema, **fields}


def _counted(rows: int | None) -> dict[str, Any]:
    if rows is None:
        return {}
    statistics = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=rows)
    return {"outputFacets": {"outputStatistics": statistics}}
