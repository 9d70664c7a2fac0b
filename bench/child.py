"""A measuring process: answers each line on stdin with one figure of the named measure."""

import importlib
import json
import os
import sys
from pathlib import Path

import msgspec

from bench.case import Effort


def main() -> None:
    """Keeps stdout for the answers, and sends whatever else is printed there to the log."""
    module, name, home, effort = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    measuring = importlib.import_module(module).MEASURES[name]
    with measuring(Path(home), msgspec.json.decode(effort, type=Effort)) as measure:
        for _ in sys.stdin:
            answers.write(json.dumps({"value": measure()}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
