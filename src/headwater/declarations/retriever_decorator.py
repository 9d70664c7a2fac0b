"""The decorator ``retriever``, which reports errors with file and line."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Set
from hashlib import sha256
from typing import Any, Never, get_args

import msgspec

from headwater.core.canonical_json import canonical, to_tagged
from headwater.core.durations import Duration
from headwater.core.templates import Template, parse_template
from headwater.declarations.contexts import P, RetrieverFunction, is_number, sla_of
from headwater.declarations.filters import parse_filters
from headwater.declarations.function_checks import (
    FunctionChecks,
    Runs,
    annotations_of,
    check_called_with_store,
    is_async,
    source_hash,
)
from headwater.declarations.indexes import IndexRef, check_index_name, index_name
from headwater.declarations.retrievers import (
    IndexSearch,
    OnError,
    RetrieverDef,
    parse_values,
    with_placeholders,
)
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.declarations.search_options import Rerank, SearchOptions
from headwater.errors import InvalidInputError, RecordValueError
from headwater.errors.hints import nearest
from headwater.model.indexes import SearchMode


def retriever(
    store: HasRuntime[Runs],
    *positional: Never,
    index: IndexRef | None = None,
    query: str | None = None,
    filters: Mapping[str, Any] | None = None,
    mode: SearchMode | None = None,
    min_score: float | None = None,
    diversity: float | None = None,
    rerank: Rerank | None = None,
    top_k: int | None = None,
    cache_ttl: Duration | None = None,
    freshness_sla: Duration | None = None,
    on_error: OnError = "raise",
    timeout: Duration | None = None,
    name: str | None = None,
    **unknown: Never,
) -> Callable[[Callable[P, Any]], RetrieverFunction[P]]:
    """Declare a search: of an index if the function is empty, otherwise the function itself.

    With ``index``, a call searches that index for the parameter ``query``, or for the template
    ``query=``. Templates in ``query`` and in the values of ``filters`` refer to parameters, and to
    features of the entity whose id field is a parameter. ``mode``, ``min_score``, ``diversity`` and
    ``rerank`` are those of ``store.search``.

    A function of your own returns texts, mappings with ``text``, or chunks; it may also be a
    generator of them. At most ``top_k`` results are kept.

    With ``cache_ttl``, calls with the same arguments within that time return the same results, in
    all processes, until an index that they searched changes. ``freshness_sla`` limits the age of
    results in place of the context's. With ``on_error="empty"``, a search that fails returns no
    results and makes its context degraded. It may run for ``timeout``; the default is in the
    settings.

    >>> @store.retriever(index="docs", top_k=3, cache_ttl="5m")
    ... def find_help(question: str) -> list[Chunk]: ...
    >>> @store.retriever(cache_ttl="5m")
    ... def find_pages(query: str) -> list[str]:
    ...     return [f"A page about {query}"]
    >>> [chunk.text for chunk in await find_pages("parcels")]
    ['A page about parcels']
    """
    check_called_with_store(retriever, store, positional)
    searching = {
        "query": query,
        "filters": filters,
        "mode": mode,
        "min_score": min_score,
        "diversity": diversity,
        "rerank": rerank,
    }

    def declare(function: Callable[P, Any]) -> RetrieverFunction[P]:
        checks = _Checks(retriever, function, name, unknown)
        checks.check("top_k", _A_NUMBER, holds=top_k is None or is_number(top_k))
        checks.check_option("on_error", on_error, get_args(OnError))
        signature = checks.checked_signature(function)
        given = {option: value for option, value in searching.items() if value is not None}
        registry = runtime_of(store).registry
        ids = {entity.id_field for entity in registry.entities.values()}
        search = checks.search(function, index, top_k, given, ids)
        definition = RetrieverDef(
            name=checks.name,
            function=function,
            is_async=search is not None or is_async(function),
            signature=signature,
            definition=source_hash(function) if search is None else checks.hash_of(search),
            location=checks.location,
            description=inspect.getdoc(function) or "",
            cache_ttl=checks.span("cache_ttl", cache_ttl),
            top_k=top_k,
            timeout=checks.span("timeout", timeout),
            freshness_sla=checks.span("freshness_sla", freshness_sla, sla_of),
            on_error=on_error,
            search=search,
        )
        registry.add_retriever(definition)
        if search is not None:
            registry.imply_index(search.index, checks.location)
        return RetrieverFunction(runtime_of(store), definition)

    return declare


_A_NUMBER = "a whole number above zero"
_A_SEARCH = "a search; it is empty: pass index= to search an index, or write the search"
_NEEDS_INDEX = "needs index=: it is an option of the search of an index"
_TWO_SEARCHES = (
    "index= searches the index in place of the function, which has to be empty (`...`); remove its "
    "body, or remove index= and call `store.search` in the body"
)


class _Checks(FunctionChecks):
    """The checks of a retriever."""

    def check_option(self, option: str, value: object, known: tuple[str, ...]) -> None:
        """Raise DeclarationError unless an option has one of the known values."""
        if value not in known:
            raise self.error(f"unknown {option} {value!r}; {nearest(str(value), known)}")

    def search(
        self,
        function: Callable[..., Any],
        index: IndexRef | None,
        top_k: int | None,
        given: Mapping[str, Any],
        ids: Set[str],
    ) -> IndexSearch | None:
        """Return the search that an empty function stands for; None if it is a search itself.

        ``ids`` are the id fields of the entities, which are not searched for.
        """
        if index is None:
            for option in given:
                raise self.error(f"{option} {_NEEDS_INDEX}")
            self.check("its body", _A_SEARCH, holds=not _is_empty(function))
            return None
        if not _is_empty(function):
            raise self.error(_TWO_SEARCHES)
        options = dict(given)
        query, filters = options.pop("query", None), options.pop("filters", None)
        if top_k is not None:
            options["top_k"] = top_k
        try:
            checked, named = SearchOptions(**options), index_name(index)
        except InvalidInputError as error:
            raise self.error(str(error)) from error
        check_index_name(named, self.location)
        templates = None if filters is None else parse_values(filters, self.location)
        try:
            parse_filters(with_placeholders(templates))
        except InvalidInputError as error:
            raise self.error(str(error)) from error
        return IndexSearch(
            index=named,
            query=self._query(function, query, ids),
            filters=templates,
            options=checked,
        )

    def hash_of(self, search: IndexSearch) -> str:
        """Return the hash of a search as it is declared."""
        rerank = search.options.rerank
        try:
            form = to_tagged(
                {
                    "index": search.index,
                    "query": search.query,
                    "filters": search.filters,
                    "options": msgspec.structs.replace(search.options, rerank=None),
                    "rerank": None if rerank is None else source_hash(rerank),
                }
            )
        except RecordValueError as error:
            raise self.error(str(error)) from error
        return f"sha256:{sha256(canonical(form)).hexdigest()}"

    def _query(self, function: Callable[..., Any], query: str | None, ids: Set[str]) -> Template:
        """Return the template of the query: the given one, or the parameter for the query."""
        if query is not None:
            self.check("query", "a text such as '{question}'", holds=type(query) is str)
            template = parse_template(query, self.location)
            self.check("query", "a text that is not empty", holds=query.strip() != "")
            return template
        hints, parameters = annotations_of(function), inspect.signature(function).parameters
        if "query" in parameters:
            return Template(("", ""), ("query",))
        texts = [name for name in parameters if hints.get(name) is str and name not in ids]
        if len(texts) == 1:
            return Template(("", ""), (texts[0],))
        given = f"several parameters are texts ({', '.join(texts)})" if texts else "none is a text"
        example = next((name for name in texts if not name.endswith("_id")), "question")
        raise self.error(
            f"no parameter is named 'query', and {given}; say what to search for, for example "
            f"query='{{{example}}}'"
        )


def _empty() -> None: ...


async def _async_empty() -> None: ...


def _is_empty(function: Callable[..., Any]) -> bool:
    """Return whether a function has nothing but a docstring, ``...`` or ``pass``."""
    inner = inspect.unwrap(function)
    return inspect.isfunction(inner) and _instructions(inner) in (
        _instructions(_empty),
        _instructions(_async_empty),
    )


def _instructions(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    # A NOP only marks the line of a statement that does nothing.
    steps = dis.get_instructions(function)
    return [(step.opname, step.argval) for step in steps if step.opname != "NOP"]
