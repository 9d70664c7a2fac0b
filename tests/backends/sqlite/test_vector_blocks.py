"""Vector blocks: shared files that can be lost, damaged or left over without a wrong answer."""

from __future__ import annotations

import os
import random
import resource
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.documents import (
    EAST,
    changed_at,
    document,
    near,
    removal,
    texts,
)
from headwater.backends.sqlite.vectors import blocks
from headwater.ports import Compare, VectorQuery
from tests.backends.sqlite.vector_home import answers, block_files, opened, random_documents, vector

ROWS = 8
QUERIES: list[VectorQuery] = [
    near(vector(random.Random(seed)), limit=limit, with_embeddings=True)
    for seed, limit in enumerate([1, 3, 10, 100])
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", ROWS * 4 * len(EAST))


async def filled(home: Path, count: int = 5 * ROWS + 3) -> list[object]:
    """Fill a home; return the right answers, which were computed without a file."""
    async with opened(home) as store:
        await store.vectors.write(random_documents(1, count))
        return await answers(store.vectors, QUERIES)


async def test_blocks_are_private_files_that_every_process_maps(home: Path) -> None:
    expected = await filled(home)
    files = block_files(home)
    assert [file.name for file in files] == [
        f"1-{first}-{first + ROWS - 1}.vectors" for first in range(1, 5 * ROWS, ROWS)
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    times = [file.stat().st_mtime_ns for file in files]
    async with opened(home) as store:
        assert await answers(store.vectors, QUERIES) == expected
    assert [file.stat().st_mtime_ns for file in block_files(home)] == times


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)


def flip_the_header(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)


def replace_by_a_neighbour(file: Path) -> None:
    neighbour = next(each for each in block_files(file.parent.parent) if each != file)
    shutil.copyfile(neighbour, file)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        truncate,
        flip_a_bit,
        flip_the_header,
        replace_by_a_neighbour,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    ],
)
async def test_a_file_that_is_lost_or_damaged_is_written_again(
    home: Path, damage: Callable[[Path], object]
) -> None:
    expected = await filled(home)
    good = [file.read_bytes() for file in block_files(home)]
    for file in block_files(home)[1:3]:
        damage(file)
    async with opened(home) as store:
        assert await answers(store.vectors, QUERIES) == expected
    assert [file.read_bytes() for file in block_files(home)] == good


async def test_files_of_another_history_are_not_used(home: Path) -> None:
    """A backup was restored, and other documents were written then."""
    await filled(home / "one", ROWS)
    shutil.copytree(home / "one", home / "two")
    async with opened(home / "one") as store:
        await store.vectors.write(random_documents(2, 2 * ROWS, first=100))
        await answers(store.vectors, QUERIES)
    async with opened(home / "two") as store:
        await store.vectors.write(random_documents(3, 2 * ROWS, first=100))
        expected = await answers(store.vectors, QUERIES)
    for file in block_files(home / "one"):
        shutil.copyfile(file, home / "two" / "vectors" / file.name)
    async with opened(home / "two") as store:
        assert await answers(store.vectors, QUERIES) == expected


async def test_a_search_works_without_a_folder_for_files(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(home) as store:
        (home / "vectors").rmdir()
        (home / "vectors").write_bytes(b"")
        await store.vectors.write(random_documents(1, 3 * ROWS))
        found = await answers(store.vectors, QUERIES)
        (home / "vectors").unlink()
        (home / "vectors").mkdir()
        assert await answers(store.vectors, QUERIES) == found
    assert len(block_files(home)) == 3


async def test_a_search_works_without_space_for_files(home: Path) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(home) as store:
        await store.vectors.write(random_documents(1, 3 * ROWS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
        try:
            found = await answers(store.vectors, QUERIES)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert list((home / "vectors").iterdir()) == []
        assert await answers(store.vectors, QUERIES) == found
    assert len(block_files(home)) == 3


async def test_every_search_is_exact(home: Path) -> None:
    """Compare with all vectors of a model, over blocks, replacements, removals and prunes."""
    rng = random.Random(11)
    model: dict[str, tuple[float, ...]] = {}
    past: list[tuple[int, dict[str, tuple[float, ...]]]] = []
    async with opened(home) as one, opened(home) as two:
        for step in range(60):
            names = rng.sample(range(40), rng.randrange(1, 6))
            writes = []
            for name in names:
                if rng.random() < 0.2:
                    model.pop(f"d{name}", None)
                    writes.append(removal(f"d{name}"))
                else:
                    model[f"d{name}"] = vector(rng)
                    text = f"{name} {step}"
                    metadata = {"n": name}
                    writes.append(
                        document(f"d{name}", text, vectors=[model[f"d{name}"]], metadata=metadata)
                    )
            await rng.choice([one, two]).vectors.write(writes)
            past.append((await changed_at(one.vectors), dict(model)))
            if step == 30:
                await one.vectors.prune("docs", past[15][0] + 1)
            store = rng.choice([one, two])
            kept = past[15:] if step >= 30 else past
            moment, then = rng.choice([*kept, past[-1], past[-1]])
            least = rng.choice([0, 20])
            wanted = vector(rng)
            query = near(
                wanted,
                limit=rng.choice([1, 5, 50]),
                as_of=None if then == model else moment,
                filters=Compare("n", "gte", least) if least else None,
            )
            expected = sorted(
                (name for name in then if int(name[1:]) >= least),
                key=lambda name: -cosine(wanted, then[name]),
            )[: query.limit]
            hits = (await store.vectors.nearest(query)).hits
            assert [hit.document for hit in hits] == expected
            scores = [cosine(wanted, then[name]) for name in expected]
            assert [hit.score for hit in hits] == pytest.approx(scores, abs=1e-6)


def cosine(one: tuple[float, ...], two: tuple[float, ...]) -> float:
    product = sum(a * b for a, b in zip(one, two, strict=True))
    squares = sum(a * a for a in one) * sum(b * b for b in two)
    return float(product / squares**0.5)


async def test_equal_vectors_have_equal_scores_in_every_place(home: Path) -> None:
    async with opened(home) as store:
        rng = random.Random(5)
        same = vector(rng)
        await store.vectors.write(
            [document(f"d{n:03}", f"text {n}", vectors=[same]) for n in range(5 * ROWS + 3)]
        )
        hits = (await store.vectors.nearest(near(vector(rng), limit=7))).hits
        assert [hit.document for hit in hits] == [f"d{n:03}" for n in range(7)]
        assert len({hit.score for hit in hits}) == 1


async def test_files_of_removed_chunks_are_removed(home: Path) -> None:
    async with opened(home) as store:
        await store.vectors.write(random_documents(1, 2 * ROWS))
        await answers(store.vectors, QUERIES)
        old = block_files(home)
        assert len(old) == 2
        await store.vectors.write(random_documents(2, 2 * ROWS, word="other"))
        await answers(store.vectors, QUERIES)
        await store.vectors.prune("docs", await changed_at(store.vectors) + 1)
        kept = block_files(home)
        assert len(kept) == 2
        assert not {*kept} & {*old}
        assert len(texts(await store.vectors.nearest(near()))) == 2 * ROWS
        abandoned = home / "vectors" / "1-1-8.vectors.7-7"
        abandoned.write_bytes(b"")
        fresh = home / "vectors" / "1-1-8.vectors.8-8"
        fresh.write_bytes(b"")
        os.utime(abandoned, (0, 0))
        await store.vectors.drop("docs")
        assert block_files(home) == [fresh]
