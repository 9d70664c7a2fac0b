"""Every declared verb is complete, logs what it changes, and is the same over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Never, get_args

import httpx
import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.access.errors import SlowCallError, TooManyCallsError
from headwater.client import AsyncClient, Client
from headwater.errors import InvalidInputError
from headwater.http.app import create_app
from headwater.http.routes.verbs import verb_routes
from headwater.http.routing.problems import RULES
from headwater.model.callers import AccessScope
from headwater.model.windows import EntityWindows
from headwater.settings.schema import Settings
from headwater.store.verbs.verb import LONG_AT_ONCE, Field, Verb, Verbs, verbs_of
from tests.client.conftest import KEY, URL
from tests.client.conftest import client as client
from tests.client.conftest import connect as connect
from tests.client.conftest import store as store
from tests.evaluations import RUN_ID, write_evaluation


def groups_of(store: FeatureStore) -> dict[str, Verbs]:
    """Return the store and its groups of verbs, by the name of their attribute."""
    groups = {name: group for name, group in vars(store).items() if isinstance(group, Verbs)}
    return {"": store, **groups}


def declared() -> Iterator[tuple[str, Verb]]:
    """Yield every declared verb with the name of its group."""
    for name, group in groups_of(FeatureStore(settings=Settings())).items():
        for verb in verbs_of(type(group)):
            yield name, verb


def member(owner: Any, group: str, verb: Verb) -> Any:
    """Return the method of a store or a client that is a verb."""
    return getattr(getattr(owner, group) if group else owner, verb.name)


VERBS = [pytest.param(*each, id=each[1].operation) for each in declared()]
READS = [
    pytest.param(group, verb, id=verb.operation)
    for group, verb in declared()
    if verb.changes is None and verb.is_repeatable
]

# They read, and their arguments are sent in a body because they are long or the action is.
READS_WITH_A_BODY = {
    "audit",
    "compare_versions",
    "export_outcomes",
    "find_copies",
    "list_documents",
    "replay_context",
    "search_index",
}


@pytest.mark.parametrize(("group", "verb"), VERBS)
def test_a_verb_states_its_scope_its_change_its_errors_and_an_example(
    group: str, verb: Verb
) -> None:
    documented = verb.function.__doc__ or ""
    assert verb.summary.partition("\n")[0].endswith(".")
    assert f"store.{group and group + '.'}{verb.name}(" in documented.partition(">>> ")[2]
    assert verb.scope in get_args(AccessScope)
    if verb.method != "GET":
        assert verb.changes or not verb.is_repeatable or verb.operation in READS_WITH_A_BODY
    else:
        assert verb.changes is None
    assert all(error in RULES for error in verb.raises)
    assert {*verb.path_names, *verb.notes} <= verb.fields.keys()
    assert verb.target is None or verb.target in verb.fields
    assert verb.changes or not (verb.audits_itself or verb.target or verb.notes)
    assert not (verb.audits_itself and (verb.target or verb.notes))


@pytest.mark.parametrize(("group", "verb"), VERBS)
def test_a_verb_has_a_blocking_form_in_the_process_and_over_http(group: str, verb: Verb) -> None:
    store = FeatureStore(settings=Settings())
    for owner in (store.sync, Client("http://localhost", settings=Settings())):
        assert member(owner, group, verb).__doc__ == verb.function.__doc__


def test_no_two_verbs_have_one_route_or_one_name_in_the_api() -> None:
    verbs = [verb for _, verb in declared()]
    assert len({verb.operation for verb in verbs}) == len(verbs)
    assert len({(verb.method, verb.path) for verb in verbs}) == len(verbs)


# As long as there are declarations, partitions or groups of workers, or one of them has versions.
LISTS_WITHOUT_A_LIMIT = {
    *("list_catalog", "list_indexes", "list_versions", "read_lag", "list_groups"),
    "list_sources",
    "read_outcome_documents",
}


def schema_of(field: Field) -> dict[str, Any]:
    """Return the JSON schema of an argument."""
    (schema,), _ = msgspec.json.schema_components([field.kind])
    return schema


def bounded_fields(verb: Verb) -> dict[str, Any]:
    """Return a value beyond the bound of each argument that names or asks for many rows."""
    beyond: dict[str, Any] = {}
    for name, field in verb.fields.items():
        schema = schema_of(field)
        if schema.get("maxItems") == verb.most:
            beyond[name] = ["x"] * (verb.most + 1)
        elif schema.get("maximum") == verb.most:
            beyond[name] = verb.most + 1
    return beyond


@pytest.mark.parametrize(("group", "verb"), VERBS)
def test_a_verb_bounds_the_rows_that_a_call_names_and_returns(group: str, verb: Verb) -> None:
    schemas = {name: schema_of(field) for name, field in verb.fields.items()}
    assert all("maxItems" in each for each in schemas.values() if each.get("type") == "array")
    assert all("maximum" in schemas[name] for name in schemas.keys() & {"limit", "top_k"})
    returns_rows = getattr(verb.returns, "__origin__", None) in (list, dict)
    if returns_rows and verb.operation not in LISTS_WITHOUT_A_LIMIT:
        assert bounded_fields(verb), "declare an argument with ROWS, or a list of arguments"


def request_of(verb: Verb, sent: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request for a verb, with examples for those that it requires."""
    named = {
        name: schema_of(field).get("examples", ["x"])[0]
        for name, field in verb.fields.items()
        if field.is_required
    } | sent
    path = verb.path.format(**{name: named.pop(name) for name in verb.path_names})
    place = "params" if verb.body is None else "json"
    return {"method": verb.method, "url": path, place: named}


