"""Every error of the page about errors is provoked, and its message begins as it is quoted."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from dev.reference.remedies import PAGE, classes_of, remedies
from headwater import (
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    event,
    feature,
)
from headwater.access.guard import check_address
from headwater.client import AsyncClient
from headwater.errors import HeadwaterError
from headwater.http.app import create_app
from headwater.model.problems import TYPE_PREFIX
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from tests.http.key_files import add_key, sent

_QUOTE = re.compile(r"^### (\S+)\n\n```text\n(.*?)\n```$", re.S | re.M)
QUOTES = dict(_QUOTE.findall(PAGE.read_text(encoding="utf-8")))

_HEAD = """\
from headwater import FeatureStore, entity, feature
store = FeatureStore()
@entity(store)
class User:
    user_id: str
@feature(entity=User)
def total_spend(user_id: str) -> float:
    return 0.0
"""
FILES = {
    "FeaturesFileError": "from headwater import FeatureStore\n",
    "DeclarationError": _HEAD + "@feature(entity=User)\ndef joined(user_id: str) -> None: ...\n",
    "UnknownReferenceError": _HEAD
    + 'blurb = store.template_feature("blurb", entity=User, template="spent {totl_spend}")\n',
    "DuplicateNameError": _HEAD
    + "@feature(entity=User)\ndef total_spend(user_id: str) -> float:\n    return 1.0\n",
}

CALLS: dict[str, Callable[[FeatureStore], Awaitable[object]]] = {
    "UnknownNameError": lambda store: store.get_feature("totl_spend", "ada"),
    "EventError": lambda store: store.publish("purchase", "ada", {"amount": "forty"}),
    "DurationError": lambda store: store.publish("viewed", "ada", {}, wait="5 minutes"),
    "FeatureValueError": lambda store: store.set_feature("total_spend", "ada", "much"),
    "FeatureFailedError": lambda store: store.get_feature("risk", "ada"),
    "FieldError": lambda store: store.assemble("support", {"user_id": "ada"}),
    "TokenBudgetError": lambda store: store.assemble("lengthy", {"user_id": "ada"}),
    "FreshnessSLAError": lambda store: store.assemble("strict", {"user_id": "ada"}),
    "ContextFailedError": lambda store: store.assemble("broken", {"user_id": "ada"}),
    "UnknownContextError": lambda store: store.records.get("0190aaaa"),
    "MissingApiKeyError": lambda store: store.index("manuals", "d1", "A document."),
}

_NOWHERE = "127.0.0.1:9"
SETTINGS: dict[str, Mapping[str, Any]] = {
    "BackendUnavailableError": {
        "redis": {"url": f"redis://{_NOWHERE}"},
        "postgres": {"url": f"postgresql://{_NOWHERE}/headwater"},
    },
    "HomeError": {"home": "headwater.toml"},
    "SigningKeyError": {"signing_key": "secret"},
}


class Refused(NamedTuple):
    """A request that is refused, and the scope and limits of its key."""

    request: Mapping[str, Any]
    scope: str | None = None
    limits: Mapping[str, Any] = {}


_READ = {"method": "GET", "url": "/v1/features/total_spend?entity_id=ada"}
_INGEST = {"method": "POST", "url": "/ingest/purchase"}
_JSON = {"content-type": "application/json"}
REQUESTS = {
    "foreign-request": Refused(_READ | {"headers": {"host": "shop.example"}}),
    "malformed": Refused(_INGEST | {"content": "{'entity_id': 'ada'}", "headers": _JSON}),
    "media-type": Refused(_INGEST | {"data": {"entity_id": "ada"}}),
    "too-large": Refused(_INGEST | {"json": {"entity_id": "a" * 2_000}}),
    "backlog": Refused(_INGEST | {"json": {"entity_id": "ada", "payload": {"amount": 1.0}}}),
    "key-required": Refused(_READ | {"headers": sent("")}, "read"),
    "scope": Refused(_READ, "ingest"),
    "CallerLimitError": Refused(_READ, "read", {"tenant": "acme-"}),
    "too-many-requests": Refused(_READ, "read", {"rate_limit": 0.01}),
}


def shop(settings: Settings, owner: str = "User", amount: type = float) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @event(store, "purchase")
    class Purchase:
        amount: float

    @entity(store, name=owner)
    class User:
        user_id: str

    def total_spend(user_id: str, event: ServiceEvent) -> Any:
        return amount(event.payload["amount"])

    total_spend.__annotations__["return"] = amount
    feature(entity=User, trigger="purchase")(total_spend)

    @feature(entity=User)
    def risk(user_id: str) -> float:
        return 1 / 0

    @feature(entity=User, trigger="viewed")
    def views(user_id: str, event: ServiceEvent) -> int:
        return 1

    Index(store, "manuals", embedder="openai")
    declare_contexts(store)
    return store


def declare_contexts(store: FeatureStore) -> None:
    @context(store)
    def support(user_id: str, question: str) -> ContextItem:
        return ContextItem(question)

    @context(store, max_tokens=20)
    def lengthy(user_id: str) -> ContextItem:
        return ContextItem("You are a support agent. " * 10, required=True)

    @context(store, freshness_sla="1m", freshness_strict=True)
    def strict(user_id: str) -> ContextItem:
        return ContextItem.template("{views}")

    @context(store)
    def broken(user_id: str) -> ContextItem:
        return ContextItem(str(1 / 0))


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of an embedded store in the working directory."""
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "HEADWATER_EMBEDDINGS_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "headwater.toml").touch()
    return Settings().replace(home=tmp_path / "home", keys_file=str(tmp_path / "keys.toml"))


