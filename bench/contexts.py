"""Our contexts: three features and about 2,000 tokens never counted before, each recorded."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from msgspec.structs import replace
from uuid_utils import uuid7

from bench.case import Effort
from bench.features import store
from bench.floors import Measuring, Rate, calls_per_second
from bench.ours import calls_per_second as calls_awaited_per_second
from bench.ours import one_loop, profile, publish_all
from bench.paragraphs import TOKENS, paragraphs
from headwater import Context, ContextItem, context
from headwater.contexts.budget import BudgetPolicy, Candidate, fit
from headwater.core.tokens import tokenizer_for
from headwater.declarations.contexts import ContextFunction
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine
from headwater.messages.parts import Role
from headwater.ports import RecordLog, StoredOutcome
from headwater.records.core import Core
from headwater.records.sealing import open_core, seal

MODEL = "gpt-4o"
ENTITIES = 100
CANDIDATES = 1_000


@context(store, max_tokens=2 * TOKENS, freshness_sla="1h", model=MODEL)
async def support(user_id: str, question: str) -> list[ContextItem]:
    values = await store.get_features(["f0", "f1", "f2"], [user_id])
    return [
        ContextItem("You are a support agent.", priority=100, required=True),
        ContextItem(f"About the customer: {values[user_id]}", priority=90),
        *(ContextItem(text, priority=50) for text in paragraphs()),
    ]


ROLES: tuple[Role, ...] = ("user", "assistant")
TURNS = [
    (role, f"{number}: {text}")
    for number in range(10)
    for role, text in zip(ROLES, paragraphs()[:2], strict=True)
]
"""A conversation of twenty messages."""


@context(store, max_tokens=100 * TOKENS, model=MODEL)
async def chat(question: str) -> list[ContextItem]:
    return [ContextItem(text, role=role, turn=turn) for turn, (role, text) in enumerate(TURNS)]


@context(store, max_tokens=100 * TOKENS, model=MODEL)
async def chat_as_text(question: str) -> list[ContextItem]:
    return [ContextItem(text) for _, text in TURNS]


async def prepare() -> None:
    await publish_all([profile(number) for number in range(ENTITIES)])
    await store.drain()
    made = await support("u0", "Where is my parcel?")
    assert made.meta["recorded"]
    assert TOKENS * 0.9 < made.tokens < TOKENS * 1.1, made.tokens


def assembling(clients: int) -> Callable[[str, Effort], AbstractContextManager[Rate]]:
    """Contexts per second that so many clients assemble, each waiting for its own to be kept."""

    @contextmanager
    def measuring(where: str, effort: Effort) -> Iterator[Rate]:
        async def client(number: int) -> float:
            return await calls_awaited_per_second(
                lambda: support(f"u{number}", "Where is my parcel?"), effort.seconds
            )

        async def rate() -> float:
            return sum(await asyncio.gather(*map(client, range(clients))))

        with one_loop(rate, prepare) as measure:
            yield measure

    return measuring


def chatting(
    function: ContextFunction[[str]],
) -> Callable[[str, Effort], AbstractContextManager[Rate]]:
    """Contexts of a conversation that one client assembles in a second."""

    @contextmanager
    def measuring(where: str, effort: Effort) -> Iterator[Rate]:
        async def rate() -> float:
            return await calls_awaited_per_second(lambda: function("Where?"), effort.seconds)

        with one_loop(rate, prepare) as measure:
            yield measure

    return measuring


def scoring(*, bare: bool) -> Callable[[str, Effort], AbstractContextManager[Rate]]:
    """Outcomes per second that one client adds; bare, the same row is appended again and again."""

    @contextmanager
    def measuring(where: str, effort: Effort) -> Iterator[Rate]:
        made: list[Context] = []
        rows: list[StoredOutcome] = []

        async def remember() -> None:
            await prepare()
            made.append(await chat("Where?"))
            await add()
            rows.extend(await (await log()).outcomes([made[0].context_id]))

        async def log() -> RecordLog:
            engine: Engine = await runtime_of(store).open()
            return engine.backends.records

        async def add() -> None:
            await made[0].add_outcome(answer=TURNS[1][1], model=MODEL)

        async def append() -> None:
            row = replace(rows[0], outcome_id=str(uuid7()))
            await (await log()).append_outcome(row)

        async def rate() -> float:
            return await calls_awaited_per_second(append if bare else add, effort.seconds)

        with one_loop(rate, remember) as measure:
            yield measure

    return measuring


@contextmanager
def fitting(where: str, effort: Effort) -> Iterator[Rate]:
    """Seconds to choose among a thousand candidates whose tokens have been counted."""
    tokenizer = tokenizer_for(MODEL)
    texts = [text[: 20 + number % 180] for number in range(125) for text in paragraphs()]
    candidates = [Candidate(text, number % 10) for number, text in enumerate(texts)]
    policy = BudgetPolicy(2 * TOKENS)
    assert len(candidates) == CANDIDATES
    fit(candidates, policy, tokenizer)

    def seconds() -> float:
        start = time.perf_counter()
        fit(candidates, policy, tokenizer)
        return time.perf_counter() - start

    yield lambda: min(seconds() for _ in range(20))


@contextmanager
def sealing(where: str, effort: Effort) -> Iterator[Rate]:
    """Records of such contexts that are sealed in a second."""

    cores: list[Core] = []

    async def remember() -> None:
        await prepare()
        made = await support("u1", "Where is my parcel?")
        cores.append(open_core(await store.get_record(made.context_id)))

    async def rate() -> float:
        return calls_per_second(lambda: seal(cores[0]), effort.seconds)

    with one_loop(rate, remember) as measure:
        yield measure


MEASURES: dict[str, Measuring] = {
    "one_client": assembling(1),
    "eight_clients": assembling(8),
    "chat": chatting(chat),
    "chat_as_text": chatting(chat_as_text),
    "outcome": scoring(bare=False),
    "bare_outcome": scoring(bare=True),
    "fit": fitting,
    "seal": sealing,
}