BOUNDED = [each for each in VERBS if bounded_fields(each.values[1])]  # type: ignore[arg-type]


@pytest.mark.parametrize(("group", "verb"), BOUNDED)
async def test_a_request_for_more_rows_than_a_verb_may_have_is_refused(
    store: FeatureStore, group: str, verb: Verb
) -> None:
    async with over_http(store) as http:
        for name, value in bounded_fields(verb).items():
            response = await http.request(**request_of(verb, {name: value}))
            assert response.status_code == 422
            assert str(verb.most) in response.json()["detail"]


WITH_BODY = [each for each in VERBS if each.values[1].body is not None]  # type: ignore[union-attr]


@pytest.mark.parametrize(("group", "verb"), WITH_BODY)
async def test_a_body_that_is_larger_than_a_verb_may_have_is_refused(
    store: FeatureStore, group: str, verb: Verb
) -> None:
    largest = getattr(store.settings.http, verb.max_bytes)
    async with over_http(store) as http:
        request = request_of(verb, {})
        del request["json"]
        response = await http.request(**request, content=b" " * (largest + 1))
        assert response.status_code == 413


def over_http(store: FeatureStore) -> httpx.AsyncClient:
    """Return a client of a server of a store."""
    transport = httpx.ASGITransport(create_app(store))
    return httpx.AsyncClient(transport=transport, base_url=URL, headers={"x-api-key": KEY})


class Stuck:
    """Runs verbs that never end."""

    async def run(self, *_: Any) -> Never:
        await asyncio.Event().wait()
        raise AssertionError


def stuck_route(
    monkeypatch: pytest.MonkeyPatch, verb: Verb, owner: type[Verbs]
) -> Callable[..., Awaitable[Any]]:
    """Return the function of the route of a verb that never ends."""
    if verb.reply is not None:
        monkeypatch.setitem(vars(verb), "reply", verb.reply._replace(make=Stuck().run))
    declaring = next(kind for kind in owner.__mro__ if verb.name in vars(kind))
    routes = verb_routes(declaring(Stuck()), Settings())
    return next(each.function for each in routes if each.function.__name__ == verb.operation)


