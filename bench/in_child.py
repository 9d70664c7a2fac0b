"""Contestants that are measured in a separate process and folder."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench.case import Contestant, Effort, Measure
from bench.process import child, measuring, scratch


def in_child(module: str, name: str) -> Contestant:
    """Return a measure of a module of this package."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        label = f"{module}-{name}"
        with scratch(label) as home:
            command = child(module, name, home, effort)
            with measuring(label, command, {"HEADWATER_HOME": str(home)}) as measure:
                yield measure

    return contestant
