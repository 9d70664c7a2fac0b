"""Files of past events: `store.bus.load`, in both environments."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import duckdb
import msgspec
import pytest
from msgspec import Meta

from headwater import Event, FeatureStore, ServiceEvent, entity, event, feature
from headwater.errors import EventError, InvalidInputError
from headwater.model.events import PublishResult
from headwater.store import event_loading
from headwater.store.event_loading import LOADED
from headwater.testing import ManualClock

AT = datetime(2025, 3, 1, 12, tzinfo=UTC)
COLUMNS: dict[str, Any] = {"type": "purchase", "entity_id": "user", "timestamp": None}


@dataclass
class Address:
    zip: str


@dataclass
class Line:
    price: Decimal
    weight: float
    digest: bytes
    note: str


@dataclass
class Order:
    amount: Decimal | None = None
    rate: float = 0.0
    digest: bytes = b""
    legacy: str = ""
    first: Line | None = None
    lines: list[Line] = field(default_factory=list)
    by_shop: dict[str, Decimal] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loading, "_BATCH_ROWS", 10)


def _lines(count: int, start: int = 0) -> str:
    return "".join(
        msgspec.json.encode(
            {
                "event_type": "purchase",
                "entity_id": f"u{n % 7}",
                "timestamp": (AT + timedelta(minutes=n)).isoformat(),
                "amount": n,
            }
        ).decode()
        + "\n"
        for n in range(start, start + count)
    )


async def _amounts(store: FeatureStore) -> list[int]:
    logged = await store.bus.list(event_type="purchase", limit=1000)
    return sorted(each.event.payload["amount"] for each in logged)


@pytest.mark.both_environments
async def test_events_are_loaded_from_jsonl_csv_and_parquet(
    store: FeatureStore, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"event_type": "purchase", "entity_id": 7, "timestamp": "2025-03-01T12:00:00Z",'
        ' "event_id": "e1", "payload": {"amount": 5, "item": {"name": "pen"}}}\n'
    )
    (tmp_path / "b.csv").write_text(
        "user,at,amount,item.name,note\n08,2025-03-01 12:00:00,5.5,pen,\n"
    )
    duckdb.sql(
        "SELECT 'u1' AS entity_id, TIMESTAMPTZ '2025-03-01 12:00:00+00' AS timestamp, 5 AS amount,"
        " {'name': 'pen'} AS item"
    ).write_parquet(str(tmp_path / "c.parquet"))

    await store.bus.load(tmp_path / "a.jsonl")
    await store.bus.load(
        tmp_path / "b.csv", type="purchase", entity_id="user", timestamp="at", time_zone="UTC"
    )
    await store.bus.load(tmp_path / "c.parquet", type="purchase")

    logged = await store.bus.list(event_type="purchase")
    events = {each.event.entity_id: each.event for each in logged}
    assert {event.timestamp for event in events.values()} == {AT}
    assert events["7"].event_id == "e1"
    assert events["7"].payload == {"amount": 5, "item": {"name": "pen"}}
    assert events["08"].payload == {"amount": 5.5, "item": {"name": "pen"}}
    assert events["u1"].payload == {"amount": 5, "item": {"name": "pen"}}


@pytest.mark.parametrize(
    ("end", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
async def test_files_may_be_compressed(
    store: FeatureStore, tmp_path: Path, end: str, compress: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / f"a.jsonl{end}"
    file.write_bytes(compress(_lines(25).encode()))

    report = await store.bus.load(file)

    assert (report.published, await _amounts(store)) == (25, list(range(25)))


@pytest.mark.both_environments
async def test_a_second_load_adds_nothing_even_when_ids_are_forgotten(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(25))
    await store.bus.load(file)
    clock.advance(timedelta(days=3))

    again = await store.bus.load(file)

    assert (again.rows, again.published, again.loaded_before) == (25, 0, 25)
    assert await _amounts(store) == list(range(25))


async def test_a_file_with_another_time_zone_is_loaded_already(
    store: FeatureStore, tmp_path: Path
) -> None:
    file = tmp_path / "past.csv"
    file.write_text("event_type,entity_id,timestamp,amount\npurchase,ada,2026-01-15T09:00:00,5\n")
    first = await store.bus.load(file, time_zone="Europe/Berlin")
    again = await store.bus.load(file, time_zone="UTC")
    assert (first.published, again.published, again.loaded_before) == (1, 0, 1)


async def test_equal_rows_are_events_of_their_own(store: FeatureStore, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(1) * 3)

    assert (await store.bus.load(file)).published == 3


async def test_a_file_that_has_grown_adds_only_its_new_rows(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(25))
    await store.bus.load(file)
    clock.advance(timedelta(days=3))
    file.write_text(_lines(40))

    again = await store.bus.load(file)

    assert (again.published, again.loaded_before) == (15, 25)
    assert await _amounts(store) == list(range(40))


async def test_the_same_rows_under_another_header_are_other_events(
    store: FeatureStore, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("user,ammount\nu1,5\nu2,7\n")
    await store.bus.load(file, **COLUMNS)
    file.write_text("user,amount\nu1,5\nu2,7\n")

    corrected = await store.bus.load(file, **COLUMNS)

    assert (corrected.published, corrected.loaded_before) == (2, 0)


async def test_numbers_of_csv_are_texts_where_the_schema_wants_texts(
    store: FeatureStore, tmp_path: Path
) -> None:
    @event(store, "purchase")
    class Purchase:
        amount: Annotated[float, Meta(ge=0)]
        shop: str
        to: Address

    rows = [f"u{n},{n},{n}0,{n}.50" for n in range(25)]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["user,amount,shop,to.zip", *rows, "u1,-1,70,8.50"]))

    report = await store.bus.load(file, **COLUMNS, rejects=tmp_path / "rejects.jsonl")

    assert (report.published, report.rejected) == (25, 1)
    logged = await store.bus.list(event_type="purchase", entity_id="u7")
    assert logged[0].event.payload == {"amount": 7, "shop": "70", "to": {"zip": "7.50"}}
    assert "Expected `float` >= 0.0" in (tmp_path / "rejects.jsonl").read_text()


def _declare_orders(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    event(store, "order")(Order)

    @feature(entity=User, trigger="order")
    def order(user_id: str, event: Event[Order]) -> str:
        return repr(event.payload)


ORDER_COLUMNS: dict[str, Any] = {"type": "order", "entity_id": "user", "timestamp": None}


@pytest.mark.both_environments
async def test_decimals_of_csv_keep_their_digits_where_the_schema_wants_decimals(
    store: FeatureStore, tmp_path: Path
) -> None:
    _declare_orders(store)
    file = tmp_path / "a.csv"
    file.write_text("user,amount,rate,by_shop.x,other\nu1,12345678901234567.89,1.10,2.50,1.10\n")

    await store.bus.load(file, **ORDER_COLUMNS)
    await store.bus.load(file, **{**ORDER_COLUMNS, "type": "free"})

    (declared,) = await store.bus.list(event_type="order")
    assert declared.event.payload == {
        "amount": "12345678901234567.89",
        "rate": 1.1,
        "by_shop": {"x": "2.50"},
        "other": 1.1,
    }
    (free,) = await store.bus.list(event_type="free")
    assert free.event.payload["amount"] == 12345678901234567.89
    await store.drain()
    assert "amount=Decimal('12345678901234567.89')" in await store.get_feature("order", "u1")


@pytest.mark.both_environments
async def test_decimals_and_blobs_of_parquet_are_exact_where_the_schema_wants_them(
    store: FeatureStore, tmp_path: Path
) -> None:
    """A text that is a blob in the file, and decimals of other types, stay as they were."""
    _declare_orders(store)
    line = "{'price': 1.10::DECIMAL(9, 2), 'weight': 1.10::DECIMAL(9, 2), 'digest': 'ab'::BLOB}"
    line = line.replace("}", ", 'note': 'cd'::BLOB}")
    duckdb.sql(
        "SELECT 'u1' AS user, 12345678901234567.89::DECIMAL(20, 2) AS amount,"
        " 1.10::DECIMAL(9, 2) AS rate, 'abcd'::BLOB AS digest, 'abcd'::BLOB AS legacy,"
        f" {line} AS first, [{line}] AS lines, MAP {{'x': 2.50::DECIMAL(9, 2)}} AS by_shop"
    ).write_parquet(str(tmp_path / "a.parquet"))

    await store.bus.load(tmp_path / "a.parquet", **ORDER_COLUMNS)
    await store.drain()

    made = "Line(price=Decimal('1.10'), weight=1.1, digest=b'ab', note='cd')"
    assert await store.get_feature("order", "u1") == (
        "Order(amount=Decimal('12345678901234567.89'), rate=1.1, digest=b'abcd', legacy='abcd', "
        f"first={made}, lines=[{made}], by_shop={{'x': Decimal('2.50')}})"
    )


@pytest.mark.both_environments
async def test_integers_of_parquet_beyond_64_bits_are_decimals_or_refused(
    store: FeatureStore, tmp_path: Path
) -> None:
    _declare_orders(store)
    file = tmp_path / "a.parquet"
    duckdb.sql("SELECT 'u1' AS user, 18446744073709551617::DECIMAL(38, 0) AS amount").write_parquet(
        str(file)
    )

    await store.bus.load(file, **ORDER_COLUMNS)
    with pytest.raises(EventError, match="beyond 64 bits"):
        await store.bus.load(file, **{**ORDER_COLUMNS, "type": "free"})

    (logged,) = await store.bus.list(event_type="order")
    assert logged.event.payload == {"amount": "18446744073709551617"}


@pytest.mark.both_environments
async def test_a_payload_column_of_parquet_has_exact_decimals(
    store: FeatureStore, tmp_path: Path
) -> None:
    _declare_orders(store)
    file = tmp_path / "a.parquet"
    duckdb.sql(
        "SELECT 'u1' AS user, {'amount': 1.10::DECIMAL(9, 2), 'digest': 'ab'::BLOB} AS payload"
    ).write_parquet(str(file))

    await store.bus.load(file, **ORDER_COLUMNS)

    (logged,) = await store.bus.list(event_type="order")
    assert logged.event.payload == {"amount": "1.10", "digest": "YWI="}


class _Crash(BaseException):
    """The end of the process, at this point."""


@pytest.mark.both_environments
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("hours", [1, 72])
async def test_a_crash_at_any_point_loses_nothing_and_doubles_nothing(
    store: FeatureStore,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: int,
    is_stored: bool,
    hours: int,
) -> None:
    """Each publication of a load may be the last, before or after it is stored.

    Days later, the ids of events are forgotten.
    """
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(35))
    publish_many = store.bus.publish_many
    calls: list[int] = []

    async def crashing(events: Sequence[ServiceEvent], **given: Any) -> list[PublishResult]:
        if len(calls) < call:
            calls.append(len(events))
            return await publish_many(events, **given)
        if is_stored and len(calls) == call:
            await publish_many(events, **given)
        calls.append(0)
        raise _Crash

    monkeypatch.setattr(store.bus, "publish_many", crashing)
    with pytest.raises(_Crash):
        await store.bus.load(file)
    monkeypatch.setattr(store.bus, "publish_many", publish_many)
    clock.advance(timedelta(hours=hours))

    await store.bus.load(file)

    assert await _amounts(store) == list(range(35))


async def test_a_cancelled_load_continues_after_its_last_row(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(35))
    seen: list[int] = []
    loading: list[asyncio.Task[object]] = []

    def stop(report: Any) -> None:
        seen.append(report.rows)
        loading[0].cancel()

    loading.append(asyncio.ensure_future(store.bus.load(file, progress=stop)))
    with pytest.raises(asyncio.CancelledError):
        await loading[0]
    clock.advance(timedelta(days=3))
    again = await store.bus.load(file)

    assert (seen, again.loaded_before, again.duplicates) == ([10], 10, 0)
    assert await _amounts(store) == list(range(35))


async def test_a_bad_row_stops_the_load_with_its_number_and_remedy(
    store: FeatureStore, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    bad = '{"event_type": "purchase", "entityid": "u1", "timestamp": "2025-03-01T12:00:00Z"}\n'
    file.write_text(_lines(14) + bad + _lines(5, 14))

    with pytest.raises(EventError) as caught:
        await store.bus.load(file)
    assert str(caught.value) == (
        f"{file}:15: no 'entity_id'; did you mean 'entityid'? Name the column with entity_id=; the "
        "first 10 rows are loaded; correct this one and load the file again, or let bad rows be "
        "left out (rejects=, --skip-bad)"
    )
    file.write_text(_lines(19))
    assert (await store.bus.load(file)).published == 9
    assert await _amounts(store) == list(range(19))


async def test_bad_rows_are_left_out_and_written_to_a_file(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file, rejects = tmp_path / "a.jsonl", tmp_path / "bad.jsonl"
    late = (clock.now() + timedelta(days=1)).isoformat()
    lines = _lines(20).splitlines()
    lines[3] = "{"
    lines[7] = lines[7].replace("2025-03-01T12:07:00+00:00", late)
    lines[12] = lines[12].replace("2025-03-01T12:12:00+00:00", "1740830400")
    file.write_text("\n".join(lines))

    report = await store.bus.load(file, rejects=rejects)

    assert (report.rows, report.published, report.rejected) == (20, 17, 3)
    rejected = [msgspec.json.decode(line) for line in rejects.read_bytes().splitlines()]
    assert [(each["row"], each["problem"].partition(";")[0][:14]) for each in rejected] == [
        (4, "not JSON: Inpu"),
        (8, f"timestamp {late}"[:14]),
        (13, "'1740830400' i"),
    ]
    assert rejected[2]["content"]["amount"] == 12


@pytest.mark.both_environments
async def test_events_of_an_erased_entity_are_counted(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(20))

    @feature(entity=user, trigger="purchase")
    def last_amount(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    await store.admin.forget("User", "u3", reason="asked")

    report = await store.bus.load(file)

    assert (report.published, report.erased, report.rejected) == (17, 3, 0)


async def test_a_rate_bounds_the_events_of_a_second(store: FeatureStore, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(_lines(30))
    began = asyncio.get_running_loop().time()

    await store.bus.load(file, rate=100)

    assert asyncio.get_running_loop().time() - began >= 0.29


async def test_rows_without_times_happen_now(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("entity_id,amount\nu1,5\n")

    await store.bus.load(file, type="purchase", timestamp=None)

    (logged,) = await store.bus.list(event_type="purchase")
    assert logged.event.timestamp == clock.now()


async def test_what_cannot_be_read_is_named(store: FeatureStore, tmp_path: Path) -> None:
    for name, content, problem in [
        ("a.xlsx", b"", "its name ends with none of .jsonl"),
        ("a.jsonl.gz", b"no", "cannot be read: Not a gzipped file"),
        ("a.csv", b"entity_id\n\xff\n", "cannot be read: 'utf-8' codec can't decode"),
        ("missing.csv", None, "cannot be read: No such file"),
    ]:
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(InvalidInputError, match=problem):
            await store.bus.load(file, type="purchase")
    assert await store.bus.list(event_type=LOADED) == []


async def test_an_empty_file_has_no_rows(store: FeatureStore, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("entity_id,timestamp\n")

    assert (await store.bus.load(tmp_path / "a.csv", type="purchase")).rows == 0
