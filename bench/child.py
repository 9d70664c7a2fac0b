"""A measuring process: answers each line on stdin with one figure of the named measure."""

import importlib
import os
import sys

import msgspec

from bench.case import Effort, Figure
from headwater.core.logging import log


def main() -> None:
    """Keep stdout for the answers; redirect all other output to the log."""
    module, name, where, effort = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    log.configure("info", "json")  # as `headwater serve` and `headwater worker` do
    measuring = importlib.import_module(module).MEASURES[name]
    with measuring(where, msgspec.json.decode(effort, type=Effort)) as measure:
        for _ in sys.stdin:
            taken = measure()
            figure = taken if isinstance(taken, Figure) else Figure(taken)
            answers.write(msgspec.json.encode(figure).decode() + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
