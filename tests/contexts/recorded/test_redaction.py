"""Erasing a value everywhere: equal values, and texts that contain it as templates write it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.errors import RedactionError, ReplayError
from headwater.records.redaction import also_disclosed
from headwater.settings.schema import Settings


class Colour(Enum):
    RED = "crimson"


class Address(msgspec.Struct, rename="camel", omit_defaults=True, tag=True):
    street_name: str
    number: int = 1


@dataclass
class Patient:
    name: str
    born: date
    seen: datetime


class Place(NamedTuple):
    north: float
    east: float


BORN = date(1981, 5, 4)
SEEN = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)
QUOTED = 'Zoë "Z" Müller\n\\o/ 😀'

VALUES: dict[str, tuple[Any, Any]] = {
    "text": (str, "quibbledash"),
    "text with quotes": (str, QUOTED),
    "integer": (int, 7731991),
    "float": (float, 1e22),
    "decimal": (Decimal, Decimal("77.10")),
    "date": (date, BORN),
    "datetime": (datetime, SEEN),
    "datetime elsewhere": (datetime, SEEN.astimezone(timezone(timedelta(hours=5.5)))),
    "time": (time, time(3, 4, 5)),
    "duration": (timedelta, timedelta(days=3, seconds=90)),
    "uuid": (UUID, UUID(int=7)),
    "bytes": (bytes, b"\x00\xfb\xff?>"),
    "enum": (Colour, Colour.RED),
    "list of texts": (list[str], ["diabetes", "smoker"]),
    "list of numbers": (list[float], [0.5, 1e22, 3.0]),
    "list of dates": (list[date], [BORN, date(1983, 1, 2)]),
    "list of moments": (list[datetime], [SEEN]),
    "list of quotes": (list[str], [QUOTED, "smoker"]),
    "list of lists": (list[list[int]], [[1, 2], [3]]),
    "tuple": (tuple[str, int], ("diabetes", 3)),
    "set": (set[str], {QUOTED}),
    "frozen set": (frozenset[int], frozenset({991})),
    "mapping": (dict[str, Any], {"name": QUOTED, "age": 45, "ill": True, "since": None}),
    "mapping by number": (dict[int, str], {10: "diabetes", 9: "smoker"}),
    "mapping by date": (dict[date, Decimal], {BORN: Decimal("77.10")}),
    "struct": (Address, Address("Rue des Lilas")),
    "list of structs": (list[Address], [Address("Rue des Lilas", 7), Address("Am Ufer")]),
    "dataclass": (Patient, Patient(QUOTED, BORN, SEEN)),
    "named tuple": (Place, Place(52.5, 13.4)),
}


@pytest.fixture
async def own(home: Path) -> AsyncIterator[FeatureStore]:
    """An embedded store."""
    store = FeatureStore(settings=Settings().replace(home=home))
    yield store
    await store.close()


def _declare(store: FeatureStore, annotation: Any) -> None:
    """Declare a feature of some type, and a template feature that uses it."""

    @entity(store)
    class User:
        user_id: str

    async def secret(user_id: str, event: ServiceEvent) -> Any:
        return event.payload

    secret.__annotations__["return"] = annotation
    feature(entity=User, trigger="told")(secret)

    @feature(entity=User, template="known: {secret}.")
    def blurb(user_id: str) -> str:
        return ""


@pytest.mark.parametrize("kind", VALUES)
async def test_a_feature_is_erased_from_all_templates_that_show_it(
    own: FeatureStore, kind: str
) -> None:
    annotation, value = VALUES[kind]
    _declare(own, annotation)

    @context(own)
    async def told(user_id: str) -> list[ContextItem]:
        await own.get_feature("secret", user_id)
        return [
            ContextItem.template("Of this one: {secret}."),
            ContextItem.template("{blurb}"),
            ContextItem("Nothing about anybody."),
        ]

    await own.set_feature("secret", "u1", value)
    made = await told("u1")
    places = {read.feature: at for at, read in enumerate(made.lineage.features)}
    secret, blurb = (f"/features/{places[name]}/value" for name in ("secret", "blurb"))
    redacted = await own.records.redact(made.context_id, secret, reason="asked to", everywhere=True)
    of_blurb = f"/features/{places['blurb']}/inputs/0/value"
    texts = {"/items/0/content", "/items/1/content", "/output/content"}
    gone = {secret, blurb, of_blurb, *texts}
    assert {note.pointer for note in redacted.redactions} == gone
    assert (await own.records.verify(made.context_id)).ok


async def test_an_input_is_erased_in_every_text_that_contains_it(own: FeatureStore) -> None:
    @context(own)
    async def told(name: str, weight: int) -> list[ContextItem]:
        return [
            ContextItem(f"Of {name}, who weighs {weight}kg."),
            ContextItem(json.dumps({"name": name})),
            ContextItem(f"Weighs {weight}0 grams."),
        ]

    made = await told("Zoe", 8213)
    before = await own.get_record(made.context_id)
    assert also_disclosed(before, "/inputs/weight") == ["/items/0/content", "/output/content"]
    redacted = await own.records.redact(
        made.context_id, "/inputs/name", reason="asked to", everywhere=True
    )
    assert [note.pointer for note in redacted.redactions] == [
        "/inputs/name",
        "/items/0/content",
        "/items/1/content",
        "/output/content",
    ]


@pytest.mark.parametrize("everywhere", [True, False])
async def test_an_output_that_is_erased_everywhere_cannot_be_put_together_again(
    own: FeatureStore, everywhere: bool
) -> None:
    @context(own, max_tokens=12)
    async def told(said: str) -> list[ContextItem]:
        return [
            ContextItem("Of Jane Roe.", required=True),
            ContextItem(said, truncate=True),
            ContextItem("Nothing about anybody. " * 9, priority=-1),
        ]

    made = await told("She is ill, and nobody may know of it, nor where she lives in the city.")
    assert made.lineage.items_truncated == made.lineage.items_dropped == 1
    before = await own.get_record(made.context_id)
    texts = ["/inputs/said", "/items/0/content", "/items/1/content", "/items/1/emitted"]
    assert also_disclosed(before, "/output/content") == texts
    redacted = await own.records.redact(
        made.context_id, "/output/content", reason="asked to", everywhere=everywhere
    )
    gone = ["/output/content", *(texts if everywhere else [])]
    assert [note.pointer for note in redacted.redactions] == gone
    assert (await own.records.verify(made.context_id)).ok
    if everywhere:
        with pytest.raises(ReplayError, match="/items/0/content"):
            await own.replay(made.context_id, "reassemble")


@pytest.mark.both_environments
@pytest.mark.parametrize("include_content", [True, False])
async def test_a_redaction_drops_cached_searches(
    settings: Settings, *, include_content: bool
) -> None:
    texts = ["Zoë Müller is ill."]
    chosen = settings.replace(record={"include_content": include_content})
    async with FeatureStore(settings=chosen) as store:

        @retriever(store, cache_ttl="1h")
        async def search(query: str) -> list[str]:
            return list(texts)

        @context(store)
        async def advice(query: str) -> list[ContextItem]:
            return [ContextItem(chunk.text) for chunk in await search(query)]

        made = await advice("ill")
        await search("another question with the same result")
        texts[:] = ["Nobody is ill."]
        assert (await search("ill"))[0].text == "Zoë Müller is ill."
        if include_content:
            pointer = "/retrievals/0/results/0/content"
            await store.records.redact(made.context_id, pointer, reason="asked", everywhere=True)
        else:
            with pytest.raises(RedactionError):
                await store.records.redact(made.context_id, "/inputs/query", reason="asked")
        for query in ("ill", "another question with the same result"):
            assert (await search(query))[0].text == "Nobody is ill."


@pytest.mark.both_environments
async def test_copies_are_found_in_the_records_of_inner_contexts(settings: Settings) -> None:
    async with FeatureStore(settings=settings) as store:

        @context(store)
        async def innermost(name: str) -> str:
            return f"Dear {name},"

        @context(store)
        async def inner(name: str) -> str:
            return (await innermost(name)).content

        @context(store)
        async def unrelated() -> str:
            return "Be brief."

        @context(store)
        async def outer(people: list[str]) -> list[ContextItem]:
            texts = [(await inner(person)).content for person in people]
            return [ContextItem(text) for text in (*texts, (await unrelated()).content)]

        made = await outer(["Zoë Müller"])
        ids = {nested.name: nested.context_id for nested in made.lineage.contexts}
        copies = await store.records.copies(made.context_id, "/inputs/people")
    assert copies.pop(made.context_id) == ["/items/0/content", "/output/content"]
    assert copies.pop(ids["inner"]) == ["/inputs/name", "/items/0/content", "/output/content"]
    (innermost_copies,) = copies.values()
    assert innermost_copies == ["/inputs/name", "/items/0/content", "/output/content"]
