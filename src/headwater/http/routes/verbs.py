"""The routes of verbs, derived from their declarations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from types import NoneType
from typing import Any

from msgspec.structs import asdict

from headwater.access.bounded_verbs import BoundedVerb
from headwater.access.errors import SlowCallError, TooManyCallsError
from headwater.core.json_values import plain
from headwater.http.routing.responses import CREATED, NO_CONTENT
from headwater.http.routing.route import Parameter, Route, RouteSignature
from headwater.http.routing.streaming import ProgressResponse, Reporter
from headwater.model.problems import NDJSON, ActionLine, ProgressStep
from headwater.settings.schema import Settings
from headwater.store.verbs.verb import Arguments, Verb, Verbs, verbs_of

_lines: Any = ActionLine


def verb_routes(group: Verbs, settings: Settings, **given: Arguments) -> list[Route]:
    """Return a route for each verb of a group; ``given`` are arguments that a server adds."""
    private = settings.record.is_private
    return [
        _route(verb, _handler(verb, group, given.get(verb.name, {}), private=private))
        for verb in verbs_of(type(group))
    ]


def _route(verb: Verb, handler: Callable[..., Awaitable[Any]]) -> Route:
    handler.__name__, handler.__doc__ = verb.operation, verb.summary
    handler.__module__ = verb.function.__module__
    answer = verb.answers
    return Route(
        verb.method,
        verb.path,
        verb.scope,
        handler,
        status=NO_CONTENT if answer is NoneType else CREATED if verb.creates else 200,
        returns=NDJSON if verb.is_long else "application/json",
        documents=_lines[verb.step, answer] if verb.is_long else None,
        applies_limits=verb.applies_limits,
        raises=(*verb.raises, TooManyCallsError, *((SlowCallError,) if verb.is_cut_off else ())),
        max_bytes=verb.max_bytes,
        is_pending=verb.reply and verb.reply.is_pending,
        ends_with_client=verb.ends_with_client,
        signature=RouteSignature(
            tuple(Parameter(name, verb.fields[name].kind, required=True)
                  for name in verb.path_names),
            tuple(_query(verb)) if verb.body is None else (),
            verb.body,
            ProgressResponse if verb.is_long else answer,
        ),
    )  # fmt: skip


def _query(verb: Verb) -> Iterator[Parameter]:
    for field in verb.fields.values():
        if field.name not in verb.path_names:
            yield Parameter(field.name, field.kind, field.is_required)


def _handler(
    verb: Verb, group: Verbs, given: Arguments, *, private: bool
) -> Callable[..., Awaitable[Any]]:
    bounded = BoundedVerb(verb, group)
    reports = "progress" in verb.signature.parameters

    def follow(arguments: Arguments) -> Callable[[Reporter], Awaitable[Any]]:
        async def action(report: Reporter) -> Any:
            progress = report if verb.step is ProgressStep else report.show
            shown = {"progress": progress} if reports else {}
            return verb.answered(arguments, await bounded.run({**arguments, **shown}))

        return action

    async def handle(*, body: Any = None, **sent: Any) -> Any:
        arguments = {**verb.received(sent if body is None else sent | asdict(body)), **given}
        if verb.is_long:
            return await ProgressResponse(follow(arguments), private=private).begun()
        return plain(verb.answered(arguments, await bounded.run(arguments)))

    return handle
