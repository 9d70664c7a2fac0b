"""A kill in the middle of a write leaves the old or the new version of a document."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.errors import BackendError
from headwater.settings.schema import Settings
from tests.backends.postgres import rewriting
from tests.backends.postgres.documents import embedding, near, spec, with_terms
from tests.backends.postgres.story import Open, until
from tests.servers import restartable_postgres

pytestmark = [pytest.mark.chaos, pytest.mark.direct]

ROOT = Path(__file__).parents[3]
KILLS = 2


async def version_of(past: PostgresEnvironment) -> int:
    """Return the version that the index holds; assert that it is one, and complete."""
    moment = None
    while moment != (moment := await changed_at(past)):
        # The server may still finish the transaction of a process that was killed.
        stored = (await past.vectors.documents("docs", ["a"])).get("a")
        nearest = await past.vectors.nearest(near(embedding(1, 0, 0), limit=1_000))
        matching = await past.vectors.matching(with_terms("kept", "version", limit=1_000))
        [generation] = await past.vectors.generations("docs")
    assert stored is not None
    for found in (nearest, matching):
        assert sorted(hit.text for hit in found.hits) == sorted(stored.text.split("\n"))
        assert Counter(hit.version for hit in found.hits)[stored.version] in (20, 40)
    assert (generation.documents, generation.chunks, generation.outdated) == (1, 40, 0)
    return stored.version


async def changed_at(past: PostgresEnvironment) -> int:
    version = await past.vectors.version("docs")
    assert version is not None
    return version.changed_at


async def test_a_killed_process_leaves_the_old_or_the_new_document(
    past: PostgresEnvironment, settings: Settings
) -> None:
    await past.vectors.create("docs", spec())
    version = 0
    for number in range(KILLS):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.backends.postgres.rewriting"),
            *(settings.postgres.url, settings.postgres.schema),
            cwd=ROOT,
        )

        async def has_written(wanted: int = version + number) -> bool:
            stored = (await past.vectors.documents("docs", ["a"])).get("a")
            return stored is not None and stored.version > wanted

        await until(has_written)
        child.kill()
        await child.wait()
        version = await version_of(past)
    assert version > KILLS


async def test_a_killed_server_leaves_the_old_or_the_new_document(opening: Open) -> None:
    with restartable_postgres() as (url, machine):
        past = await opening(postgres={"url": url})
        await past.vectors.create("docs", spec())
        version = 0
        for _ in range(2):
            writer = asyncio.create_task(rewriting.rewrite(past))

            async def has_written(before: int = version) -> bool:
                stored = (await past.vectors.documents("docs", ["a"])).get("a")
                return stored is not None and stored.version > before

            await until(has_written)
            machine.kill()
            [error] = await asyncio.gather(writer, return_exceptions=True)
            assert isinstance(error, BackendError)
            machine.start()
            after = await version_of(past)
            assert after > version
            version = after
