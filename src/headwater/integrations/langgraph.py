"""A LangGraph store: the long-term memory of graphs, in an index of documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

import msgspec

from headwater.declarations.indexes import IndexRef, index_name
from headwater.errors import InvalidInputError, MissingExtraError
from headwater.errors.hints import nearest
from headwater.integrations.search import AnyStore, awaited, run, verbs_of
from headwater.model.indexes import MAX_RESULTS, Document

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        validate_op_namespace,
    )
except ImportError as error:
    raise MissingExtraError("the LangGraph store", "langgraph") from error

NAMESPACE = "langgraph.namespace"
"""The field of the metadata with the namespace of an item and all that it is in: a, a.b, a.b.c."""
CREATED_AT = "langgraph.created_at"
"""The field with the time of an item's first version; absent in that."""

Namespace = tuple[str, ...]

_PAGE = 1_000
_SHORT_PAGE = 100
_ORDERED = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_OPERATORS = ("$eq", "$ne", *_ORDERED)
_encode = msgspec.json.Encoder(enc_hook=str, order="sorted").encode


class LangGraphStore(BaseStore):
    """A store of LangGraph in an index of a Headwater store or client.

    An item is a document. Its id is its namespace and its key, such as ``users.ada..diet``; the
    fields of its value are the metadata, so searches of Headwater can filter by them; its text is
    what ``fields`` choose of the value, as in LangGraph's ``IndexConfig``. Everything is done by
    the verbs of the store: items have versions and a past, and limits of keys apply.

    A put of what is stored already changes nothing, so ``updated_at`` is the time of the last
    change. A time to live is not supported.

    >>> memory = LangGraphStore(store, "memory")
    >>> await memory.aput(("users", "ada"), "diet", {"food": "Ada eats no meat."})
    >>> (item,) = await memory.asearch(("users",), query="What does she eat?")
    >>> item.namespace, item.key
    (('users', 'ada'), 'diet')
    """

    __slots__ = ("_fields", "_index", "_store")

    def __init__(self, store: AnyStore, index: IndexRef, *, fields: Sequence[str] = ("$",)) -> None:
        self._store = store
        self._index = index_name(index)
        self._fields = fields

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: first those that read, then those that write."""
        return run(self._store, self._run([*ops]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: first those that read, then those that write."""
        return await awaited(self._store, self._run([*ops]))

    async def _run(self, ops: Sequence[Op]) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
        # Of several writes of one item, the last counts.
        writes = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        results = [None if isinstance(op, PutOp) else await self._read(op) for op in ops]
        for op in writes.values():
            if op.ttl is not None:
                raise InvalidInputError(
                    f"the item {op.key!r} has a ttl, which the index {self._index!r} cannot keep; "
                    "put it without ttl"
                )
        documents = [await self._document(op) for op in writes.values() if op.value is not None]
        await verbs_of(self._store).indexes.load(self._index, documents)
        for op in writes.values():
            if op.value is None:
                await verbs_of(self._store).unindex(self._index, _id(op.namespace, op.key))
        return results

    async def _read(self, op: Op) -> Result:
        match op:
            case GetOp(namespace, key):
                return await self._get(namespace, key)
            case SearchOp(query=str() as query) if query.strip():
                return await self._search(op, query)
            case SearchOp():
                return await self._list(op)
            case ListNamespacesOp():
                return await self._namespaces(op)
        raise InvalidInputError(f"a LangGraph store has no operation {type(op).__name__}")

    async def _get(self, namespace: Namespace, key: str) -> Item | None:
        document = _id(namespace, key)
        stored = await verbs_of(self._store).indexes.get_document(self._index, document)
        if stored is None or NAMESPACE not in stored.metadata:
            return None
        fields = _Fields.of(stored.metadata, stored.indexed_at)
        return Item(namespace=namespace, key=key, **fields._asdict())

    async def _document(self, op: PutOp) -> Document:
        """Return the document of an item, with the time at which an item of its key was created."""
        assert op.value is not None
        for name in op.value:
            if name in (NAMESPACE, CREATED_AT):
                raise InvalidInputError(f"the field {name!r} of an item is reserved; rename it")
        paths = self._fields if op.index is None else op.index or ()
        try:
            texts = [text for path in paths for text in get_text_at_path(op.value, path)]
        except TypeError as error:
            raise InvalidInputError(f"the item {op.key!r} is not JSON: {error}") from error
        metadata = {**op.value, NAMESPACE: _prefixes(op.namespace)}
        document = Document(_id(op.namespace, op.key), "\n\n".join(texts), metadata)
        stored = await verbs_of(self._store).indexes.get_document(self._index, document.id)
        if stored is None:
            return document
        before = _Fields.of(stored.metadata, stored.indexed_at)
        if stored.text == document.text and _encode(before.value) == _encode(op.value):
            return Document(document.id, document.text, stored.metadata)
        metadata[CREATED_AT] = before.created_at.isoformat()
        return Document(document.id, document.text, metadata)

    async def _list(self, op: SearchOp) -> list[SearchItem]:
        """Return the items of a page, by namespace and key."""
        end, items, cursor = op.offset + op.limit, list[SearchItem](), None
        while len(items) < end:
            page = await verbs_of(self._store).indexes.list_documents(
                self._index,
                prefix=_prefix(op.namespace_prefix),
                filters=_conditions(op.filter),
                limit=_PAGE if op.filter else min(_PAGE, end - len(items)),
                cursor=cursor,
            )
            items += [
                _item(each.document, each.metadata, each.indexed_at)
                for each in page.documents
                if _meets(each.metadata, op.filter)
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        return items[op.offset : end]

    async def _search(self, op: SearchOp, query: str) -> list[SearchItem]:
        """Return the items that match a query best, each by the best of its chunks."""
        end, top_k = op.offset + op.limit, 0
        filters = _conditions(op.filter)
        if op.namespace_prefix:
            filters[NAMESPACE] = ".".join(op.namespace_prefix)
        while True:
            top_k = min(MAX_RESULTS, max(1, 2 * end, 4 * top_k))
            chunks = await verbs_of(self._store).search(
                self._index, query, top_k=top_k, filters=filters
            )
            items: dict[str, SearchItem] = {}
            for chunk in chunks:
                if chunk.document not in items and _meets(chunk.metadata, op.filter):
                    assert chunk.document is not None
                    assert chunk.indexed_at is not None
                    item = _item(chunk.document, chunk.metadata, chunk.indexed_at, chunk.score)
                    items[chunk.document] = item
            if len(items) >= end or len(chunks) < top_k or top_k == MAX_RESULTS:
                return [*items.values()][op.offset : end]

    async def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        """Return namespaces; of a large one, most items are skipped."""
        conditions = op.match_conditions or ()
        prefix = _prefix(_start(conditions))
        namespaces: set[Namespace] = set()
        cursor: str | None = None
        while True:
            page = await verbs_of(self._store).indexes.list_documents(
                self._index, prefix=prefix, limit=_SHORT_PAGE, cursor=cursor
            )
            items = [each.document for each in page.documents if NAMESPACE in each.metadata]
            namespaces |= {_named(document)[0] for document in items}
            cursor = page.next_cursor
            if cursor is None:
                break
            if items and items[-1] == cursor:
                # Ids of a namespace begin with its names and two dots, after which comes a slash.
                cursor = ".".join(_named(cursor)[0]) + "./"
        matched = {
            namespace[: op.max_depth]
            for namespace in namespaces
            if all(_is_matched(condition, namespace) for condition in conditions)
        }
        return sorted(matched)[op.offset : op.offset + op.limit]


class _Fields(NamedTuple):
    """The value of an item and its times."""

    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, metadata: Mapping[str, Any], indexed_at: datetime) -> _Fields:
        """Return what the metadata of a document and the time of its version say."""
        value = {name: field for name, field in metadata.items() if name != NAMESPACE}
        created = value.pop(CREATED_AT, None)
        return cls(value, datetime.fromisoformat(created) if created else indexed_at, indexed_at)


