"""Features and retrievers that need no function, as values of a features file.

A function that only declares a name and a type has an empty body, which strict type checkers
refuse. These methods of a store take name and type as arguments and return a typed handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, TypeVar, Unpack

from headwater.core.durations import Duration
from headwater.declarations.context_decorators import retriever
from headwater.declarations.contexts import RetrieverFunction
from headwater.declarations.entity_decorator import DeclaringStore
from headwater.declarations.feature_decorators import store_feature
from headwater.declarations.feature_handles import Feature
from headwater.declarations.features import FreshnessBy
from headwater.declarations.function_checks import Runs
from headwater.declarations.indexes import IndexRef
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import OnError, Rerank
from headwater.declarations.runtime import HasRuntime
from headwater.model.indexes import SearchMode

T = TypeVar("T")


class DescribedOptions(TypedDict, total=False):
    """The options that every feature has."""

    freshness_sla: Duration | None
    description: str
    owner: str
    tags: str | Iterable[str]
    unit: str


class StoredOptions(DescribedOptions, total=False):
    """The options of features with stored values."""

    ttl: Duration | None
    convert: Callable[[Any], Any] | None


class SqlOptions(StoredOptions, total=False):
    """The options of features that a query computes."""

    materialize: bool
    freshness: FreshnessBy


class DeclaredSearch(TypedDict, total=False):
    """The options of retrievers that search an index."""

    filters: Mapping[str, Any] | None
    mode: SearchMode | None
    min_score: float | None
    diversity: float | None
    rerank: Rerank | None
    top_k: int | None
    cache_ttl: Duration | None
    freshness_sla: Duration | None
    on_error: OnError
    timeout: Duration | None
    record: bool


def template_feature(
    store: DeclaringStore,
    name: str,
    /,
    *,
    entity: type,
    template: str,
    default: str | None = None,
    **options: Unpack[DescribedOptions],
) -> Feature[str]:
    """Declare a text that is composed of other features at every read; return its handle.

    >>> blurb = store.template_feature("blurb", entity=User, template="Spent: {total_spend}")
    >>> await blurb.get("ada")
    'Spent: 25.0'
    """
    declare = store_feature(store, entity, name=name, template=template, default=default, **options)
    return declare(_declaring(name, str))


def sql_feature(
    store: DeclaringStore,
    name: str,
    kind: type[T],
    /,
    *,
    entity: type,
    sql: str,
    refresh: Duration,
    default: T | None = None,
    **options: Unpack[SqlOptions],
) -> Feature[T]:
    """Declare a feature with values of the type ``kind`` that one query computes for all entities.

    >>> orders = store.sql_feature("orders", int, entity=User, refresh="1h", sql='''
    ...     SELECT entity_id AS user_id, count(*) AS value FROM events GROUP BY entity_id''')
    """
    declare = store_feature(
        store, entity, name=name, sql=sql, refresh=refresh, default=default, **options
    )
    return declare(_declaring(name, kind))


def stored_feature(
    store: DeclaringStore,
    name: str,
    kind: type[T],
    /,
    *,
    entity: type,
    default: T | None = None,
    **options: Unpack[StoredOptions],
) -> Feature[T]:
    """Declare a feature that only other handlers, ``set_feature`` and imports write.

    >>> open_tickets = store.stored_feature("open_tickets", int, entity=User, default=0)
    >>> await open_tickets.get("ada")
    0
    """
    declare = store_feature(store, entity, name=name, stored=True, default=default, **options)
    return declare(_declaring(name, kind))


def index_retriever(
    store: HasRuntime[Runs], name: str, /, *, index: IndexRef, **options: Unpack[DeclaredSearch]
) -> RetrieverFunction[[str]]:
    """Declare a search of an index whose one parameter is the query.

    >>> search_pages = store.index_retriever("search_pages", index="pages", top_k=3)
    >>> await search_pages("parcels")
    []
    """

    def search(query: str) -> list[Chunk]:
        raise NotImplementedError

    search.__doc__ = None
    return retriever(store, name=name, index=index, **options)(search)


def _declaring(name: str, kind: Any) -> Callable[[Any], Any]:
    """Return a function with the name and the type of a feature, which is never called."""

    def declared(_entity_id: Any) -> Any:
        raise NotImplementedError

    declared.__name__ = declared.__qualname__ = name
    declared.__annotations__ = {"return": kind}
    return declared
