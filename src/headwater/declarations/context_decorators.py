"""The decorators ``context`` and ``retriever``, which report errors with file and line."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Never, get_args

import msgspec

from headwater.core.canonical_json import canonical, to_tagged
from headwater.core.durations import Duration
from headwater.core.templates import Template, parse_template
from headwater.declarations.contexts import (
    ContextDef,
    ContextFunction,
    Count,
    Limit,
    OnOverflow,
    P,
    RetrieverFunction,
    is_number,
    is_text,
    sla_of,
)
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
from headwater.declarations.registry import Registry
from headwater.declarations.retrievers import (
    IndexSearch,
    OnError,
    Rerank,
    RetrieverDef,
    SearchOptions,
    parse_values,
    with_placeholders,
)
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.errors import InvalidInputError, RecordValueError
from headwater.errors.hints import nearest
from headwater.model.indexes import SearchMode


def context(
    store: HasRuntime[Runs],
    *positional: Never,
    max_tokens: int | None = None,
    freshness_sla: Duration | None = None,
    freshness_strict: bool = False,
    model: str | None = None,
    name: str | None = None,
    version: str | None = None,
    separator: str = "\n\n",
    on_overflow: OnOverflow = "error",
    backfill: bool = False,
    timeout: Duration | None = None,
    allow_looser: Limit | Iterable[Limit] = (),
    max_output: int | None = None,
    count: Count = "local",
    **unknown: Never,
) -> Callable[[Callable[P, Any]], ContextFunction[P]]:
    """Declare a function that returns items as a context, assembled under a token budget.

    The function returns a list of items, one item, or a text, which is a required item. Required
    items are kept; the others by priority, as far as ``max_tokens`` allows. The values that the
    function reads become lineage, and must not be older than ``freshness_sla``. A call may tighten
    both limits; it may loosen the ones that ``allow_looser`` names.

    A context whose items have roles is messages, and its budget counts everything that is sent. It
    never exceeds the window of the model less ``max_output``, the tokens reserved for the answer.
    With ``count="provider"``, the provider's own count is asked for, and decides.

    >>> @store.context(max_tokens=100)
    ... async def greeting(user_id: str) -> list[ContextItem]:
    ...     return [ContextItem("You are a support agent.", required=True)]
    """
    options = SimpleNamespace(**locals())
    check_called_with_store(context, store, positional)
    return partial(_declare_context, options)


def _declare_context(options: SimpleNamespace, function: Callable[P, Any]) -> ContextFunction[P]:
    checks = FunctionChecks(context, function, options.name, options.unknown)
    looser = options.allow_looser
    looser = (looser,) if isinstance(looser, str) else tuple(looser)
    for option in ("max_tokens", "max_output"):
        number = getattr(options, option)
        is_count = number is None or is_number(number)
        checks.check(option, "a whole number above zero and below 2^53", holds=is_count)
    checks.check("count", "'local' or 'provider'", holds=options.count in get_args(Count))
    for option in ("freshness_strict", "backfill"):
        checks.check(option, "True or False", holds=type(getattr(options, option)) is bool)
    for option in ("separator", "model", "version"):
        text = getattr(options, option)
        is_left_out = text is None and option != "separator"
        checks.check(option, "a text that UTF-8 can hold", holds=is_left_out or is_text(text))
    is_choice = options.on_overflow in get_args(OnOverflow)
    checks.check("on_overflow", "'error' or 'flag'", holds=is_choice)
    if options.freshness_strict and options.freshness_sla is None:
        raise checks.error(
            "freshness_strict needs freshness_sla: the age from which values are refused"
        )
    are_limits = all(option in get_args(Limit) for option in looser)
    checks.check("allow_looser", _LIMITS, holds=are_limits)
    runtime = runtime_of(options.store)
    definition = ContextDef(
        name=checks.name,
        version=options.version,
        function=function,
        is_async=is_async(function),
        signature=checks.checked_signature(function),
        definition=source_hash(function),
        location=checks.location,
        description=inspect.getdoc(function) or "",
        max_tokens=options.max_tokens,
        freshness_sla=checks.span("freshness_sla", options.freshness_sla, sla_of),
        freshness_strict=options.freshness_strict,
        model=options.model,
        separator=options.separator,
        on_overflow=options.on_overflow,
        backfill=options.backfill,
        timeout=checks.span("timeout", options.timeout),
        allow_looser=looser,
        max_output=options.max_output,
        count=options.count,
    )
    runtime.registry.add_context(definition)
    return ContextFunction(runtime, definition)


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
    record: bool = False,
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

    With ``record=True``, records keep the results as a whole, with their metadata, and a replay
    ``as_of`` returns these in place of a search that may find something else by now.

    >>> @store.retriever(index="docs", top_k=3, cache_ttl="5m")
    ... def find_help(question: str) -> list[Chunk]: ...
    >>> @store.retriever(cache_ttl="5m")
    ... def find_pages(query: str) -> list[str]:
    ...     return [f"A page about {query}"]
    >>> [chunk.text for chunk in await find_pages("parcels")]
    ['A page about parcels']
    """
    options = SimpleNamespace(**locals())
    check_called_with_store(retriever, store, positional)
    return partial(_declare_retriever, options)


