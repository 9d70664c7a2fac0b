"""A lake in the bucket of a real server of S3."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from engines.lakes import Bucket, s3_bucket
from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError, HeadwaterError, InvalidInputError
from tests.backends.lake.test_forgetting import CANARY, holding
from tests.backends.lake.test_postgres_tail import click, expected, logged, store_of


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as started:
        yield started


async def test_rows_are_moved_merged_and_read(bucket: Bucket, tmp_path: Path) -> None:
    settings = bucket.settings(tmp_path / "home", "rolled")
    opened = await connect(settings, SystemClock())
    async with store_of(settings) as store:
        for start in range(0, 90, 10):
            await click(store, range(start, start + 10))
            await opened.offline.maintain()
        history, events = (await store.lake.status()).tables
        assert (history.rows, events.rows) == (90, 90)
        assert (history.files, events.files) == (2, 2)
        assert await logged(opened.offline) == expected(90)
        history, _ = (await store.lake.compact()).tables
        assert history.snapshot_id is not None
        assert await logged(opened.offline) == expected(90)
    await opened.lifecycle.close()


async def test_a_training_set_can_be_read_again_until_its_snapshot_expires(
    bucket: Bucket, tmp_path: Path
) -> None:
    async with store_of(bucket.settings(tmp_path / "home", "trained")) as store:
        await click(store, range(15))
        history, _ = (await store.lake.compact()).tables
        now = SystemClock().now()
        rows = [{"user_id": f"u{n}", "timestamp": now + timedelta(hours=1)} for n in range(6)]
        labels = tmp_path / "labels.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), labels)

        async def read(name: str, **options: Any) -> Path:
            output = tmp_path / name
            await store.get_historical_features(labels, ["clicked"], output=output, **options)
            return output

        first = await read("first.parquet", snapshot=history.snapshot_id)
        await click(store, range(15, 25))
        await store.lake.compact()
        again = await read("again.parquet", snapshot=history.snapshot_id)
        present = await read("present.parquet")
        assert first.read_bytes() == again.read_bytes()
        values = [pyarrow.parquet.read_table(file)["clicked"] for file in (first, present)]
        assert [column.to_pylist() for column in values] == [
            [10, 11, 12, 13, 14, None],
            [20, 21, 22, 23, 24, None],
        ]
        before = len(bucket.objects())
        assert (await store.lake.expire(older_than="1ms")).files > 0
        assert len(bucket.objects()) < before
        with pytest.raises(InvalidInputError, match="it has expired"):
            await read("late.parquet", snapshot=history.snapshot_id)
        again = await read("after.parquet")
        assert pyarrow.parquet.read_table(again) == pyarrow.parquet.read_table(present)


async def test_no_object_of_the_bucket_has_a_forgotten_person(
    bucket: Bucket, tmp_path: Path
) -> None:
    settings = bucket.settings(tmp_path / "home", "forgotten")
    opened = await connect(settings, SystemClock())
    async with store_of(settings) as store:
        await click(store, range(20))
        await click(store, range(20, 30), CANARY)
        await store.lake.compact()
        # The object of a writer that died before its commit.
        [*_, some] = holding(bucket.download(tmp_path / "objects"), CANARY)
        orphan = "history-0000-1023-01999999-0000-7000-8000-000000000000.parquet"
        data = "lake/forgotten/history/data"
        bucket.files.copy_file(f"{data}/{some}", f"{data}/{orphan}")
        await click(store, range(30, 35), CANARY)
        await store.lake.compact()
        found = holding(bucket.download(tmp_path / "objects"), CANARY)
        assert orphan in found
        assert len(found) > 3
        forgotten = await store.admin.forget("User", CANARY, reason="asked")
        assert (forgotten.history, forgotten.events) == (15, 15)
        assert holding(bucket.download(tmp_path / "objects"), CANARY) == []
        # Nor has the server kept it elsewhere, such as in a part of an upload.
        assert holding(bucket.folder, CANARY) == []
        assert await logged(opened.offline) == expected(20)
    await opened.lifecycle.close()


async def test_a_server_that_was_killed_loses_no_row(bucket: Bucket, tmp_path: Path) -> None:
    settings = bucket.settings(tmp_path / "home", "killed")
    opened = await connect(settings, SystemClock())
    async with store_of(settings) as store:
        await click(store, range(10))
        await opened.offline.maintain()
        await click(store, range(10, 25))
        bucket.machine.kill()
        try:
            with pytest.raises(HeadwaterError):
                await opened.offline.maintain()
        finally:
            bucket.machine.start()
        assert await logged(opened.offline) == expected(25)
        await opened.offline.maintain()
        assert await logged(opened.offline) == expected(25)
    await opened.lifecycle.close()


async def test_wrong_keys_are_refused_and_not_shown(bucket: Bucket, tmp_path: Path) -> None:
    settings = bucket.settings(tmp_path / "home", "refused", secret_key="wrong-0815")
    async with store_of(settings) as store:
        with pytest.raises(BackendUnavailableError, match="ACCESS_DENIED") as refused:
            await store.lake.init()
        assert "0815" not in str(refused.value)
