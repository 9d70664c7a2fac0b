"""LangChain as a contestant: a retriever over its vector stores, in memory and in Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import chunks
from bench.case import Contestant, Effort, Measure
from bench.environment import Environment
from bench.process import Command, measuring, scratch
from bench.production import new_database

NAME = "LangChain 1.7"

_HERE = Path(__file__).parent
_ENVIRONMENT = Environment("LangChain 1.7", _HERE / "requirements.txt")


def _searching(*, is_in_postgres: bool) -> Contestant:
    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        python = _ENVIRONMENT.ready() / "python"
        url = new_database() if is_in_postgres else ""
        with scratch("langchain") as folder:
            chunks.saved(folder, effort)
            command: Command = [
                python,
                _HERE / "inside" / "search.py",
                folder,
                url,
                str(effort.seconds),
            ]
            with measuring("langchain", command) as measure:
                yield measure

    return contestant


in_memory = _searching(is_in_postgres=False)
in_postgres = _searching(is_in_postgres=True)
