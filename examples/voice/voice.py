"""A voice agent: a small context for each turn of a call, and the whole call looked up later.

python voice.py call c-17    take a call, with what the caller says from a script
python voice.py show c-17    what was heard, said and shown to the model, turn by turn
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import openai

import headwater
from headwater import ContextItem, Event, FeatureStore, Worker, context, entity, event, feature
from headwater.testing import ModelServer

RULES = "You speak on the phone. Answer in one short sentence."
SCRIPT = ("Hello, where is my parcel?", "When will it arrive?", "Can a neighbour take my parcel?")
"""What the caller says; put your speech recognition in its place."""

store = FeatureStore()


@entity(store)
class Customer:
    customer_id: str


@entity(store, belongs_to={"customer_id": Customer})
class Call:
    call_id: str


@event(store, "parcel_moved")
class ParcelMoved:
    status: str


@event(store, "call_started")
class CallStarted:
    customer_id: str


@event(store, "turn_spoken")
class TurnSpoken:
    heard: str
    said: str


@feature(entity=Customer, trigger="parcel_moved", freshness="caught_up")
def parcel(customer_id: str, event: Event[ParcelMoved]) -> str | None:
    """Where the customer's last parcel is."""
    return event.payload.status


@feature(entity=Call, trigger=["call_started", "turn_spoken"], default=[], freshness="caught_up")
async def turns(call_id: str, event: Event[CallStarted | TurnSpoken]) -> list[dict[str, str]]:
    """What was said in the call."""
    if isinstance(event.payload, CallStarted):
        return []
    heard = {"role": "user", "content": event.payload.heard}
    said = {"role": "assistant", "content": event.payload.said}
    return [*(await turns.get(call_id) or []), heard, said]


@context(store, model="gpt-4o-mini", max_tokens=120, max_output=60, freshness_sla="10s")
async def turn(call_id: str, heard: str) -> list[ContextItem]:
    """What the model is given in one turn: little, because it is read before the first word."""
    customer_id = await store.get_feature("call_customer_id", call_id)
    status = await parcel.get(customer_id) or "There is no parcel on its way."
    return [
        ContextItem(RULES, role="system", required=True),
        ContextItem(status, role="system", priority=90),
        ContextItem("A neighbour can take a parcel.", role="system", priority=10),
        *ContextItem.conversation(await turns.get(call_id) or [], priority=50),
        ContextItem(heard, role="user", required=True),
    ]


async def sentences(words: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield whole sentences of a stream, so that speech begins before the answer ends."""
    text = ""
    async for word in words:
        *whole, text = re.split(r"(?<=[.?!])\s", text + word)
        for sentence in whole:
            yield sentence
    if text:
        yield text


async def reply(client: openai.AsyncOpenAI, call_id: str, index: int, heard: str) -> str:
    """Answer one turn of a call."""
    reference = {"call_id": call_id, "turn_id": f"{call_id}-{index}", "turn_index": index}
    ctx = await turn.options(interaction_ref=reference)(call_id, heard)
    said = []
    async with ctx:
        stream = await client.chat.completions.create(**ctx.to_openai(), stream=True)
        words = (part.choices[0].delta.content or "" async for part in stream if part.choices)
        async for sentence in sentences(words):
            print(f"{index} agent: {sentence}")  # to your text-to-speech
            said.append(sentence)
    spoken = {"heard": heard, "said": " ".join(said)}
    # While the caller listens, so nobody waits for it; the next turn has it.
    await store.publish("turn_spoken", call_id, spoken, wait="2s")
    return spoken["said"]


async def call(call_id: str, customer_id: str = "ada") -> None:
    """Take a call from its first ring to its end."""
    async with serving(), model() as client:
        moved = {"status": "The parcel is in Hamburg. It will arrive on Friday."}
        await store.publish("parcel_moved", customer_id, moved)
        await store.publish("call_started", call_id, {"customer_id": customer_id}, wait="2s")
        for index, heard in enumerate(SCRIPT):
            print(f"{index} caller: {heard}")
            await reply(client, call_id, index, heard)


async def show(call_id: str) -> None:
    """Print the recorded turns of a call: each context read a feature of it."""
    async with store:
        page = await store.records.find(entity="Call", entity_id=call_id, oldest_first=True)
        for summary in page.contexts:
            past = await store.get_context_at(summary.context_id)
            (answer,) = await store.records.outcomes(summary.context_id)
            assert past.interaction_ref is not None
            assert answer.response is not None
            print(
                f"turn {past.interaction_ref['turn_index']}: {past.tokens} tokens,",
                f"context after {past.lineage.assembly_ms:.1f} ms,",
                f"first word {answer.response.first_token_ms:.0f} ms later:",
                answer.response.messages[0].text,
            )


@asynccontextmanager
async def serving() -> AsyncIterator[None]:
    """Open the store, and handle events in this process."""
    async with store:
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        yield
        worker.stop()
        await working


@asynccontextmanager
async def model() -> AsyncIterator[openai.AsyncOpenAI]:
    """Yield a client that records answers; without a key, of a server that stands in for models."""
    with ExitStack() as stack:
        if "OPENAI_API_KEY" in os.environ:
            client = openai.AsyncOpenAI()
        else:
            stand_in = stack.enter_context(ModelServer())
            client = openai.AsyncOpenAI(base_url=f"{stand_in.url}/v1", api_key="none")
        async with headwater.wrap(client) as recorded:
            yield recorded


if __name__ == "__main__":
    asyncio.run({"call": call, "show": show}[sys.argv[1]](*sys.argv[2:]))
