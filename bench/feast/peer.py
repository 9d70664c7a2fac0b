"""Feast as a contestant: its reads over the same Valkey, searches over pgvector, past values."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench import chunks
from bench.case import Contestant, Effort, Measure
from bench.environment import Environment
from bench.process import Command, measuring, scratch
from bench.production import new_database, redis_url

NAME = "Feast 0.67"

_HERE = Path(__file__).parent
ENVIRONMENT = Environment("Feast 0.67.0", _HERE / "requirements.txt")
_DATABASE = 1  # Feast names its keys by entity alone, so it gets a separate database


def reading(*, ids: int) -> Contestant:
    """Reads of so many entities with ten features each, per second."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        python = ENVIRONMENT.ready() / "python"
        server = f"{urlsplit(redis_url()).netloc},db={_DATABASE}"
        with scratch("feast") as folder:
            read = (_HERE / "inside" / "read.py", folder, server, str(ids), str(effort.seconds))
            command: Command = [python, *read]
            with measuring(f"feast-{ids}", command) as measure:
                yield measure

    return contestant


@contextmanager
def searching(effort: Effort) -> Iterator[Measure]:
    """Searches per second by vectors in Postgres.

    In SQLite, Feast 0.67 searches vectors with Python 3.10 alone, and needs a build of it that
    loads extensions.
    """
    python = ENVIRONMENT.ready() / "python"
    with scratch("feast") as folder:
        chunks.saved(folder, effort)
        inside = _HERE / "inside" / "search.py"
        command: Command = [python, inside, folder, new_database(), str(effort.seconds)]
        with measuring("feast-search", command) as measure:
            yield measure


def past_values(files: Callable[[Effort], tuple[Path, int]]) -> Contestant:
    """CPU seconds for a frame, in its store on DuckDB; the files and the number of features."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        python = ENVIRONMENT.ready() / "python"
        folder, features = files(effort)
        with scratch("feast") as work:
            inside = _HERE / "inside" / "history.py"
            command: Command = [python, inside, folder, work, str(features)]
            with measuring("feast-history", command) as measure:
                yield measure

    return contestant


def read_repository(folder: Path, frame: Path, features: Sequence[str]) -> Path:
    """Apply the definitions of a repository; return a file with the features of a frame added."""
    output = frame.with_name(f"{frame.stem}.feast.parquet")
    inside = str(_HERE / "inside" / "repository.py")
    python = str(ENVIRONMENT.ready() / "python")
    command = [python, inside, str(folder), str(frame), str(output), *features]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"Feast failed: {ran.stderr}")
    return output
