"""Conformance tests of the ``OfflineStore`` port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from conformance.catalog import full_catalog
from conformance.suite import (
    START,
    Connect,
    Opened,
    Suite,
    after,
    change,
    click,
    clicks,
    outcome,
)
from headwater.errors import InvalidInputError, QueryError
from headwater.ports import Point

MICROSECOND = timedelta(microseconds=1)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class OfflineStoreConformance(Suite):
    """The history of every value, and the log of every event."""

    @pytest.fixture
    def orders(self) -> Mapping[str, str]:
        """Declared sources, one of them orders: (u1, 1), (u1, 2), (u2, 5) as user_id and amount."""
        raise NotImplementedError(f"{type(self).__name__} must override the fixture 'orders'")

    async def test_a_value_that_a_commit_made_durable_is_in_history_from_that_moment_on(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        for number in range(3):
            await store.publish(clicks(1))
            batch = await store.only_batch(leases)
            await store.bus.commit(outcome(batch, [change(number, as_of=after(number))]))
            assert await other.value_at(after(number)) == number

    async def test_a_value_that_a_put_made_durable_is_in_history_from_that_moment_on(
        self, store: Opened, other: Opened
    ) -> None:
        for number in range(3):
            await store.online.put([change(number, as_of=after(number))])
            assert await other.value_at(after(number)) == number

    async def test_appending_the_same_changes_again_changes_nothing(
        self, store: Opened, other: Opened
    ) -> None:
        past = [change(number, as_of=after(number)) for number in range(5)]
        await store.offline.append(past)
        await store.offline.append(past)
        await other.offline.append(past[2:])
        assert await store.history_rows() == 5

    async def test_append_adds_past_values_without_changing_current_ones(
        self, store: Opened
    ) -> None:
        await store.online.put([change(9, as_of=after(9))])
        await store.offline.append(
            [change(1, as_of=after(1)), change(99, as_of=after(99)), change(5, entity_id="u2")]
        )
        assert await store.value_online() == 9
        assert await store.online.get("User", ["u2"]) == [{}]
        assert [await store.value_at(after(second)) for second in (1, 9, 99)] == [1, 9, 99]

    async def test_rows_are_the_values_of_each_entity_the_newest_first_and_at_most_so_many(
        self, store: Opened
    ) -> None:
        for entity_id in ("u1", "u2"):
            await store.online.put(
                [change(n, entity_id=entity_id, as_of=after(n)) for n in (2, 1, 3)]
            )
        await store.online.put([change(9, as_of=after(9), feature="other")])
        ids = ["u2", "none", "u1"]
        all_rows = await store.offline.rows("clicks", ids, limit=9)
        assert [[row.value for row in rows] for rows in all_rows] == [
            [b"3", b"2", b"1"],
            [],
            [b"3", b"2", b"1"],
        ]
        newest = await store.offline.rows("clicks", ids, end=after(3), limit=1)
        assert [[row.as_of for row in rows] for rows in newest] == [[after(2)], [], [after(2)]]
        assert await store.offline.rows("clicks", [], limit=9) == []

    async def test_as_of_gives_the_last_value_that_was_true_then_never_a_later_one(
        self, store: Opened
    ) -> None:
        await store.online.put(
            [change(1, as_of=after(1)), change(3, as_of=after(3)), change(2, as_of=after(2))]
        )
        assert await store.value_at(after(1) - MICROSECOND) is None
        assert await store.value_at(after(1)) == 1
        assert await store.value_at(after(3) - MICROSECOND) == 2
        assert await store.value_at(after(1_000)) == 3

    async def test_as_of_known_gives_exactly_what_a_reader_would_have_been_served(
        self, store: Opened
    ) -> None:
        await store.online.put(
            [
                change(1, as_of=after(1), written_at=after(1)),
                change(2, as_of=after(2), written_at=after(10)),
                change(3, as_of=after(3), written_at=after(4)),
            ]
        )
        moments = (1, 2, 3.5, 4, 10)
        true = [await store.value_at(after(second)) for second in moments]
        known = [await store.value_at(after(second), known=True) for second in moments]
        assert true == [1, 2, 3, 3, 3]
        assert known == [1, 1, 1, 3, 3]

    async def test_a_value_ahead_of_the_clock_is_known_once_written_and_true_only_in_its_time(
        self, store: Opened
    ) -> None:
        await store.online.put([change(1, as_of=after(1), written_at=after(1))])
        await store.online.put([change(2, as_of=after(30), written_at=after(2))])
        assert await store.value_online() == 2
        await store.online.put([change(3, as_of=after(10), written_at=after(10))])
        await store.online.put([change(4, as_of=after(30), written_at=after(20))])
        await store.online.put([change(5, as_of=after(40), written_at=after(40))])
        moments = (1, 2, 10, 20, 30, 40)
        known = [await store.value_at(after(second), known=True) for second in moments]
        true = [await store.value_at(after(second)) for second in moments]
        assert known == [1, 2, 2, 4, 4, 5]
        assert true == [1, 1, 3, 3, 4, 5]

    async def test_among_values_of_one_moment_the_one_written_last_wins(
        self, store: Opened
    ) -> None:
        await store.online.put([change(1, written_at=after(1))])
        await store.online.put([change(3, written_at=after(3))])
        await store.online.put([change(2, written_at=after(2))])
        assert await store.value_at(START) == 3
        assert await store.value_at(after(2), known=True) == 2

    async def test_answers_come_in_the_order_of_points(self, store: Opened) -> None:
        await store.online.put(
            [
                change(1),
                change(2, as_of=after(2)),
                change(5, entity_id="u2"),
                change(7, feature="f"),
            ]
        )
        points = [
            Point("u2", after(2)),
            Point("u1", START),
            Point("?", START),
            Point("u1", after(2)),
        ]
        answers = await store.offline.as_of(["f", "clicks"], [*points, points[0]])
        values = [[None if past is None else int(past.value) for past in row] for row in answers]
        assert values == [[None, 5], [7, 1], [None, None], [7, 2], [None, 5]]

    async def test_a_past_value_says_when_it_was_true_and_when_it_was_written(
        self, store: Opened
    ) -> None:
        await store.online.put([change(1, as_of=after(0.000_001), written_at=after(2.5))])
        [[past]] = await store.offline.as_of(["clicks"], [Point("u1", after(9))])
        assert past is not None
        assert (past.as_of, past.written_at) == (after(0.000_001), after(2.5))

    async def test_a_moment_without_a_time_zone_is_refused(self, store: Opened) -> None:
        naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the invalid argument
        with pytest.raises(InvalidInputError):
            await store.offline.as_of(["clicks"], [Point("u1", naive)])

    async def test_latest_gives_the_next_ids_of_an_entity_in_sorted_order(
        self, store: Opened
    ) -> None:
        ids = ["b", "a", "Z", "ä", "a b", "a-b", "ab", "10", "9", "\U0001d51e", "ﬀ", "x" * 300]
        await store.online.put([change(n, entity_id=each) for n, each in enumerate(ids)])
        await store.online.put([change(1, entity="Page", entity_id="aa")])
        await store.offline.append([change(1, entity_id="x" * 300 + "y"), change(2)])
        expected = sorted([*ids, "x" * 300 + "y", "u1"])
        found: list[str] = []
        while page := await store.offline.latest("User", after=(found or [""])[-1], limit=3):
            found += [entity_id for entity_id, _ in page]
            assert len(page) == 3 or len(found) == len(expected)
        assert found == expected
        [(other, _)] = await store.offline.latest("Page", after="", limit=9)
        assert other == "aa"
        assert await store.offline.latest("Unknown", after="", limit=9) == []

    async def test_latest_gives_what_as_of_would_give_at_the_end_of_time(
        self, store: Opened
    ) -> None:
        await store.online.put(
            [
                change(1, as_of=after(5), written_at=after(5)),
                change(2, as_of=after(5), written_at=after(7)),
                change(3, as_of=after(5), written_at=after(6)),
                change(4, as_of=after(1), written_at=after(9)),
                change(5, feature="f"),
                change(6, feature="f", entity_id="u2", as_of=after(-9)),
            ]
        )
        await store.offline.append(
            [
                change(7, feature="f", entity_id="u2", as_of=after(-10)),
                change(8, feature="g", entity_id="u2", as_of=after(99)),
            ]
        )
        page = await store.offline.latest("User", after="", limit=9)
        numbers = [(i, {f: int(past.value) for f, past in values.items()}) for i, values in page]
        assert numbers == [("u1", {"clicks": 2, "f": 5}), ("u2", {"f": 6, "g": 8})]
        for entity_id, values in page:
            point = Point(entity_id, END_OF_TIME)
            assert await store.offline.as_of(list(values), [point]) == [list(values.values())]

    async def test_latest_has_a_value_from_the_moment_it_was_made_durable(
        self, store: Opened, other: Opened
    ) -> None:
        for number in range(3):
            await store.online.put([change(number, as_of=after(number))])
            [(_, values)] = await other.offline.latest("User", after="", limit=9)
            assert int(values["clicks"].value) == number

    async def test_query_runs_over_the_event_log(self, store: Opened) -> None:
        events = [click(f"u{number % 2}", number) for number in range(5)]
        await store.publish(events)
        rows = await store.offline.query(
            'SELECT event_id, event_type, entity_id, "timestamp" FROM events ORDER BY event_id', {}
        )
        assert list(rows.columns) == ["event_id", "event_type", "entity_id", "timestamp"]
        assert [tuple(row) for row in rows.rows] == [
            (event.event_id, "click", event.entity_id, START)
            for event in sorted(events, key=lambda event: event.event_id)
        ]

    async def test_query_runs_over_feature_history(self, store: Opened) -> None:
        await store.online.put([change(1), change(2, as_of=after(1)), change(3, feature="f")])
        rows = await store.offline.query(
            "SELECT entity_id, max(value_int) AS value FROM feature_history"
            " WHERE feature = 'clicks' GROUP BY entity_id",
            {},
        )
        assert [tuple(row) for row in rows.rows] == [("u1", 2)]

    async def test_query_runs_over_what_features_were_over_time(self, store: Opened) -> None:
        sql = (
            "SELECT feature, entity, version, series, default_value, since, until"
            " FROM feature_names ORDER BY until, since"
        )
        assert (await store.offline.query(sql, {})).rows == []
        state = full_catalog(1)
        entry = state.features["clicks"]
        renamed = msgspec.structs.replace(entry.meanings[0], since=after(1), name="clicks")
        entry = msgspec.structs.replace(entry, meanings=[*entry.meanings, renamed])
        assert await store.catalog.replace(
            msgspec.structs.replace(state, features={"clicks": entry})
        )
        rows = (await store.offline.query(sql, {})).rows
        assert [tuple(row) for row in rows] == [
            ("taps", "User", 1, "clicks", "0", START, after(1)),
            ("taps", "User", 1, "clicks", "0", START, after(2)),
            ("clicks", "User", 1, "clicks", "0", after(1), None),
        ]

    async def test_query_runs_over_sources(self, store: Opened, orders: Mapping[str, str]) -> None:
        rows = await store.offline.query(
            "SELECT user_id, sum(amount) AS value FROM orders GROUP BY user_id ORDER BY user_id",
            orders,
        )
        assert list(rows.columns) == ["user_id", "value"]
        assert [tuple(row) for row in rows.rows] == [("u1", 3), ("u2", 5)]

    async def test_a_query_that_cannot_be_run_is_refused(self, store: Opened) -> None:
        for check in (store.offline.query, store.offline.prepare):
            with pytest.raises(InvalidInputError) as raised:
                await check("SELECT nothing FROM nowhere", {})
            assert not isinstance(raised.value, QueryError)

    @pytest.mark.parametrize(
        ("sql", "problem"),
        [
            ("SELECT 1 AS a; SELECT 2 AS b", "several statements"),
            ("CREATE TABLE t (a INT); SELECT 1", "several statements"),
            ("CREATE TABLE t (a INT)", "returns no rows"),
            ("SELEC 1", "syntax error"),
            ("SELECT $1::int", "parameters"),
        ],
    )
    async def test_a_query_that_is_not_one_statement_that_returns_rows_is_refused(
        self, store: Opened, sql: str, problem: str
    ) -> None:
        for check in (store.offline.query, store.offline.prepare):
            with pytest.raises(QueryError, match=problem):
                await check(sql, {})

    async def test_prepare_returns_the_columns_without_running_the_query(
        self, store: Opened
    ) -> None:
        sql = "SELECT entity_id, CAST(event_type AS INTEGER) AS value FROM events;"
        await store.publish([click()])
        assert list(await store.offline.prepare(sql, {})) == ["entity_id", "value"]
        with pytest.raises(InvalidInputError):
            await store.offline.query(sql, {})

    async def test_maintain_is_safe_to_call_from_many_processes_and_changes_no_answer(
        self, connect: Connect
    ) -> None:
        openings = [await Opened.by(connect) for _ in range(3)]
        store = openings[0]
        leases = await store.hold()
        for number in range(30):
            await store.publish([click(number=number)])
            batch = await store.only_batch(leases)
            await store.bus.commit(outcome(batch, [change(number, as_of=after(number))]))
            if number % 10 == 9:
                await asyncio.gather(*(opening.offline.maintain() for opening in openings))
        assert [await store.value_at(after(number)) for number in (0, 9, 15, 29)] == [0, 9, 15, 29]
        assert await openings[1].history_rows() == 30
        events = await openings[2].offline.query("SELECT count(*) FROM events", {})
        assert events.rows[0][0] == 30
        assert await store.value_online() == 29
        assert await store.bus.backlog() == 0