def _declare_retriever(
    options: SimpleNamespace, function: Callable[P, Any]
) -> RetrieverFunction[P]:
    checks = _RetrieverChecks(retriever, function, options.name, options.unknown)
    is_count = options.top_k is None or is_number(options.top_k)
    checks.check("top_k", "a whole number above zero", holds=is_count)
    if options.on_error not in get_args(OnError):
        hint = nearest(str(options.on_error), get_args(OnError))
        raise checks.error(f"unknown on_error {options.on_error!r}; {hint}")
    checks.check("record", "True or False", holds=type(options.record) is bool)
    signature, runtime = checks.checked_signature(function), runtime_of(options.store)
    search = checks.search(function, options, runtime.registry)
    definition = RetrieverDef(
        name=checks.name,
        function=function,
        is_async=search is not None or is_async(function),
        signature=signature,
        definition=source_hash(function) if search is None else checks.hash_of(search),
        location=checks.location,
        description=inspect.getdoc(function) or "",
        cache_ttl=checks.span("cache_ttl", options.cache_ttl),
        top_k=options.top_k,
        timeout=checks.span("timeout", options.timeout),
        freshness_sla=checks.span("freshness_sla", options.freshness_sla, sla_of),
        on_error=options.on_error,
        search=search,
        record=options.record,
    )
    runtime.registry.add_retriever(definition)
    if search is not None:
        runtime.registry.imply_index(search.index, checks.location)
    return RetrieverFunction(runtime, definition)


_LIMITS = "'max_tokens', 'freshness_sla', or a list of them"
_A_SEARCH = "a search; it is empty: pass index= to search an index, or write the search"
_NEEDS_INDEX = "needs index=: it is an option of the search of an index"
_TWO_SEARCHES = (
    "index= searches the index in place of the function, which has to be empty (`...`, or "
    "`raise NotImplementedError` for strict type checkers); remove its "
    "body, or remove index= and call `store.search` in the body"
)


class _RetrieverChecks(FunctionChecks):
    """The checks of a retriever."""

    def search(
        self, function: Callable[..., Any], options: SimpleNamespace, registry: Registry
    ) -> IndexSearch | None:
        """Return the search that an empty function stands for; None if it is a search itself."""
        names = ("query", "filters", "mode", "min_score", "diversity", "rerank")
        values = {name: getattr(options, name) for name in names}
        given = {name: value for name, value in values.items() if value is not None}
        if options.index is None:
            for option in given:
                raise self.error(f"{option} {_NEEDS_INDEX}")
            self.check("its body", _A_SEARCH, holds=not _is_empty(function))
            return None
        if not _is_one_of(function, _empty, _async_empty, _raising, _async_raising):
            raise self.error(_TWO_SEARCHES)
        query, filters = given.pop("query", None), given.pop("filters", None)
        if options.top_k is not None:
            given["top_k"] = options.top_k
        try:
            checked, index = SearchOptions(**given), index_name(options.index)
            check_index_name(index, self.location)
            templates = None if filters is None else parse_values(filters, self.location)
            parse_filters(with_placeholders(templates))
        except InvalidInputError as error:
            raise self.error(str(error)) from error
        # The ids of entities are not searched for.
        ids = {entity.id_field for entity in registry.entities.values()}
        template = self._query(function, query, ids)
        return IndexSearch(index=index, query=template, filters=templates, options=checked)

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


def _raising() -> None:
    raise NotImplementedError


async def _async_raising() -> None:
    raise NotImplementedError


def _is_empty(function: Callable[..., Any]) -> bool:
    """Return whether a function has nothing but a docstring, ``...`` or ``pass``."""
    return _is_one_of(function, _empty, _async_empty)


def _is_one_of(function: Callable[..., Any], *empty: Callable[..., Any]) -> bool:
    inner = inspect.unwrap(function)
    return inspect.isfunction(inner) and _instructions(inner) in map(_instructions, empty)


def _instructions(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    # A NOP only marks the line of a statement that does nothing.
    steps = dis.get_instructions(function)
    return [(step.opname, step.argval) for step in steps if step.opname != "NOP"]
