"""The rows named search: quality, speed, indexing and cached retrievals."""

from bench import production
from bench.case import (
    Case,
    Contestant,
    MicrosecondsMoreThanFloor,
    TimesFloor,
)
from bench.feast import peer as feast
from bench.in_child import in_child
from bench.langchain import peer as langchain

SIZE = "20k x 384"
WITHIN = 0.85  # of the rate of the floor


def _quality(method: str, floor: str, floor_is: str, times: float) -> Case:
    return Case(
        name=f"search quality: {method}",
        unit="nDCG@10",
        ours=in_child("quality", method),
        floor=in_child("quality", floor),
        floor_is=floor_is,
        targets=(TimesFloor(times),),
        rounds=1,
    )


def _on_postgres(peer: Contestant, peer_is: str) -> Case:
    return Case(
        name=f"redis search {SIZE} ({peer_is.split()[0]})",
        unit="searches/s",
        ours=production.ours("search", "searches"),
        floor=production.search_floor,
        floor_is="same Postgres: one SELECT over asyncpg",
        peer=peer,
        peer_is=peer_is,
        targets=(TimesFloor(WITHIN),),
    )


SEARCH_CASES = (
    _quality("vector", "text", "our BM25", 1.15),
    _quality("hybrid", "vector", "our vector search", 1.0),
    _quality("fallback", "text", "our BM25", 0.75),
    Case(
        name=f"search {SIZE}",
        unit="searches/s",
        ours=in_child("searches", "search"),
        floor=in_child("search_floors", "embedded"),
        floor_is="one NumPy product with a mapped matrix, ten rows from SQLite",
        peer=langchain.in_memory,
        peer_is=f"{langchain.NAME}, in memory",
        targets=(TimesFloor(WITHIN),),
    ),
    _on_postgres(langchain.in_postgres, f"{langchain.NAME}, pgvector"),
    _on_postgres(feast.searching, f"{feast.NAME}, pgvector"),
    Case(
        name="search: indexing",
        unit="documents/s",
        ours=in_child("searches", "indexing"),
        floor=in_child("indexing_floors", "embedded"),
        floor_is="the same chunks, inserted into the same tables",
        targets=(TimesFloor(0.83),),
    ),
    Case(
        name="search: cached retrieval",
        unit="µs",
        ours=in_child("searches", "cached"),
        floor=in_child("searches", "read"),
        floor_is="our read of one feature",
        targets=(MicrosecondsMoreThanFloor(1_000),),
    ),
    Case(
        name="redis search: cached retrieval",
        unit="µs",
        ours=production.ours("cached", "searches"),
        floor=production.ours("read", "searches"),
        floor_is="our read of one feature",
        targets=(MicrosecondsMoreThanFloor(250),),
    ),
)
