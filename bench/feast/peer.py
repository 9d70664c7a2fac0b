"""Feast as a contestant: its SDK's `get_online_features` over the same Valkey."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.case import Contestant, Effort, Measure
from bench.environment import Environment
from bench.process import Command, measuring, scratch
from bench.production import redis_url

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
