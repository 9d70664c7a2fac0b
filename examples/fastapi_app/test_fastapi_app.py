"""The routes, and the API of the store below them: `pytest` in this folder."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from loyalty import store
from main import app, lifespan

from headwater.testing import temporary


@asynccontextmanager
async def temporary_lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with temporary(store), lifespan(app):
        yield


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(app.router, "lifespan_context", temporary_lifespan)
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        yield client


def test_a_purchase_is_visible_when_its_request_returns(client: TestClient) -> None:
    bought = client.post("/customers/ada/purchases", json={"product": "tent", "amount": 250})
    assert bought.status_code == 201
    assert bought.json() == {"points": 350, "last_product": "tent"}
    assert client.get("/customers/ada").json() == bought.json()
    assert client.get("/customers/bob").json() == {"points": 0, "last_product": "nothing yet"}


def test_an_invalid_purchase_is_refused_with_its_field(client: TestClient) -> None:
    refused = client.post("/customers/ada/purchases", json={"product": "tent", "amount": -5})
    assert refused.status_code == 422
    assert "amount" in refused.json()["detail"]
    assert client.get("/customers/ada").json()["points"] == 0


def test_an_answer_is_recorded_and_judged(client: TestClient) -> None:
    client.post("/customers/ada/purchases", json={"product": "tent", "amount": 250})
    answer = client.post("/customers/ada/questions", json={"text": "Is it a voucher?"}).json()
    assert answer["text"] == "The customer has 350 points and last bought: tent."
    assert answer["is_fresh"]
    judged = client.post(f"/answers/{answer['context_id']}/feedback", json={"helpful": False})
    assert judged.status_code == 204
    found = client.get("/headwater/v1/contexts", params={"score": "helpful=false"}).json()
    assert [each["context_id"] for each in found["contexts"]] == [answer["context_id"]]


def test_feedback_about_an_unknown_answer_is_not_found(client: TestClient) -> None:
    unknown = "/answers/01a1de13-6731-767b-b9ee-76ce545fa0ef/feedback"
    assert client.post(unknown, json={"helpful": True}).status_code == 404


def test_the_api_of_the_store_is_below_a_path(client: TestClient) -> None:
    read = client.get("/headwater/v1/features/points", params={"entity_id": "ada"})
    assert read.json()["value"] == 0
    assert client.get("/headwater/healthz").status_code == 200