@pytest.mark.parametrize(("group", "verb"), VERBS)
async def test_a_verb_runs_as_often_at_the_same_time_as_it_may(
    monkeypatch: pytest.MonkeyPatch, store: FeatureStore, group: str, verb: Verb
) -> None:
    assert 1 <= verb.at_once <= (LONG_AT_ONCE if verb.is_long else 256)
    monkeypatch.setitem(vars(verb), "at_once", 2)
    call = stuck_route(monkeypatch, verb, type(groups_of(store)[group]))
    running = [asyncio.ensure_future(call()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyCallsError, match=f"2 requests run {verb.operation}"):
        await call()
    for task in running:
        task.cancel()


CUT_OFF = [each for each in VERBS if each.values[1].is_cut_off]  # type: ignore[union-attr]


@pytest.mark.parametrize(("group", "verb"), CUT_OFF)
async def test_a_verb_that_reads_ends_after_its_time(
    monkeypatch: pytest.MonkeyPatch, store: FeatureStore, group: str, verb: Verb
) -> None:
    assert 0 < verb.seconds <= 3_600
    monkeypatch.setitem(vars(verb), "seconds", 0.001)
    with pytest.raises(SlowCallError, match=r"0\.001 s"):
        await stuck_route(monkeypatch, verb, type(groups_of(store)[group]))()


@pytest.fixture
async def letter(store: FeatureStore) -> str:
    """Return the id of a dead letter of a store that also has a value."""
    await store.publish("purchase", "ada", {"amount": 5})
    await store.publish("purchase", "bob", {"no": "amount"})
    await store.drain()
    (letter,) = await store.dead_letters.list()
    return letter.id


async def cancel(store: FeatureStore) -> None:
    await store.backfills.run("total_spend")
    await store.backfills.cancel("total_spend")


DRIVEN: dict[str, Callable[[FeatureStore, str], Awaitable[Any]]] = {
    "dead_letters.redrive": lambda store, letter: store.dead_letters.redrive(letter),
    "dead_letters.discard": lambda store, letter: store.dead_letters.discard(letter),
    "backfills.run": lambda store, _: store.backfills.run("total_spend"),
    "backfills.cancel": lambda store, _: cancel(store),
    "unindex": lambda store, _: store.unindex("docs", "parcels"),
    "admin.prune": lambda store, _: store.admin.prune(records="30d"),
    "admin.forget": lambda store, _: store.admin.forget("User", "ada", reason="request 12"),
}


def test_every_verb_that_writes_its_own_audit_entry_is_driven_below() -> None:
    assert {verb.changes for _, verb in declared() if verb.audits_itself} == DRIVEN.keys()


@pytest.mark.parametrize("action", DRIVEN)
async def test_a_verb_that_writes_its_own_audit_entry_appends_one(
    store: FeatureStore, letter: str, action: str
) -> None:
    await DRIVEN[action](store, letter)
    (entry,) = (await store.audit_log(action=action)).entries
    assert entry.outcome == "done"


class Given:
    """The arguments of a call."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.args, self.named = args, named


@pytest.fixture
async def arguments(store: FeatureStore, letter: str) -> dict[str, Given]:
    """Return the arguments of the reading verbs that require some, by their names in the API."""
    await store.index("docs", "parcels", "Parcels arrive within 3 days.", {"lang": "en"})
    made = await store.assemble("support", {"user_id": "ada", "question": "Where?"})
    scored = await made.add_outcome(score="helpful", value=4)
    await store.backfills.run("total_spend")
    evaluations = Path(store.settings.eval.folder)
    write_evaluation(evaluations, await store.records.get(made.context_id))

    @entity(store)
    class Payer:
        payer_id: str

    @feature(entity=Payer, trigger="paid", window="1h", aggregate=["sum", "last(2)"])
    def paid(payer_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    return {
        "read_dead_letter": Given(letter),
        "read_windows": Given("paid", "ada"),
        "list_mentions": Given("User", "ada"),
        "list_versions": Given("total_spend"),
        "read_backfill": Given("total_spend"),
        "compare_versions": Given("total_spend"),
        "find_contexts": Given(feature="total_spend"),
        "read_context": Given(made.context_id),
        "explain_context": Given(made.context_id),
        "read_causes": Given(made.context_id),
        "diff_contexts": Given(made.context_id, made.context_id),
        "read_document": Given("docs", "parcels"),
        "list_documents": Given("docs", prefix="p", filters={"lang": "en"}),
        "search_index": Given("docs", "When do parcels arrive?", as_of=store.clock.now()),
        "replay_context": Given(made.context_id, "reassemble"),
        "find_copies": Given(made.context_id, "/inputs/question"),
        "list_outcomes": Given(made.context_id),
        "read_outcome": Given(scored.outcome_id),
        "read_outcome_documents": Given(made.context_id),
        "export_outcomes": Given(made.context_id),
        "read_evaluation": Given("last-month"),
        "list_evaluated_contexts": Given("last-month", RUN_ID),
        "read_evaluated_context": Given("last-month", RUN_ID, made.context_id),
    }


@pytest.mark.parametrize(("group", "verb"), VERBS)
async def test_an_option_that_a_verb_does_not_have_is_refused_and_never_ignored(
    store: FeatureStore, client: AsyncClient, group: str, verb: Verb
) -> None:
    for owner in (store, client):
        with pytest.raises((InvalidInputError, TypeError)):
            await member(owner, group, verb)(featur="total_spend")


@pytest.mark.parametrize(("group", "verb"), READS)
async def test_a_reading_verb_returns_over_http_what_it_returns_in_the_process(
    store: FeatureStore,
    client: AsyncClient,
    arguments: dict[str, Given],
    group: str,
    verb: Verb,
) -> None:
    given = arguments.get(verb.operation, Given())
    here = await member(store, group, verb)(*given.args, **given.named)
    there = await member(client, group, verb)(*given.args, **given.named)
    if isinstance(here, EntityWindows):  # of the moment of the read
        there = msgspec.structs.replace(there, as_of=here.as_of)
    assert there == here
