"""A store in which every input has been given a text that can be found again."""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path

import asyncpg

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.contention import write_contended
from headwater.messages.parts import Message, TextPart, ToolCall
from headwater.model.contexts import Overrides
from headwater.model.outcomes import Response, Usage


class Canary:
    """The inputs of a store, each with the text that it is given."""

    ENTITY_ID = "zqid01"
    PAYLOAD = "zqpayload02"
    EVENT_ID = "zqevent03"
    VALUE = "zqvalue04"
    IMPORTED = "zqimported05"
    QUERIED = "zqqueried06"
    COMPUTED = "zqcomputed07"
    RAISED = "zqraised08"
    PARAMETER = "zqparameter09"
    REFERENCE = "zqreference10"
    SEARCHED = "zqsearched11"
    RETRIEVED = "zqretrieved12"
    DOCUMENT = "zqdocument13"
    DOCUMENT_ID = "zqdocid14"
    METADATA = "zqmetadata15"
    HANDLED = "zqhandled16"
    HANDLED_ID = "zqhandledid17"
    SCHEDULED = "zqscheduled18"
    COUNTED = "zqcounted19"
    EXTERNAL = "zqexternal20"
    CONTRIBUTED = "zqcontributed44"
    KEY = "zqkey45"


class MessageCanary:
    """The parts of messages, and of outcomes, each with the text that it is given."""

    MESSAGE = "zqmessage21"
    TOOL = "zqtool22"
    SCHEMA = "zqschema23"
    ARGUMENT = "zqargument24"
    RESULT = "zqresult25"
    IMAGE = "zqimage26"
    IMAGE_URL = "zqurl27"
    REASONING = "zqreasoning28"
    BLOCK = "zqblock29"
    ANSWER = "zqanswer30"
    ANSWERED_CALL = "zqcalled31"
    RESPONSE_ID = "zqresponse32"
    USAGE = "zqusage33"
    ACTOR = "zqactor34"
    LABEL = "zqlabel35"
    EXPLANATION = "zqexplained36"
    IDENTIFIER = "zqidentifier37"
    NOTE = "zqnote38"
    LINK = "zqlink39"
    SOURCE_ID = "zqsource40"
    CORRECTION = "zqcorrection41"
    FAILED = "zqfailed42"
    OUTER = "zqouter43"


OF_MESSAGES = {text for name, text in vars(MessageCanary).items() if name.isupper()}
CANARIES = {text for name, text in vars(Canary).items() if name.isupper()} | OF_MESSAGES
OF_CONTEXTS = {
    *(Canary.PARAMETER, Canary.REFERENCE, Canary.SEARCHED, Canary.RETRIEVED, Canary.EXTERNAL),
    *OF_MESSAGES,
}
OF_OTHERS = {
    # What no feature of the user was read for: documents, and a text that was assembled elsewhere.
    Canary.EXTERNAL,
    *(Canary.DOCUMENT, Canary.DOCUMENT_ID, Canary.METADATA, Canary.HANDLED, Canary.HANDLED_ID),
}
USER, OTHER = Canary.ENTITY_ID, "somebody"


def own(text: str, user_id: str) -> str:
    """Return the text of an input of the user, or another if the input is not of that user."""
    return text if user_id == USER else "nothing"


def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


def declare(store: FeatureStore) -> None:
    """Declare features of every kind, an index, retrievers, and a context that uses them all."""
    Index(store, "notes", embedder=embed, model="lengths", dimensions=2)

    @entity(store)
    class User:
        user_id: str

    _declare_triggered(store, User)
    _declare_others(store, User)
    _declare_context(store)
    declare_messages(store)


