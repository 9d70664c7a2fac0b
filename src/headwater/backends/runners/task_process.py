"""The program of a process that runs the tasks that it reads from its standard input.

It exits when that ends, which the kernel sees to if the other process dies.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
from queue import SimpleQueue

LENGTH = struct.Struct("!Q")
"""The length of a message, which precedes it."""


def main() -> None:
    """Run tasks until the input ends."""
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(messages,), daemon=True).start()
    # What tasks print goes where errors do: the output is for answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while True:
            answer = pickle.dumps(pickle.loads(messages.get()).run())
            answers.write(LENGTH.pack(len(answer)) + answer)
            answers.flush()


def _receive(messages: SimpleQueue[bytes]) -> None:
    """Put messages into a queue; end this process when there will be no more, also in a task."""
    while header := sys.stdin.buffer.read(LENGTH.size):
        messages.put(sys.stdin.buffer.read(*LENGTH.unpack(header)))
    os._exit(0)