def _id(namespace: Namespace, key: str) -> str:
    """Return the id of a document: names have no dots and are not empty, so two dots end them."""
    return f"{'.'.join(namespace)}..{key}"


def _named(document: str) -> tuple[Namespace, str]:
    """Return the namespace and the key of an item."""
    names, _, key = document.partition("..")
    return tuple(names.split(".")) if names else (), key


def _prefixes(namespace: Namespace) -> list[str]:
    return [".".join(namespace[:depth]) for depth in range(1, len(namespace) + 1)]


def _prefix(namespace: Namespace) -> str:
    """Return the beginning of the ids of all items in a namespace and in those below it."""
    return "".join(f"{name}." for name in namespace)


def _item(
    document: str, metadata: Mapping[str, Any], indexed_at: datetime, score: float | None = None
) -> SearchItem:
    namespace, key = _named(document)
    fields = _Fields.of(metadata, indexed_at)
    return SearchItem(namespace=namespace, key=key, score=score, **fields._asdict())


def _start(conditions: Iterable[MatchCondition]) -> Namespace:
    """Return the names that the namespaces of all conditions begin with."""
    for condition in conditions:
        if condition.match_type == "prefix":
            path = condition.path
            return path[: path.index("*")] if "*" in path else path
    return ()


def _is_matched(condition: MatchCondition, namespace: Namespace) -> bool:
    path = condition.path
    is_prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if is_prefix else namespace[max(0, len(namespace) - len(path)) :]
    return len(part) == len(path) and all(
        asked in ("*", name) for asked, name in zip(path, part, strict=True)
    )


