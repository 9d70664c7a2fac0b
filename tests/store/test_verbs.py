"""Every declared verb is complete, logs what it changes, and is the same over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_args

import pytest

from headwater import FeatureStore
from headwater.client import AsyncClient, Client
from headwater.http.routing.problems import RULES
from headwater.model.callers import AccessScope
from headwater.settings.schema import Settings
from headwater.store.verbs.verb import Verb, Verbs, verbs_of
from tests.client.conftest import client as client
from tests.client.conftest import connect as connect
from tests.client.conftest import store as store


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
    if verb.changes is None
]

# They read, and their arguments are sent in a body because they are long or the action is.
READS_WITH_A_BODY = {"audit", "compare_versions", "find_copies"}


@pytest.mark.parametrize(("group", "verb"), VERBS)
def test_a_verb_states_its_scope_its_change_its_errors_and_an_example(
    group: str, verb: Verb
) -> None:
    documented = verb.function.__doc__ or ""
    assert verb.summary.partition("\n")[0].endswith(".")
    assert f"store.{group and group + '.'}{verb.name}(" in documented.partition(">>> ")[2]
    assert verb.scope in get_args(AccessScope)
    if verb.method != "GET":
        assert verb.changes or verb.operation in READS_WITH_A_BODY
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
    made = await store.assemble("support", {"user_id": "ada", "question": "Where?"})
    await store.backfills.run("total_spend")
    return {
        "read_dead_letter": Given(letter),
        "list_versions": Given("total_spend"),
        "read_backfill": Given("total_spend"),
        "compare_versions": Given("total_spend"),
        "find_contexts": Given(feature="total_spend"),
        "read_context": Given(made.context_id),
        "explain_context": Given(made.context_id),
        "read_causes": Given(made.context_id),
        "diff_contexts": Given(made.context_id, made.context_id),
        "find_copies": Given(made.context_id, "/inputs/question"),
    }


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
    assert await member(client, group, verb)(*given.args, **given.named) == here
