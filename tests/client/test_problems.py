"""Problems of a server become the errors that the store raises, with the same attributes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from headwater import FeatureStore, FreshnessViolation, errors
from headwater.client import AsyncClient
from headwater.client.problems import error_of
from headwater.client.server import Server
from headwater.core.clock import SystemClock
from headwater.errors import (
    AccessDeniedError,
    EventConflict,
    FieldError,
    FreshnessSLAError,
    HeadwaterError,
    RequestRefusedError,
    UnknownNameError,
)
from headwater.errors.hints import Location
from headwater.http.routing.problems import problem_response
from headwater.model.problems import STORE_RULES, Problem, Rule
from tests.client.conftest import URL, MakeClient

VIOLATION = FreshnessViolation(
    kind="feature",
    name="total_spend",
    entity_id="ada",
    age_ms=9,
    sla_ms=1,
    reason="stale",
    used_by=None,
)
ERRORS: list[HeadwaterError] = [
    errors.UnknownNameError("feature", "totl", ["total"]),
    errors.UnknownContextError("12345678"),
    errors.UnknownDocumentError("docs", "x"),
    errors.UnknownOutcomeError("01a1de13"),
    errors.UnknownDeadLetterError("17"),
    errors.UnknownGroupError("worker", ["workers"]),
    errors.GroupInUseError("workers", ("w1",)),
    errors.FeatureInUseError("total", ("w1", "w2")),
    errors.StoreMismatchError("the history in Postgres is another store's"),
    errors.ImmutableRecordError("id", "one", "two"),
    errors.EventConflictError([EventConflict(0, "ada", "e1", "other payload")], 3),
    errors.IndexMismatchError("docs", "a/b", "c/d"),
    errors.EntityChangedError("total", "User", "Customer", Location("features.py", 3)),
    errors.InvalidInputError("no"),
    errors.FieldError("is required", "params.user_id", "user_id", 3),
    errors.LooserOverrideError("support", "max_tokens", "9", "5"),
    errors.DurationError("5x"),
    errors.EventError("is too large", 4),
    errors.FeatureValueError("total", "must be a float"),
    errors.AmbiguousRefError("12345678", ["123456789", "123456780"]),
    errors.RecordValueError("/inputs/a", "is NaN"),
    errors.TokenBudgetError(9, 5, {0: 9}),
    errors.FreshnessSLAError("strict", [VIOLATION], "an id"),
    errors.FeatureFailedError("total", "ada", "it raised"),
    errors.RetrieverTimeoutError("docs", 2.5),
    errors.ContextTimeoutError("support", 2.5),
    errors.DamagedRecordError("an id", "core", "is cut"),
    errors.StoreLostError("Redis", "Redis lost its data"),
    errors.BackendUnavailableError("Redis is down"),
]


class _Fails(httpx.AsyncBaseTransport):
    """A server that answers every request with an error."""

    def __init__(self, error: Exception) -> None:
        self._response = problem_response(error)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = {**self._response.headers, "x-request-id": "r-1"}
        return httpx.Response(
            self._response.status_code, headers=headers, content=bytes(self._response.body)
        )


async def raised(error: Exception) -> HeadwaterError:
    """Return what a client raises if the server raises an error."""
    server = Server(URL, "", 60.0, 0, SystemClock(), _Fails(error))
    with pytest.raises(HeadwaterError) as caught:
        await server.get(dict[str, Any], "/")
    await server.close()
    return caught.value


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_of_the_store_crosses_the_network(error: HeadwaterError) -> None:
    crossed = await raised(error)
    rule = next(STORE_RULES[kind] for kind in type(error).__mro__ if kind in STORE_RULES)
    assert isinstance(error, type(crossed))
    assert type(crossed) is not HeadwaterError
    assert str(crossed) == rule.detail.format(error)
    for name in rule.members:
        assert getattr(crossed, name) == getattr(error, name), name
    assert crossed.response is not None
    assert crossed.response.status == rule.status
    assert crossed.response.url == URL
    assert crossed.response.request_id == "r-1"
    assert crossed.response.detail == str(crossed)
    assert crossed.response.type.startswith("urn:headwater:problem:")


@pytest.mark.parametrize("rule", {rule.name: rule for rule in STORE_RULES.values()}.values())
def test_every_error_that_the_store_reports_has_a_class_in_the_client(rule: Rule) -> None:
    problem = Problem(f"urn:headwater:problem:{rule.name}", rule.title, rule.status, "detail")
    error = error_of(problem, {}, URL, None)
    assert not isinstance(error, errors.RemoteError)
    assert STORE_RULES[type(error)].name == rule.name


async def test_a_wrong_key_says_how_to_give_another(connect: MakeClient) -> None:
    with pytest.raises(AccessDeniedError, match="HEADWATER_CLIENT_KEY") as denied:
        await connect(key="wrong").get_feature("total_spend", "ada")
    assert denied.value.response is not None
    assert denied.value.response.status == 401


async def test_unknown_names_and_missing_parameters_are_named(client: AsyncClient) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'total_spend'") as unknown:
        await client.get_feature("totl_spend", "ada")
    assert (unknown.value.kind, unknown.value.nearest) == ("feature", "total_spend")
    with pytest.raises(FieldError) as missing:
        await client.assemble("support", {})
    assert missing.value.field == "params.user_id"


async def test_a_path_without_the_api_is_named(connect: MakeClient) -> None:
    with pytest.raises(RequestRefusedError, match="no route"):
        await connect(url=f"{URL}/nothing").get_feature("total_spend", "ada")


async def test_a_refused_context_has_its_violations(
    client: AsyncClient, store: FeatureStore
) -> None:
    with pytest.raises(FreshnessSLAError) as refused:
        await client.assemble("strict", {"user_id": "ada"})
    (violation,) = refused.value.violations
    assert violation.name == "total_spend"
    assert violation.reason == "missing"
    assert refused.value.context_id == (await store.list_contexts()).contexts[0].context_id


async def test_the_request_id_of_the_server_is_in_the_error(client: AsyncClient) -> None:
    with pytest.raises(UnknownNameError) as unknown:
        await client.get_feature("totl_spend", "ada")
    assert unknown.value.response is not None
    assert unknown.value.response.request_id
