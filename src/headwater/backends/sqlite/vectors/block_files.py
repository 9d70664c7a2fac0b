"""The files of vector blocks: their names, and the removal of unused ones."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors.document_writes import SEQ_BITS

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.vectors(\.\d+-\d+)?")
# A block is written in less than a second; a file that is older was left by a crash.
_ABANDONED_SECONDS = 600.0
_HAS_CHUNKS = "SELECT EXISTS (SELECT 1 FROM chunks WHERE id BETWEEN ? AND ?)"


def block_name(generation: int, first: int, last: int) -> str:
    """Return the name of the file with the vectors of these chunks."""
    return f"{generation}-{first}-{last}.vectors"


def remove_unused(home: Home) -> None:
    """Remove the files of blocks whose chunks were all removed, and those of crashed writers."""
    with home.translated():
        for file in home.vectors.iterdir():
            name = _NAME.fullmatch(file.name)
            if name is not None and _is_unused(home, file, name):
                file.unlink(missing_ok=True)


def _is_unused(home: Home, file: Path, name: re.Match[str]) -> bool:
    generation, first, last = (int(name[n]) for n in (1, 2, 3))
    if name[4] is not None:
        with suppress(FileNotFoundError):
            return time.time() - file.stat().st_mtime > _ABANDONED_SECONDS
        return False
    base = generation << SEQ_BITS
    ((has_chunks,),) = home.read(_HAS_CHUNKS, (base + first, base + last))
    return not has_chunks
