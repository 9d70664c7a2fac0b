"""A FastAPI application with a store: `uvicorn main:app`, then http://localhost:8000/docs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from loyalty import Purchase, advice, store
from pydantic import BaseModel

from headwater import Context, FeatureStore, Worker, create_app
from headwater.errors import InvalidInputError, NotFoundError


class Customer(BaseModel):
    points: int
    last_product: str


class Question(BaseModel):
    text: str


class Answer(BaseModel):
    text: str
    context_id: str
    is_fresh: bool


class Feedback(BaseModel):
    helpful: bool


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store, and handle events in this process while the application runs."""
    async with store:
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        yield
        worker.stop()
        await working


def feature_store() -> FeatureStore:
    """Return the one store of the process, which tests may replace."""
    return store


Store = Annotated[FeatureStore, Depends(feature_store)]

app = FastAPI(title="A shop", lifespan=lifespan)
app.mount("/headwater", create_app(store))


@app.exception_handler(InvalidInputError)
async def refuse(request: Request, error: InvalidInputError) -> JSONResponse:
    """Answer invalid input with what is wrong, such as the field of an event."""
    return JSONResponse({"detail": str(error)}, 422)


@app.exception_handler(NotFoundError)
async def miss(request: Request, error: NotFoundError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


@app.post("/customers/{customer_id}/purchases", status_code=201)
async def buy(customer_id: str, purchase: Purchase, store: Store) -> Customer:
    """Publish a purchase, and return what it changed: it is visible when `wait` is over."""
    published = await store.publish("purchase", customer_id, purchase, wait="5s")
    if not published.visible:
        raise HTTPException(503, published.problem)
    return await customer(customer_id, store)


@app.get("/customers/{customer_id}")
async def customer(customer_id: str, store: Store) -> Customer:
    rows = await store.get_features(["points", "last_product"], [customer_id])
    return Customer(**rows[customer_id])


@app.post("/customers/{customer_id}/questions")
async def ask(customer_id: str, question: Question) -> Answer:
    """Answer a customer; the answer is recorded with what the model was given."""
    ctx = await advice(customer_id, question.text)
    text = await stand_in_for_the_model(ctx)
    await ctx.add_outcome(answer=text, model="stand-in")
    return Answer(text=text, context_id=ctx.context_id, is_fresh=ctx.is_fresh)


@app.post("/answers/{context_id}/feedback", status_code=204)
async def judge(context_id: str, feedback: Feedback, store: Store) -> None:
    """Keep what a person says about an answer, next to its record."""
    await store.records.add_outcome(
        context_id, score="helpful", flag=feedback.helpful, judge="human"
    )


async def stand_in_for_the_model(ctx: Context) -> str:
    """Return the facts as they are; ask a model here: `client.chat.completions.create(**body)`."""
    body = ctx.to_openai()
    return str(body["messages"][0]["content"]).rpartition("\n\n")[2]
