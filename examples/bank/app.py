"""The copilot as a web application: `uvicorn app:app`, then http://localhost:8000/docs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from events import ChatMessage, Payment, TicketOpened, store
from fastapi import FastAPI, HTTPException
from features import copilot, overdraft_risk, profile
from openai import AsyncOpenAI
from pydantic import BaseModel

from headwater import Context, Worker, create_app
from headwater.errors import EventError


class Question(BaseModel):
    text: str


class Answer(BaseModel):
    text: str
    context_id: str
    is_fresh: bool


class Overview(BaseModel):
    profile: str | None
    overdraft_risk: float | None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with store:
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        yield
        worker.stop()
        await working


app = FastAPI(title="Copilot of a bank", lifespan=lifespan)
app.mount("/headwater", create_app(store))


@app.post("/chat/{customer_id}")
async def chat(customer_id: str, question: Question) -> Answer:
    """Answer a customer; the context has the question, and all that happened before it."""
    asked = ChatMessage(role="customer", text=question.text)
    await publish("chat_message", customer_id, asked)
    context = await copilot(customer_id, question.text)
    text = await complete(context)
    await publish("chat_message", customer_id, ChatMessage(role="copilot", text=text))
    return Answer(text=text, context_id=context.context_id, is_fresh=context.is_fresh)


@app.post("/payments/{customer_id}")
async def pay(customer_id: str, payment: Payment) -> Overview:
    """Pay, and see at once what is left."""
    await publish("payment", customer_id, payment)
    return await overview(customer_id)


@app.post("/tickets/{ticket_id}")
async def open_ticket(ticket_id: str, ticket: TicketOpened) -> Overview:
    """Open a ticket of a customer."""
    await publish("ticket_opened", ticket_id, ticket)
    return await overview(ticket.customer_id)


@app.get("/customers/{customer_id}")
async def overview(customer_id: str) -> Overview:
    """Return what an advisor sees of a customer."""
    risk = await overdraft_risk.get(customer_id)
    return Overview(profile=await profile.get(customer_id), overdraft_risk=risk)


async def publish(
    event_type: str, entity_id: str, payload: ChatMessage | Payment | TicketOpened
) -> None:
    """Publish an event, and return when its features are visible."""
    try:
        published = await store.publish(event_type, entity_id, payload, wait="10s")
    except EventError as error:
        raise HTTPException(422, str(error)) from error
    if not published.visible:
        raise HTTPException(503, published.problem)


async def complete(context: Context) -> str:
    """Return the answer of a model; `OPENAI_BASE_URL` names another server than OpenAI's."""
    async with AsyncOpenAI() as model:
        answer = await model.chat.completions.create(**context.to_openai())
    return answer.choices[0].message.content or "I do not know."
