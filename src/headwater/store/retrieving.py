"""Running a declared retriever by its name, outside of any context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.declarations.context_arguments import bind_named
from headwater.features.call_scope import tracking
from headwater.features.caller_limits import limited_caller
from headwater.features.read_tracking import Reads, TrackedRetrieval
from headwater.store.runtime import Runtime


async def run_retriever(runtime: Runtime, name: str, params: Mapping[str, Any]) -> TrackedRetrieval:
    """Run a retriever with parameters by name, and return its results as a context would get them.

    Nothing is recorded. A limited caller gets the results only if it may read all their sources.

    Raises:
        FieldError: A parameter is missing, unknown or of another type than annotated.
    """
    definition = runtime.registry.retriever(name)
    limited = limited_caller()
    if limited is not None:
        entities, ownership = runtime.registry.entities.values(), (await runtime.open()).ownership
        await limited.check_parameters(ownership, entities, params)
    bound = bind_named("retriever", definition, params)
    reads = Reads()
    with tracking(reads):
        await runtime.retrieve(definition, bound.args, bound.kwargs)
    reads.close()
    if limited is not None:
        await limited.check_retrieval(ownership, definition.name, reads.provenance)
    # The searches that its function made come before it.
    return [each for each in reads.retrievals if each.retriever == definition.name][-1]
