"""Errors of user functions, and of contexts that cannot be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors.base import HeadwaterError

_TIMED_OUT = "it timed out after {:g} s; raise its timeout= or HEADWATER_CONTEXT_TIMEOUT"


class FeatureFailedError(HeadwaterError):
    """A feature function that failed."""

    def __init__(self, feature: str, entity_id: str, problem: str) -> None:
        self.feature = feature
        self.entity_id = entity_id
        super().__init__(f"feature {feature!r} failed for {entity_id!r}: {problem}")


class FunctionRaisedError(FeatureFailedError):
    """A feature function that raised an exception."""

    def __init__(self, feature: str, entity_id: str, raised: Exception) -> None:
        self.raised = raised
        super().__init__(feature, entity_id, f"{type(raised).__name__}: {raised}")


class HandlerTimeoutError(FeatureFailedError):
    """A feature function that timed out."""

    def __init__(self, feature: str, entity_id: str, seconds: float) -> None:
        super().__init__(feature, entity_id, f"it timed out after {seconds:g} s")


class HungHandlerError(FeatureFailedError):
    """A sync function that is not called because too many threads hang, some of them in it."""

    def __init__(self, feature: str, entity_id: str, hung: int, threads: int) -> None:
        super().__init__(
            feature,
            entity_id,
            f"it was not called: {hung} of its earlier calls still hang, and with {threads} hung "
            "threads the process has reached worker.max_hung_threads; the log shows where they "
            "hang, and a restart ends them",
        )


class TaskFailedError(HeadwaterError):
    """A task that failed in another process; ``trace`` is the traceback there."""

    def __init__(self, problem: str, trace: str = "") -> None:
        self.trace = trace
        super().__init__(problem)


class TooManyHungThreadsError(HeadwaterError):
    """A worker that ended because too many of its threads hang."""

    def __init__(self, functions: Sequence[str], limit: int) -> None:
        named = ", ".join(f"{functions.count(name)} in {name!r}" for name in sorted({*functions}))
        super().__init__(
            f"{len(functions)} threads hang ({named}), and worker.max_hung_threads is {limit}; "
            "only the end of the process stops them; give the functions' blocking calls a timeout"
        )


class RerankFailedError(HeadwaterError):
    """A re-ranking function that raised, timed out, or returned neither chunks nor scores."""

    def __init__(self, index: str, function: str, problem: str) -> None:
        self.index = index
        super().__init__(
            f"re-ranking the results of index {index!r} failed: {function!r} {problem}"
        )


class RetrieverFailedError(HeadwaterError):
    """A retriever function that raised an exception, or returned an invalid result."""

    def __init__(self, retriever: str, raised: Exception) -> None:
        self.retriever = retriever
        self.raised = raised
        super().__init__(f"retriever {retriever!r} failed: {type(raised).__name__}: {raised}")


class RetrieverTimeoutError(RetrieverFailedError):
    """A retriever function that timed out."""

    def __init__(self, retriever: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(retriever, TimeoutError(_TIMED_OUT.format(seconds)))


class ContextFailedError(HeadwaterError):
    """A context function that raised an exception, used an unknown name or an invalid value."""

    def __init__(self, context: str, raised: Exception) -> None:
        self.context = context
        self.raised = raised
        super().__init__(f"context {context!r} failed: {type(raised).__name__}: {raised}")


class ContextTimeoutError(ContextFailedError):
    """A context function that timed out."""

    def __init__(self, context: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(context, TimeoutError(_TIMED_OUT.format(seconds)))


class FreshnessSLAError(HeadwaterError):
    """A context that does not meet its freshness requirement; ``violations`` lists why.

    ``context_id`` is the id of the record of the refusal, or None if it is not recorded.
    """

    def __init__(
        self, context: str, violations: Sequence[Any], context_id: str | None = None
    ) -> None:
        self.context = context
        self.violations = violations
        self.context_id = context_id
        worst = ", ".join(map(_shown, violations[:3]))
        more = f" and {len(violations) - 3} more" if len(violations) > 3 else ""
        record = "" if context_id is None else f"; the refusal is recorded as {context_id}"
        super().__init__(f"context {context!r} is not fresh enough: {worst}{more}{record}")


_PROBLEMS = {
    "never_ran": "never ran without an error, so its default is not known to be true",
    "dead_letter": "has a dead letter, so an event is not in its value: redrive or discard it",
}


def _shown(violation: Any) -> str:
    problem = _PROBLEMS.get(violation.reason, f"is {violation.reason}")
    return f"{violation.kind} {violation.name!r} {problem}"


class RecordingError(HeadwaterError):
    """A context that could not be recorded although ``record.required`` is set."""

    def __init__(self, context_id: str, problem: str) -> None:
        self.context_id = context_id
        remedy = "unset HEADWATER_RECORD_REQUIRED to continue without a record"
        super().__init__(f"context {context_id} was not recorded: {problem}; {remedy}")


class TokenBudgetError(HeadwaterError):
    """Required items of a context that do not fit its token budget."""

    def __init__(self, needed: int, available: int, items: Mapping[int, int]) -> None:
        self.needed = needed
        self.available = available
        self.items = dict(items)
        shown = [f"item {place} has {count}" for place, count in self.items.items()]
        tokens = ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "")
        problem = f"the required items need max_tokens={needed}, but it is {available} ({tokens})"
        super().__init__(f"{problem}; raise it, require less, or mark an item truncate=True")


class EmbeddingError(HeadwaterError):
    """Texts that could not be embedded.

    The provider failed or refused them, or a function returned unusable vectors. ``status`` is that
    of the provider's HTTP answer.
    """

    def __init__(self, embedder: str, problem: str, remedy: str, status: int | None = None) -> None:
        self.embedder = embedder
        self.status = status
        super().__init__(f"embedding with {embedder} failed: {problem}; {remedy}")


class TokenCountError(HeadwaterError):
    """A request whose tokens the provider did not count."""

    def __init__(self, provider: str, problem: str, remedy: str) -> None:
        self.provider = provider
        super().__init__(f"{provider} did not count the tokens of a request: {problem}; {remedy}")
