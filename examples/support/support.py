"""A support assistant: documents, the customer and the conversation in one request to a model.

headwater index build help help                        index the help pages
python support.py ada "How long does a parcel take?"   answer a customer, and remember the turn
headwater serve                                        see what the model was given, in a browser
"""

import asyncio
import os
import sys
from contextlib import ExitStack

import openai

import headwater
from headwater import (
    Context,
    ContextItem,
    Event,
    FeatureStore,
    Index,
    context,
    entity,
    event,
    feature,
)
from headwater.testing import ModelServer

RULES = "You answer customers of a tool shop, from the help pages that you are given. Be brief."

store = FeatureStore()
# Compares words, so it needs no model; docs/how-to/embeddings.md has those that compare meaning.
pages = Index(store, "help", chunk_tokens=60, overlap=0, embedder="lexical")
search_help = store.index_retriever("search_help", index=pages, top_k=3, cache_ttl="10m")


@entity(store)
class Customer:
    customer_id: str


@event(store, "purchase")
class Purchase:
    product: str
    amount: float


@event(store, "answered")
class Answered:
    question: str
    answer: str


@feature(entity=Customer, trigger="purchase", default="nothing yet", freshness="caught_up")
def last_product(customer_id: str, event: Event[Purchase]) -> str:
    return event.payload.product


@feature(entity=Customer, trigger="purchase", window="365d", aggregate="sum")
def spent(customer_id: str, event: Event[Purchase]) -> float:
    return event.payload.amount


@feature(entity=Customer, trigger="answered", default=[], freshness="caught_up")
async def conversation(customer_id: str, event: Event[Answered]) -> list[dict[str, str]]:
    """The last messages of the customer and the assistant, in the format of OpenAI."""
    before = await conversation.get(customer_id) or []
    asked = {"role": "user", "content": event.payload.question}
    answered = {"role": "assistant", "content": event.payload.answer}
    return [*before, asked, answered][-40:]


profile = store.template_feature(
    "profile",
    entity=Customer,
    template="The customer last bought: {last_product}. Spent in a year: {spent_sum_365d:.2f} EUR.",
)


@context(store, model="gpt-4o-mini", max_tokens=190, max_output=300, freshness_sla="5m")
async def support(customer_id: str, question: str) -> list[ContextItem]:
    """Everything that the model needs to answer; what does not fit is dropped by priority."""
    said = await conversation.get(customer_id) or []
    return [
        ContextItem(RULES, role="system", required=True),
        ContextItem.template("{profile}", role="system", priority=80),
        *ContextItem.conversation(said, priority=60, keep_last=2),
        *(
            ContextItem(chunk.text, priority=90 - rank, source=chunk)
            for rank, chunk in enumerate(await search_help(question))
        ),
        ContextItem(question, role="user", required=True),
    ]


async def answer(
    client: openai.AsyncOpenAI, customer_id: str, question: str
) -> tuple[Context, str]:
    """Answer a customer; the client was wrapped, so the answer is recorded with its context."""
    ctx = await support(customer_id, question)
    async with ctx:
        completion = await client.chat.completions.create(**ctx.to_openai())
    text = completion.choices[0].message.content or ""
    await store.publish("answered", customer_id, {"question": question, "answer": text})
    await store.drain()  # in a service a worker handles events: publish(…, wait="2s") waits for it
    return ctx, text


async def main(customer_id: str, question: str) -> None:
    with ExitStack() as stack:
        if "OPENAI_API_KEY" in os.environ:
            client = openai.AsyncOpenAI()
        else:
            stand_in = stack.enter_context(ModelServer())
            client = openai.AsyncOpenAI(base_url=f"{stand_in.url}/v1", api_key="none")
        async with store, headwater.wrap(client) as recorded:
            await store.drain()  # what happened since the last time
            ctx, text = await answer(recorded, customer_id, question)
            print(text)
            kept = f"{ctx.lineage.items_included} of {ctx.lineage.items_provided} items"
            print(
                f"{ctx.tokens} of {ctx.lineage.max_tokens} tokens, {kept}, {ctx.freshness_status}"
            )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