def _declare_triggered(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="said")
    async def said(user_id: str, event: ServiceEvent) -> str:
        await store.index("notes", Canary.HANDLED_ID, f"about {Canary.HANDLED}")
        return str(event.payload["text"])

    @feature(entity=user, trigger="said", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> str:
        raise ValueError(f"{own(Canary.RAISED, user_id)} {event.payload}")

    @feature(entity=user, trigger="said")
    async def counted(user_id: str, event: ServiceEvent) -> str:
        return f"{own(Canary.COUNTED, user_id)} {event.payload['text']}"

    @feature(entity=user, trigger="said", window="7d", aggregate=["last(2)", "distinct"])
    async def heard(user_id: str, event: ServiceEvent) -> str:
        return own(Canary.CONTRIBUTED, user_id)

    @feature(entity=user, trigger="said", window="7d", aggregate="count", by="topic")
    async def topics(user_id: str, event: ServiceEvent) -> dict[str, str]:
        return {"topic": own(Canary.KEY, user_id)}

    @feature(entity=user, trigger="told")
    async def given(user_id: str, event: ServiceEvent) -> str:
        return "told"

    @feature(entity=user, trigger="told")
    async def imported(user_id: str, event: ServiceEvent) -> str:
        return "told"


def _declare_others(store: FeatureStore, user: type) -> None:
    people = "SELECT user_id, {} AS value FROM people"

    @feature(entity=user, refresh="1h", materialize=True, sql=people.format("name"))
    def queried(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, refresh="1h", materialize=True, sql=people.format("CAST(name AS int)"))
    def misread(user_id: str) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user, refresh="1h", materialize=True)
    async def scheduled(user_id: str) -> str:
        raise ValueError(own(Canary.SCHEDULED, user_id))

    @feature(entity=user, ttl="1h")
    async def computed(user_id: str) -> str:
        return f"{own(Canary.COMPUTED, user_id)} of {await store.get_feature('said', user_id)}"


def _declare_context(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="1h")
    async def lookup(query: str) -> list[str]:
        return [f"{Canary.RETRIEVED if Canary.PARAMETER in query else 'nothing'} {query}"]

    @retriever(store, index="notes", top_k=3, cache_ttl="1h")
    def nearest(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store)
    async def support(user_id: str, question: str) -> list[ContextItem]:
        query = f"{question} {own(Canary.SEARCHED, user_id)}"
        found = [*await lookup(question), *await nearest(query)]
        names = ["said", "given", "imported", "queried", "computed"]
        names += ["heard_last2_7d", "topics_count_7d"]
        values = (await store.get_features(names, [user_id]))[user_id]
        return [ContextItem(str(values)), *(ContextItem(chunk.text) for chunk in found)]


def declare_messages(store: FeatureStore) -> None:
    """Declare a context of messages with every part, and one with it inside."""

    def parts(user_id: str) -> list[ContextItem]:
        given = {name: own(text, user_id) for name, text in vars(MessageCanary).items()}
        schema = {"type": "object", "properties": {given["SCHEMA"]: {"type": "string"}}}
        return [
            ContextItem.tool("find", schema, given["TOOL"]),
            ContextItem(given["MESSAGE"], role="user"),
            ContextItem.reasoning(given["REASONING"]),
            ContextItem.reasoning(
                {"type": "thinking", "thinking": "", "signature": given["BLOCK"]}
            ),
            ContextItem.tool_call("find", {"text": given["ARGUMENT"]}, id="call"),
            ContextItem.tool_result("call", {"found": given["RESULT"]}),
            ContextItem.image(picture(given["IMAGE"])),
            ContextItem.image(f"https://example.test/{given['IMAGE_URL']}.png"),
        ]

    @context(store, model="gpt-4o")
    async def chat(user_id: str) -> list[ContextItem]:
        return [ContextItem(str(await store.get_feature("given", user_id))), *parts(user_id)]

    @context(store)
    async def outer(user_id: str) -> list[ContextItem]:
        inner = await chat(user_id)
        return [ContextItem(inner.content, source=inner)]


