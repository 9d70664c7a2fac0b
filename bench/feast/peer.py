"""Feast as a contestant: its SDK's reads over the same Valkey, and its searches over pgvector."""

from collections.abc import Iterator
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
_ENVIRONMENT = Environment("Feast 0.67.0", _HERE / "requirements.txt")
_DATABASE = 1  # Feast names its keys by entity alone, so it gets a separate database


def reading(*, ids: int) -> Contestant:
    """Reads of so many entities with ten features each, per second."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        python = _ENVIRONMENT.ready() / "python"
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
    python = _ENVIRONMENT.ready() / "python"
    with scratch("feast") as folder:
        chunks.saved(folder)
        inside = _HERE / "inside" / "search.py"
        command: Command = [python, inside, folder, new_database(), str(effort.seconds)]
        with measuring("feast-search", command) as measure:
            yield measure