def check(name: str, message: object) -> None:
    """Check that a message begins as the page quotes it; `…` stands for any text."""
    pattern = ".*?".join(map(re.escape, QUOTES[name].split("…")))
    assert re.match(pattern, str(message), re.S), f"{name} is quoted otherwise:\n{message}"


@contextmanager
def fails(name: str) -> Iterator[None]:
    """Check that the block raises an error with the quoted message."""
    with pytest.raises(HeadwaterError) as failed:
        yield
    assert name in {kind.__name__ for kind in type(failed.value).__mro__}
    check(name, failed.value)


@pytest.mark.parametrize("name", FILES)
def test_a_features_file_is_refused_as_quoted(name: str, embedded: Settings) -> None:
    file = Path("features.py")
    file.write_text(FILES[name], encoding="utf-8")
    with fails(name):
        load_store(file)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_fails_as_quoted(name: str, embedded: Settings) -> None:
    async with shop(embedded) as store:
        with fails(name):
            await CALLS[name](store)


@pytest.mark.parametrize("name", SETTINGS)
async def test_settings_are_refused_as_quoted(name: str, embedded: Settings) -> None:
    with fails(name):
        async with shop(embedded.replace(**SETTINGS[name])) as store:
            await store.get_feature("total_spend", "ada")


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_is_refused_as_quoted(name: str, embedded: Settings) -> None:
    request, scope, limits = REQUESTS[name]
    if scope:
        key = add_key(Path(embedded.keys_file), "acme", scope, **limits)
        request = {"headers": sent(key), **request}
    bounds = {"http": {"max_body_bytes": 1_000}, "ingest": {"max_backlog": 1}}
    async with shop(embedded.replace(**bounds)) as store:
        transport = httpx.ASGITransport(create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.request(**request)  # the first one may be within a limit
            problem = (await client.request(**request)).json()
    kind = problem["type"].removeprefix(TYPE_PREFIX)
    assert name in (kind, *classes_of(kind))
    check(name, problem["detail"])


def test_an_unknown_setting_is_refused_as_quoted(embedded: Settings) -> None:
    Path("headwater.toml").write_text("[worker]\nconcurency = 4\n", encoding="utf-8")
    with fails("UnknownSettingError"):
        FeatureStore()


def test_an_open_address_without_a_key_is_refused_as_quoted(embedded: Settings) -> None:
    with fails("ConfigError"):
        check_address(embedded, "0.0.0.0")


async def test_a_missing_extra_is_named_as_quoted(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "headwater.records.ed25519", raising=False)
    # An imported module is found without its package.
    needed = "cryptography.hazmat.primitives.asymmetric.ed25519"
    monkeypatch.setitem(sys.modules, needed, None)
    with fails("MissingExtraError"):
        await shop(embedded.replace(signing_key="ed25519:audit:AAAA")).open()


async def test_missing_tables_are_named_as_quoted(new_production: Settings) -> None:
    with fails("SchemaError"):
        await shop(new_production.replace(env="production")).open()


async def test_a_changed_event_is_refused_as_quoted(embedded: Settings) -> None:
    async with shop(embedded) as store:
        await store.publish("purchase", "ada", {"amount": 1.0}, event_id="order-1")
        with fails("EventConflictError"):
            await store.publish("purchase", "ada", {"amount": 2.0}, event_id="order-1")


async def test_a_changed_feature_is_refused_as_quoted(embedded: Settings) -> None:
    async with shop(embedded) as store:
        await store.publish("purchase", "ada", {"amount": 1.0})
        await store.drain()
    async with shop(embedded, amount=str) as store:
        with fails("TypeChangedError"):
            await store.drain()
    async with shop(embedded, owner="Customer") as store:
        with fails("EntityChangedError"):
            await store.get_feature("total_spend", "ada")


async def test_a_server_that_does_not_run_is_named_as_quoted() -> None:
    async with AsyncClient(f"http://{_NOWHERE}", retries=0) as client:
        with fails("ServerUnreachableError"):
            await client.get_feature("total_spend", "ada")


def test_every_section_quotes_a_message_that_is_provoked() -> None:
    of_one_test = re.findall(r'fails\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8"))
    provoked = {*FILES, *CALLS, *SETTINGS, *REQUESTS, *of_one_test}
    assert provoked == remedies() == QUOTES.keys()


def test_every_section_leads_to_a_page_with_more() -> None:
    parts = re.split(r"^###? (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert [name for name in QUOTES if not re.search(r"\]\([\w./-]+\.md", texts[name])] == []
