"""The resources of a store: its declarations, recorded contexts and their records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote, unquote

import mcp_types as types

from headwater.errors import DamagedRecordError, NotFoundError, RecordDocumentError
from headwater.mcp.results import ResultFacts, record_facts, to_json
from headwater.model.callers import Caller
from headwater.model.contexts import RecordSummary
from headwater.records.document import export
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declarations_of

DECLARATIONS = "headwater://declarations"
RECORD_TEMPLATE = "headwater://record/{hash}"
CONTEXT_TEMPLATE = "headwater://context/{id}"

_RECORD = RECORD_TEMPLATE.removesuffix("{hash}")
_CONTEXT = CONTEXT_TEMPLATE.removesuffix("{id}")
JSON = "application/json"
PAGE = 50

Content = tuple[str, ResultFacts]


class StoreResources:
    """Lists and reads the resources that a caller may read."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._readers: dict[str, Callable[[str], Awaitable[Content]]] = {
            "record": self._record,
            "context": self._context,
        }

    async def list(self, caller: Caller, cursor: str | None) -> types.ListResourcesResult:
        """Return a page of resources: the declarations, then recorded contexts, newest first."""
        resources: list[types.Resource] = []
        if cursor is None and caller.may("read"):
            resources.append(
                types.Resource(
                    uri=DECLARATIONS,
                    name="declarations",
                    title="Declarations",
                    description="Entities, features, indexes, retrievers and contexts.",
                    mime_type=JSON,
                )
            )
        if not caller.may("records"):
            return types.ListResourcesResult(resources=resources)
        page = await self._store.list_contexts(limit=PAGE, cursor=cursor)
        resources += [_listed(context) for context in page.contexts]
        return types.ListResourcesResult(resources=resources, next_cursor=page.next_cursor)

    def templates(self, caller: Caller) -> types.ListResourceTemplatesResult:
        """Return the templates of the addresses of records."""
        templates = [
            types.ResourceTemplate(
                uri_template=RECORD_TEMPLATE,
                name="record",
                title="Record",
                description="A record as an exported document, by its hash; it can be verified.",
                mime_type=JSON,
            ),
            types.ResourceTemplate(
                uri_template=CONTEXT_TEMPLATE,
                name="context",
                title="Recorded context",
                description="A recorded context with its text and lineage, by its id.",
                mime_type=JSON,
            ),
        ]
        return types.ListResourceTemplatesResult(
            resource_templates=templates if caller.may("records") else []
        )

    async def read(self, caller: Caller, uri: str) -> types.ReadResourceResult:
        """Return the content of a resource."""
        caller.check("read" if uri == DECLARATIONS else "records")
        text, facts = await self._content(caller, uri)
        content = types.TextResourceContents(uri=uri, mime_type=JSON, text=text, _meta=facts.meta())
        return types.ReadResourceResult(contents=[content], _meta=facts.meta())

    async def _content(self, caller: Caller, uri: str) -> Content:
        if uri == DECLARATIONS:
            return to_json(declarations_of(self._store, caller)), ResultFacts()
        parsed = reference_in(uri)
        if parsed is None:
            raise NotFoundError(
                f"no resource {uri!r}; read {DECLARATIONS}, {RECORD_TEMPLATE} or {CONTEXT_TEMPLATE}"
            )
        kind, reference = parsed
        return await self._readers[kind](reference)

    async def _record(self, reference: str) -> Content:
        record = await self._store.get_record(reference)
        try:
            text = export(record).decode()
        except RecordDocumentError as error:
            raise DamagedRecordError(record.context_id, "core", str(error)) from error
        return text, record_facts(await self._store.get_context_at(record.context_id))

    async def _context(self, reference: str) -> Content:
        past = await self._store.get_context_at(reference)
        return to_json(past), record_facts(past)


def _listed(summary: RecordSummary) -> types.Resource:
    created = summary.created_at.isoformat(timespec="seconds")
    return types.Resource(
        uri=context_uri(summary.context_id),
        name=summary.context_id,
        title=f"{summary.name}, {created}",
        description=f"Recorded context, freshness {summary.freshness_status}",
        mime_type=JSON,
        annotations=types.Annotations(last_modified=created),
        _meta=record_facts(summary).meta(),
    )


def context_uri(context_id: str) -> str:
    """Return the address of a recorded context."""
    return _CONTEXT + quote(context_id, safe="")


def reference_in(uri: str) -> tuple[str, str] | None:
    """Return ``record`` or ``context`` and the reference in an address, or None if it has none."""
    for kind, prefix in (("record", _RECORD), ("context", _CONTEXT)):
        if uri.startswith(prefix):
            return kind, unquote(uri.removeprefix(prefix))
    return None