def picture(text: str) -> bytes:
    """Return a PNG of one pixel with a text in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + checksum

    size = (1).to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            chunk(b"IHDR", size + size + b"\x08\x00\x00\x00\x00"),
            chunk(b"tEXt", b"Comment\0" + text.encode()),
            chunk(b"IDAT", zlib.compress(b"\0\0")),
            chunk(b"IEND", b""),
        ]
    )


async def converse(store: FeatureStore, user_id: str) -> None:
    """Assemble messages about a user, and a context with them inside; add outcomes of each kind."""
    given = {name: own(text, user_id) for name, text in vars(MessageCanary).items()}
    chat = await store.assemble("chat", {"user_id": user_id})
    called = ToolCall(id="c", name="find", arguments={"text": given["ANSWERED_CALL"]})
    message = Message(role="assistant", parts=(TextPart(content=given["ANSWER"]), called))
    answer = Response(
        messages=(message,),
        response_id=given["RESPONSE_ID"],
        model="gpt-4o",
        usage=Usage(input=100, raw={"id": given["USAGE"]}),
    )
    add = partial(store.records.add_outcome, str(chat.context_id))
    await add(answer=answer, actor=given["ACTOR"], links={"trace": given["LINK"]})
    await add(
        score="tone",
        label=given["LABEL"],
        explanation=given["EXPLANATION"],
        identifier=given["IDENTIFIER"],
        source="langfuse",
        source_id=given["SOURCE_ID"],
    )
    await add(score="note", text=given["NOTE"])
    await add(correction=given["CORRECTION"])
    failed = Message(role="assistant", parts=(TextPart(content=given["FAILED"]),))
    await add(error=Response(messages=(failed,), error_type="RateLimitError"))
    outer = await store.assemble("outer", {"user_id": user_id})
    await store.records.add_outcome(str(outer.context_id), answer=given["OUTER"])


async def add_source(store: FeatureStore, folder: Path) -> None:
    """Fill the source of the SQL feature, a file or a table, and declare it."""
    file = folder / "people.csv"
    file.write_text(f"user_id,name\n{USER},{Canary.QUERIED}\n{OTHER},nobody\n")
    store.source("people", file)
    servers = store.settings.postgres
    if servers.url:
        database = await asyncpg.connect(servers.url)
        await database.execute(
            f"CREATE TABLE IF NOT EXISTS {servers.schema}.people (user_id text, name text)"
        )
        await database.execute(
            f"INSERT INTO {servers.schema}.people VALUES ($1, $2), ($3, 'nobody')",
            *(USER, Canary.QUERIED, OTHER),
        )
        await database.close()


async def fill(store: FeatureStore, folder: Path) -> None:
    """Give every input its text, all about one user, and others to another."""
    await add_source(store, folder)
    # Longer than a page of a database.
    payload = {"text": f"{Canary.PAYLOAD} " * 500}
    await store.publish("said", USER, payload, event_id=Canary.EVENT_ID)
    await store.publish("said", OTHER, {"text": "nothing"})
    await store.drain()
    await store.set_feature("given", USER, Canary.VALUE)
    (letter, *_) = await store.dead_letters.list(entity_id=USER)
    await store.dead_letters.redrive(letter.id)
    await store.admin.refresh("scheduled")
    await store.drain()
    for name in ("counted", "broken", "heard"):
        await store.backfills.run(name)
    await write_contended(await runtime_of(store).open(), {("User", USER): 1})
    table = folder / "imported.csv"
    table.write_text(f"user_id,timestamp,imported\n{USER},2025-12-31T00:00:00Z,{Canary.IMPORTED}\n")
    await store.history.import_file(table, ["imported"])
    table.write_text(f"user_id,timestamp,heard\n{USER},2025-12-31T00:00:00Z,{Canary.CONTRIBUTED}\n")
    await store.history.import_file(table, ["heard"])
    await store.admin.rebuild()
    await store.index(
        "notes", Canary.DOCUMENT_ID, f"about {Canary.DOCUMENT}", metadata={"name": Canary.METADATA}
    )
    await store.record_external(name="letter", content=f"Dear {Canary.EXTERNAL}")
    for user_id in (USER, OTHER):
        question, call = own(Canary.PARAMETER, user_id), own(Canary.REFERENCE, user_id)
        overrides = Overrides(interaction_ref={"call_id": call})
        await store.assemble("support", {"user_id": user_id, "question": question}, overrides)
        await converse(store, user_id)
