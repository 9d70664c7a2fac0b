"""The copilot of the bank, from its past to a chat: `pytest examples/bank`."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from app import app
from events import store
from fastapi.testclient import TestClient

from headwater.testing import ModelServer

HERE = Path(__file__).parent
HEADWATER = (sys.executable, "-m", "headwater")


def run(*command: str) -> str:
    """Run a command of the README in the folder of the example; return what it prints."""
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained() -> Iterator[str]:
    """Fill a store with the past and the pages, and yield what the training prints."""
    run(*HEADWATER, "events", "load", "past.jsonl")
    run(*HEADWATER, "index", "build", "pages", "pages.jsonl")
    yield run(sys.executable, "training.py")
    shutil.rmtree(os.environ["HEADWATER_HOME"])


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    """Yield a server that answers with the sentence that fits the question best."""
    with ModelServer() as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


@pytest.fixture(scope="module")
def bank(trained: str, model: ModelServer) -> Iterator[TestClient]:
    """Yield a client of the running application."""
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        yield client


def test_the_model_learns_from_what_was_known_at_each_review(
    bank: TestClient, trained: str
) -> None:
    assert trained == "trained: 96% of the past reviews are right\n"
    careful, careless = (risk_of(bank, customer_id) for customer_id in ("c-1", "c-3"))
    assert careful < 0.1 < 0.9 < careless


def test_a_chat_turn_is_in_the_context_that_answers_it(
    bank: TestClient, model: ModelServer
) -> None:
    question = "What do I do about my lost debit card?"
    answer = bank.post("/chat/c-1", json={"text": question}).json()
    assert "lost" in answer["text"].lower()
    assert answer["is_fresh"]
    assert f"customer: {question}" in conversation(model)
    assert "Ada Brandt (private, speaks English)" in conversation(model)
    bank.post("/chat/c-1", json={"text": "And how long does that take?"})
    assert f"copilot: {answer['text']}" in conversation(model)


def test_a_payment_is_visible_when_its_request_returns(bank: TestClient) -> None:
    before = risk_of(bank, "c-2")
    paid = bank.post("/payments/c-2", json={"amount": 1_500, "merchant": "Jeweller"}).json()
    assert paid["overdraft_risk"] > before
    assert paid == bank.get("/customers/c-2").json()


def test_a_payment_that_is_none_is_refused_with_its_field(bank: TestClient) -> None:
    refused = bank.post("/payments/c-2", json={"amount": -5, "merchant": "Jeweller"})
    assert refused.status_code == 422
    assert "payload.amount" in refused.json()["detail"]


def test_a_ticket_counts_for_its_customer_and_is_forgotten_with_them(bank: TestClient) -> None:
    ticket = {"customer_id": "c-12", "subject": "my new address"}
    assert "1 open tickets" in bank.post("/tickets/t-1", json=ticket).json()["profile"]
    assert call(bank, store.get_feature, "ticket_line", "t-1") == "my new address: open"
    report = call(bank, store.admin.forget, "Customer", "c-12", reason="asked for it")
    assert dict(report.belonging) == {"Ticket": ["t-1"]}
    assert call(bank, store.get_feature, "subject", "t-1") is None


def test_the_credit_line_is_set_at_six_in_the_morning_of_weekdays() -> None:
    shown = json.loads(run(*HEADWATER, "features", "show", "credit_line", "--json"))
    assert shown["schedule"] == "at 06:00 on Monday through Friday, Europe/Berlin"
    for run_at in map(datetime.fromisoformat, shown["next_runs"]):
        assert (run_at.hour, run_at.minute) == (6, 0)
        assert run_at.weekday() < 5


def test_there_are_sixteen_features_and_thirty_pages(bank: TestClient) -> None:
    listed = json.loads(run(*HEADWATER, "features", "list", "--json"))
    declared = [each for each in listed if each["window"] is None and not each["belongs_to"]]
    assert len(declared) == 16
    assert {each["mode"] for each in declared} == {
        *("triggered", "scheduled", "stored", "template", "on_demand"),
    }
    (status,) = call(bank, store.indexes.list)
    assert status.documents == 30


def risk_of(bank: TestClient, customer_id: str) -> float:
    return float(bank.get(f"/customers/{customer_id}").json()["overdraft_risk"])


def conversation(model: ModelServer) -> str:
    """Return the texts that the model was given last."""
    return "\n".join(str(message["content"]) for message in model.requests[-1]["messages"])


def call(bank: TestClient, verb: Any, *arguments: object, **named: object) -> Any:
    """Call a verb of the store in the application."""
    assert bank.portal is not None
    return bank.portal.call(partial(verb, *arguments, **named))
