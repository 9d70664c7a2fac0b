"""The cases: every row of the table with its contestants and its targets."""

import os
import sys

from bench import first_requests, production, visible, web
from bench.case import (
    AtLeast,
    AtMostMilliseconds,
    AtMostSeconds,
    AtMostTimesFloor,
    Case,
    SecondsMoreThanFloor,
    TimesFloor,
    TimesPeer,
)
from bench.fabra import peer as fabra
from bench.feast import peer as feast
from bench.history_cases import HISTORY_CASES
from bench.in_child import in_child
from bench.search_cases import SEARCH_CASES
from bench.startup import HEADWATER, seconds_of
from bench.window_cases import WINDOW_CASES

CORES = os.cpu_count() or 1
ENOUGH_CORES = 4  # for two workers, the server and the measuring process


# How many assemble at once, what measures it, and how their records are made durable.
CLIENTS = (
    ("1 client", 1, "one_client", "a commit"),
    ("8 clients", 8, "eight_clients", "a shared commit"),
)


CASES = (
    Case(
        name="worker",
        unit="events/s",
        ours=in_child("ours", "worker"),
        floor=in_child("floors", "worker"),
        floor_is="the same SQLite transactions",
        peer=fabra.worker,
        peer_is=fabra.NAME,
        targets=(TimesFloor(0.5), TimesPeer(10)),
    ),
    Case(
        name="worker, 2 async features",
        unit="events/s",
        ours=in_child("ours", "worker_two_async"),
        floor=in_child("floors", "worker_two"),
        floor_is="the same SQLite transactions",
        targets=(TimesFloor(0.4),),
    ),
    Case(
        name="worker, 1 async + 1 sync feature",
        unit="events/s",
        ours=in_child("ours", "worker_async_and_sync"),
        floor=in_child("ours", "worker_two_async"),
        floor_is="ours with 2 async features",
        targets=(TimesFloor(0.8),),
    ),
    Case(
        name="worker, many entities",
        unit="events/s",
        ours=in_child("ours", "worker_many_entities"),
        floor=in_child("ours", "worker_async_and_sync"),
        floor_is="ours with 1,000 entities",
        targets=(TimesFloor(0.65),),
    ),
    Case(
        name="backfill",
        unit="events/s",
        ours=in_child("backfills", "one_process"),
        floor=in_child("ours", "worker"),
        floor_is="ours: the worker",
        targets=(TimesFloor(0.5),),
    ),
    Case(
        name="backfill, 2 processes",
        unit="events/s",
        ours=in_child("backfills", "two_processes"),
        floor=in_child("backfills", "one_process"),
        floor_is="ours with 1 process",
        targets=(TimesFloor(1.6),) if CORES >= 2 else (),
    ),
    Case(
        name="read 1x10",
        unit="calls/s",
        ours=in_child("ours", "read_one"),
        floor=in_child("floors", "read_one"),
        floor_is="SELECT + decode, inline",
        targets=(TimesFloor(0.667),),
    ),
    Case(
        name="read 1x10 after many events",
        unit="calls/s",
        ours=in_child("ours", "read_after_many_events"),
        floor=in_child("ours", "read_one"),
        floor_is="ours in a new store",
        targets=(TimesFloor(0.8),),
    ),
    Case(
        name="read 100x10",
        unit="calls/s",
        ours=in_child("ours", "read_hundred"),
        floor=in_child("floors", "read_hundred"),
        floor_is="SELECT + decode, inline",
        targets=(TimesFloor(0.667),),
    ),
    Case(
        name="publish, 1 client",
        unit="events/s",
        ours=in_child("ours", "publish"),
        floor=in_child("floors", "commit"),
        floor_is="SQLite commit of one row",
        targets=(TimesFloor(0.5),),
    ),
    Case(
        name="publish, 64 clients",
        unit="events/s",
        ours=in_child("ours", "publish_concurrently"),
        floor=in_child("ours", "publish"),
        floor_is="ours with 1 client",
        targets=(TimesFloor(3),),
    ),
    Case(
        name="HTTP read",
        unit="req/s",
        ours=web.ours,
        floor=web.floor_in(1),
        floor_is="bare ASGI on the same uvicorn",
        peer=fabra.http_read,
        peer_is=fabra.NAME,
        targets=(TimesFloor(0.65), TimesPeer(8)),
    ),
    Case(
        name="HTTP read of 100 values, 2 processes",
        unit="x 1 process",
        ours=web.two_processes(web.READ_MANY, web.MANY),
        floor=web.TWO_BARE_PROCESSES,
        floor_is="the same gain of bare ASGI",
        targets=(TimesFloor(0.9),) if CORES >= 2 else (),
    ),
    Case(
        name="HTTP context, 2 processes",
        unit="x 1 process",
        ours=web.two_processes(web.ASSEMBLE, web.QUESTION),
        floor=web.TWO_BARE_PROCESSES,
        floor_is="the gain of bare ASGI that reads",
        targets=(TimesFloor(0.9),) if CORES >= 2 else (),
    ),
    Case(
        name="redis worker",
        unit="events/s",
        ours=production.workers(1),
        floor=production.floor("worker"),
        floor_is="same Valkey: a script to read, one to commit values and history",
        peer=fabra.worker,
        peer_is=fabra.NAME,
        targets=(TimesFloor(0.75), TimesPeer(10)),
    ),
    Case(
        name="redis worker, 2 processes",
        unit="events/s",
        ours=production.workers(2),
        floor=production.workers(1),
        floor_is="ours with 1 process",
        targets=(TimesFloor(1.6),) if CORES >= ENOUGH_CORES else (),
    ),
    Case(
        name="redis publish → visible",
        unit="ms",
        ours=visible.ours,
        floor=visible.floor,
        floor_is="same Valkey: XADD, blocking XREAD, MSET",
        targets=(
            AtMostMilliseconds(3),
            AtMostMilliseconds(4, "p99_ms"),
            AtMostTimesFloor(3),
            AtMostTimesFloor(3, "p99_ms"),
        ),
    ),
    Case(
        name="redis read 1x10",
        unit="calls/s",
        ours=production.ours("read_one"),
        floor=production.floor("read_one"),
        floor_is="same Valkey: MGET + decode",
        peer=feast.reading(ids=1),
        peer_is=feast.NAME,
        targets=(TimesFloor(0.667),),
    ),
    Case(
        name="redis read 100x10",
        unit="calls/s",
        ours=production.ours("read_hundred"),
        floor=production.floor("read_hundred"),
        floor_is="same Valkey: MGET + decode",
        peer=feast.reading(ids=100),
        peer_is=feast.NAME,
        targets=(TimesFloor(0.5),),
    ),
    Case(
        name="redis HTTP ingest",
        unit="req/s",
        ours=web.ingest_ours,
        floor=web.ingest_floor,
        floor_is="same Valkey and uvicorn: bare ASGI, one XADD",
        targets=(TimesFloor(1),),
    ),
    Case(
        name="redis rolling restart, gap p95",
        unit="s",
        ours=production.ours("gap", "rolling"),
        targets=(AtMostSeconds(0.5),),
        rounds=2,
    ),
    *(
        Case(
            name=f"context, {clients}",
            unit="contexts/s",
            ours=in_child("contexts", measure),
            floor=in_child("context_floors", measure),
            floor_is=f"count, hash and {shared} in SQLite",
            peer=fabra.contexts(number),
            peer_is=fabra.NAME,
            targets=(TimesFloor(0.5), TimesPeer(10)),
        )
        for clients, number, measure, shared in CLIENTS
    ),
    *(
        Case(
            name=f"context on servers, {clients}",
            unit="contexts/s",
            ours=production.assembling(measure),
            floor=production.context_floor(f"{measure}_on_servers"),
            floor_is=f"count, hash and {shared} in the same Postgres",
            peer=fabra.contexts(number, on_servers=True),
            peer_is=fabra.NAME,
            targets=(TimesFloor(0.5),),
        )
        for clients, number, measure, shared in CLIENTS
    ),
    Case(
        name="context of 20 messages",
        unit="contexts/s",
        ours=in_child("contexts", "chat"),
        floor=in_child("contexts", "chat_as_text"),
        floor_is="the same items without roles",
        targets=(TimesFloor(0.77),),
    ),
    Case(
        name="outcome",
        unit="outcomes/s",
        ours=in_child("contexts", "outcome"),
        floor=in_child("contexts", "bare_outcome"),
        floor_is="append of a sealed one to the same log",
        targets=(TimesFloor(0.83),),
    ),
    Case(
        name="context: fit of 1,000 candidates",
        unit="s",
        ours=in_child("contexts", "fit"),
        targets=(AtMostSeconds(0.004),),
    ),
    Case(
        name="context: seal",
        unit="records/s",
        ours=in_child("contexts", "seal"),
        targets=(AtLeast(2_000),),
    ),
    Case(
        name="evaluation",
        unit="contexts/s",
        ours=in_child("evaluations", "evaluated"),
        floor=in_child("evaluations", "assembled"),
        floor_is="ours: assembling them live",
        # 10,000 contexts in a minute, on two cores
        targets=(AtLeast(167),) if CORES >= 2 else (),
        rounds=2,
    ),
    *WINDOW_CASES,
    *SEARCH_CASES,
    *HISTORY_CASES,
    Case(
        name="redis history 100k x 1M, 10 features",
        unit="rows/s",
        ours=production.ours("ours", "postgres_frames"),
        floor=production.ours("floor", "postgres_frames"),
        floor_is="same Postgres: COPY, one LATERAL for each feature, asyncpg",
        targets=(TimesFloor(0.77),),
        rounds=3,
    ),
    Case(
        name="import headwater",
        unit="s",
        # Every public name, because the package loads each when it is first used.
        ours=seconds_of(sys.executable, "-c", "from headwater import *"),
        floor=seconds_of(sys.executable, "-c", "pass"),
        floor_is="python -c pass",
        targets=(SecondsMoreThanFloor(0.3),),
    ),
    Case(
        name="headwater --help",
        unit="s",
        ours=seconds_of(HEADWATER, "--help"),
        floor=seconds_of(sys.executable, "-c", "pass"),
        floor_is="python -c pass",
        targets=(AtMostSeconds(0.5),),
    ),
    Case(
        name="headwater serve until ready",
        unit="s",
        ours=first_requests.ready,
        floor=first_requests.bare_ready,
        floor_is="bare ASGI on the same uvicorn",
        rounds=3,
    ),
    Case(
        name="first read, context and search after ready",
        unit="µs",
        ours=first_requests.first,
        floor=first_requests.later,
        floor_is="ours: the tenth of each",
        # The first ones find cold caches of the processor, but nothing left to load.
        targets=tuple(AtMostTimesFloor(5, name) for name in first_requests.REQUESTS),
        rounds=3,
    ),
)
