"""The decorator ``context``, which reports errors with file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Never, get_args

from headwater.core.durations import Duration
from headwater.declarations.contexts import (
    ContextDef,
    ContextFunction,
    Limit,
    OnOverflow,
    P,
    is_number,
    is_text,
    sla_of,
)
from headwater.declarations.function_checks import (
    FunctionChecks,
    Runs,
    check_called_with_store,
    is_async,
    source_hash,
)
from headwater.declarations.runtime import HasRuntime, runtime_of


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
    **unknown: Never,
) -> Callable[[Callable[P, Any]], ContextFunction[P]]:
    """Declare a function that returns items as a context, assembled under a token budget.

    The function returns a list of items, one item, or a text, which is a required item. Required
    items are kept; the others by priority, as far as ``max_tokens`` allows. The values that the
    function reads become lineage, and must not be older than ``freshness_sla``. A call may tighten
    both limits; it may loosen the ones that ``allow_looser`` names.

    >>> @store.context(max_tokens=100)
    ... async def greeting(user_id: str) -> list[ContextItem]:
    ...     return [ContextItem("You are a support agent.", required=True)]
    """
    check_called_with_store(context, store, positional)

    def declare(function: Callable[P, Any]) -> ContextFunction[P]:
        checks = FunctionChecks(context, function, name, unknown)
        check = checks.check
        check("max_tokens", _A_COUNT, holds=max_tokens is None or is_number(max_tokens))
        for option, flag in (("freshness_strict", freshness_strict), ("backfill", backfill)):
            check(option, _A_BOOLEAN, holds=type(flag) is bool)
        check("separator", _A_TEXT, holds=is_text(separator))
        for option, text in (("model", model), ("version", version)):
            check(option, _A_TEXT, holds=text is None or is_text(text))
        check("on_overflow", "'error' or 'flag'", holds=on_overflow in get_args(OnOverflow))
        if freshness_strict and freshness_sla is None:
            raise checks.error(
                "freshness_strict needs freshness_sla: the age from which values are refused"
            )
        looser = (allow_looser,) if isinstance(allow_looser, str) else tuple(allow_looser)
        limits = get_args(Limit)
        check("allow_looser", _LIMITS, holds=all(option in limits for option in looser))
        definition = ContextDef(
            name=checks.name,
            version=version,
            function=function,
            is_async=is_async(function),
            signature=checks.checked_signature(function),
            definition=source_hash(function),
            location=checks.location,
            description=inspect.getdoc(function) or "",
            max_tokens=max_tokens,
            freshness_sla=checks.span("freshness_sla", freshness_sla, sla_of),
            freshness_strict=freshness_strict,
            model=model,
            separator=separator,
            on_overflow=on_overflow,
            backfill=backfill,
            timeout=checks.span("timeout", timeout),
            allow_looser=looser,
        )
        runtime_of(store).registry.add_context(definition)
        return ContextFunction(runtime_of(store), definition)

    return declare


_A_COUNT = "a whole number above zero and below 2^53"
_A_BOOLEAN = "True or False"
_LIMITS = "'max_tokens', 'freshness_sla', or a list of them"
_A_TEXT = "a text that UTF-8 can hold"