def _conditions(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the filter of Headwater that holds for all items that meet a filter of LangGraph.

    `_meets` judges the rest: values that are lists, mappings or None, and what is not equal.
    """
    conditions: dict[str, Any] = {}
    for name, condition in (asked or {}).items():
        operators = condition if _has_operators(condition) else {"$eq": condition}
        chosen = {
            operator: operand
            for operator, operand in operators.items()
            if operator != "$ne" and isinstance(operand, str | int | float)
        }
        if chosen:
            conditions[name] = chosen
    return conditions


def _has_operators(condition: Any) -> bool:
    return isinstance(condition, Mapping) and any(name.startswith("$") for name in condition)


def _meets(metadata: Mapping[str, Any], asked: Mapping[str, Any] | None) -> bool:
    """Return whether a document is an item that meets a filter."""
    return NAMESPACE in metadata and all(
        _holds(metadata.get(name), condition) for name, condition in (asked or {}).items()
    )


def _holds(value: Any, condition: Any) -> bool:
    """Return whether a value meets a condition; an absent value is None."""
    if _has_operators(condition):
        return all(_compare(value, operator, operand) for operator, operand in condition.items())
    if isinstance(condition, Mapping):
        return isinstance(value, Mapping) and all(
            _holds(value.get(name), inner) for name, inner in condition.items()
        )
    if isinstance(condition, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(condition)
            and all(map(_holds, value, condition))
        )
    return _is_equal(value, condition)


def _is_equal(value: Any, operand: Any) -> bool:
    # True equals 1 in Python, and not in JSON.
    return bool(value == operand) and isinstance(value, bool) == isinstance(operand, bool)


def _compare(value: Any, operator: str, operand: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return _is_equal(value, operand) == (operator == "$eq")
    if operator not in _ORDERED:
        raise InvalidInputError(
            f"unknown operator {operator!r} in a filter; {nearest(operator, _OPERATORS)}"
        )
    kinds = {str if isinstance(each, str) else float for each in (value, operand)}
    is_ordered = all(isinstance(each, str | int | float) for each in (value, operand))
    is_ordered = is_ordered and not isinstance(value, bool) and len(kinds) == 1
    return is_ordered and _ORDERED[operator](value, operand)
