"""How well our searches rank the passages of a help centre, by judgements."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.case import Effort, Figure
from bench.floors import Measuring
from bench.ours import one_loop
from headwater import FeatureStore
from tests.retrieval.quality.help_centre import METHODS, Method, declare, fill, rankings
from tests.retrieval.quality.judgements import quality, queries


def ranking(
    method: Method,
) -> Callable[[str, Effort], AbstractContextManager[Callable[[], Figure]]]:
    """Return the measure of one method of searching."""

    @contextmanager
    def measuring(where: str, effort: Effort) -> Iterator[Callable[[], Figure]]:
        store = FeatureStore()
        declare(store)
        asked = queries() if effort.is_timed else queries()[:3]

        async def figure() -> Figure:
            measured = quality(await rankings(store, method, asked))
            return Figure(measured.ndcg, {"recall": measured.recall, "MRR": measured.mrr})

        with one_loop(
            figure, lambda: fill(store, () if effort.is_timed else asked), store
        ) as measure:
            yield measure

    return measuring


MEASURES: dict[str, Measuring] = {method: ranking(method) for method in METHODS}
