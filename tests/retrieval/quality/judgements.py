"""The passages, the queries with their judgements, and measures of rankings against these."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

CUT = 10
"""How many results of a search are judged."""

Kind = Literal[
    "keyword",  # words of the passage
    "question",  # a sentence that shares some words with the passage
    "paraphrase",  # a description that shares few words with it, or none
    "confusable",  # several passages have the words, one has the answer
    "code",  # an error code or an article number
    "message",  # a whole message of a customer
    "language",  # not in English, with a passage in the same language
    "crosslingual",  # not in English, with passages in other languages only
]


class Passage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A short text of the help centre."""

    id: str
    text: str


class JudgedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query with its relevant passages: 2 for one that answers it, 1 for one that helps."""

    kind: Kind
    query: str
    relevant: Mapping[str, Literal[1, 2]]


Rankings: TypeAlias = Sequence[tuple[JudgedQuery, Sequence[str]]]
"""For each query the ids of the passages that were found, best first."""


class Quality(NamedTuple):
    """Measures of rankings, each from 0 to 1."""

    ndcg: float
    """Gain of the first ten results, discounted by rank, as a share of the best possible one."""
    recall: float
    """Share of the relevant passages that are among the first ten."""
    mrr: float
    """1 / rank of the first passage that answers the query, or 0."""


@cache
def passages() -> tuple[Passage, ...]:
    return _read("passages.jsonl", Passage)


@cache
def queries() -> tuple[JudgedQuery, ...]:
    return _read("queries.jsonl", JudgedQuery)


def quality(rankings: Rankings, kind: Kind | None = None) -> Quality:
    """Return the mean over all queries, or over those of one kind."""
    judged = [
        judge(ranking, query.relevant)
        for query, ranking in rankings
        if kind is None or query.kind == kind
    ]
    return Quality(*map(fmean, zip(*judged, strict=True)))


def judge(ranking: Sequence[str], relevant: Mapping[str, int]) -> Quality:
    """Return how good the ranking of passages for one query is."""
    grades = [relevant.get(passage, 0) for passage in ranking[:CUT]]
    answers = [rank for rank, grade in enumerate(grades, start=1) if grade == 2]
    return Quality(
        ndcg=_gain(grades) / _gain(sorted(relevant.values(), reverse=True)[:CUT]),
        recall=sum(grade > 0 for grade in grades) / len(relevant),
        mrr=1 / answers[0] if answers else 0.0,
    )


def _gain(grades: Sequence[int]) -> float:
    return sum(
        ((1 << grade) - 1) / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1)
    )


def _read(name: str, kind: type[T]) -> tuple[T, ...]:
    lines = (Path(__file__).parent / name).read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=kind) for line in lines)
