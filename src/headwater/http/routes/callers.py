"""The route that describes the caller of a request and what it may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from headwater.access.guard import THIS_MACHINE
from headwater.http.routing.route import Route
from headwater.model.callers import ALL_SCOPES, Caller, CallerReport, current_caller
from headwater.store.feature_store import FeatureStore


class Callers:
    """Describes callers by the routes that they may use, of all ``routes`` of the server."""

    def __init__(self, store: FeatureStore, routes: Callable[[], Sequence[Route]]) -> None:
        self._environment = store.settings.env
        self._routes = routes
        self._version = version("headwater")

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/me", "any", self.describe_caller, applies_limits=True)]

    async def describe_caller(self) -> CallerReport:
        """Read who the caller is, and which operations its key or token allows."""
        caller = current_caller() or THIS_MACHINE
        return CallerReport(
            name=caller.name,
            scopes=sorted(scope for scope in ALL_SCOPES if caller.may(scope)),
            limits=caller.limits,
            operations=[
                f"{each.method} {each.path}" for each in self._routes() if allows(caller, each)
            ],
            key_required=caller is not THIS_MACHINE,
            environment=self._environment,
            version=self._version,
        )


def allows(caller: Caller, route: Route) -> bool:
    """Return whether the scopes and limits of a caller allow a route."""
    if route.scope == "public":
        return True
    has_scope = route.scope == "any" or caller.may(route.scope)
    return has_scope and (caller.limits is None or route.applies_limits)
