"""Lines of the answers to long actions: progress, parts of a file, and the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, TypeVar

import msgspec

from headwater.model.progress import OnStep, ProgressStep

S = TypeVar("S")


class StreamLine(msgspec.Struct, frozen=True):
    """A line; the last one has the result or the problem."""

    progress: msgspec.Raw = msgspec.Raw()
    data: bytes = b""
    result: msgspec.Raw = msgspec.Raw()
    problem: msgspec.Raw = msgspec.Raw()


OnLine = Callable[[StreamLine], None]


def counted(progress: OnStep | None) -> OnLine | None:
    """Return a function that calls ``progress`` with the numbers of a line."""
    return shown(ProgressStep, progress and (lambda step: progress(step.done, step.total)))


def shown(kind: type[S], progress: Callable[[S], None] | None) -> OnLine | None:
    """Return a function that calls ``progress`` with the progress of a line, in its type."""
    if progress is None:
        return None
    decoder = msgspec.json.Decoder(kind | None)

    def show(line: StreamLine) -> None:
        step = decoder.decode(line.progress) if bytes(line.progress) else None
        if step is not None:
            progress(step)

    return show


def written(file: BinaryIO, then: OnLine | None = None) -> OnLine:
    """Return a function that writes the data of lines to a file."""

    def write(line: StreamLine) -> None:
        file.write(line.data)
        if then is not None:
            then(line)

    return write
