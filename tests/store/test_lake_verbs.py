"""The verbs of a lake, on a store and by a server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from headwater import FeatureStore, ServiceEvent, Settings
from headwater.errors import ConfigError, InvalidInputError
from headwater.testing import ManualClock


def store_in(folder: Path, clock: ManualClock | None = None, **lake: object) -> FeatureStore:
    settings = Settings().replace(home=folder / "home", lake=lake)
    store = FeatureStore(settings=settings, clock=clock)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="purchase")
    def spent(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    return store


@pytest.mark.parametrize("verb", ["init", "compact", "expire"])
async def test_a_store_without_a_lake_names_the_setting(tmp_path: Path, verb: str) -> None:
    async with store_in(tmp_path) as store:
        assert (await store.lake.status()).tables == []
        with pytest.raises(ConfigError, match=r"set lake\.url"):
            await getattr(store.lake, verb)()


async def test_compacting_moves_every_handled_row_and_leaves_one_small_file(tmp_path: Path) -> None:
    async with store_in(tmp_path, url=str(tmp_path / "lake")) as store:
        assert [table.rows for table in (await store.lake.init()).tables] == [0, 0]
        for amount in range(3):
            await store.publish("purchase", "ada", {"amount": amount})
            await store.publish("purchase", "eve", {"amount": amount})
            await store.drain()
            status = await store.lake.compact()
        history, events = status.tables
        assert (history.rows, history.files, history.small_files) == (6, 1, 1)
        assert (events.rows, events.files) == (6, 1)
        assert not history.waiting
        assert history.snapshots > 1
        assert await store.get_feature("spent", "ada") == 2


async def test_expiring_keeps_the_present_snapshot_and_is_in_the_audit_log(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store_in(tmp_path, clock, url=str(tmp_path / "lake")) as store:
        for amount in range(2):
            await store.publish("purchase", "ada", {"amount": amount})
            await store.drain()
            await store.lake.compact()
        assert (await store.lake.expire(older_than="100y")).files == 0
        clock.advance(timedelta(days=4_000))
        assert (await store.lake.expire()).files > 0
        history, _ = (await store.lake.status()).tables
        assert (history.rows, history.snapshots) == (2, 1)
        [entry, *_] = (await store.audit_log(action="lake.expire")).entries
        assert entry.outcome == "done"


async def test_a_training_set_of_a_snapshot_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store_in(tmp_path, clock, url=str(tmp_path / "lake")) as store:
        await store.publish("purchase", "ada", {"amount": 1})
        await store.drain()
        history, _ = (await store.lake.compact()).tables
        rows = [{"user_id": name, "timestamp": clock.now()} for name in ("ada", "eve")]
        labels = tmp_path / "labels.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), labels)

        async def read(name: str, **options: Any) -> Path:
            output = tmp_path / name
            await store.get_historical_features(labels, ["spent"], output=output, **options)
            return output

        first = await read("first.parquet", snapshot=history.snapshot_id)
        # Values of the same moment, one in the tail and one in a later snapshot.
        for name in ("ada", "eve"):
            await store.publish("purchase", name, {"amount": 5}, timestamp=clock.now())
            await store.drain()
            if name == "ada":
                await store.lake.compact()
        again = await read("again.parquet", snapshot=history.snapshot_id)
        present = await read("present.parquet")
        assert first.read_bytes() == again.read_bytes()
        assert pyarrow.parquet.read_table(first)["spent"].to_pylist() == [1, None]
        assert pyarrow.parquet.read_table(present)["spent"].to_pylist() == [5, 5]
        metadata = pyarrow.parquet.read_metadata(first).metadata
        assert metadata[b"headwater.snapshot"] == str(history.snapshot_id).encode()
        await store.admin.forget("User", "eve", reason="asked")
        with pytest.raises(
            InvalidInputError, match="it has expired, or it had rows that were erased"
        ):
            await read("late.parquet", snapshot=history.snapshot_id)


async def test_a_snapshot_answers_for_moments_that_were_pruned_since(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store_in(tmp_path, clock, url=str(tmp_path / "lake")) as store:

        async def read(snapshot: int | None) -> Any:
            table = pyarrow.Table.from_pylist([{"user_id": "ada", "timestamp": moment}])
            frame = await store.get_historical_features(table, ["spent"], snapshot=snapshot)
            return frame["spent"].to_pylist()

        moment = clock.now()
        await store.publish("purchase", "ada", {"amount": 1})
        await store.drain()
        before, _ = (await store.lake.compact()).tables
        clock.advance(timedelta(days=10))
        await store.publish("purchase", "ada", {"amount": 2})
        await store.drain()
        await store.admin.prune(history="1d")
        assert await read(before.snapshot_id) == [1]
        after, _ = (await store.lake.compact()).tables
        for snapshot in (None, after.snapshot_id):
            with pytest.raises(InvalidInputError, match="was pruned"):
                await read(snapshot)


async def test_a_snapshot_needs_a_lake(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        with pytest.raises(InvalidInputError, match=r"no snapshots; set lake\.url"):
            await store.get_historical_features([], ["spent"], snapshot=1)
