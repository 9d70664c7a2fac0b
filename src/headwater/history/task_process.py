"""The program of a process that runs tasks, with the descriptor of a socket as its argument.

Over the socket it gets the search path of modules, and then one task after the other. It exits when
the socket is closed, which the kernel does if the other process dies.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any

import msgspec

from headwater.errors import HeadwaterError

LENGTH = struct.Struct("!Q")
"""The length of a message, which precedes it."""


class TaskAnswer(msgspec.Struct, frozen=True):
    """The result of a task, or its error."""

    result: Any = None
    error: str | None = None
    trace: str = ""


def main() -> None:
    """Run tasks until the socket is closed."""
    with socket.socket(fileno=int(sys.argv[1])) as link:
        messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_receive, args=(link, messages), daemon=True).start()
        sys.path[:] = pickle.loads(messages.get())
        while True:
            answer = pickle.dumps(_run(messages.get()))
            link.sendall(LENGTH.pack(len(answer)) + answer)


def _run(message: bytes) -> TaskAnswer:
    try:
        return TaskAnswer(pickle.loads(message).run())
    except HeadwaterError as error:
        return TaskAnswer(error=str(error), trace=traceback.format_exc())
    except Exception as error:  # noqa: BLE001 - raised again in the other process
        return TaskAnswer(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _receive(link: socket.socket, messages: SimpleQueue[bytes]) -> None:
    """Put messages into a queue; end this process when there will be no more, also in a task."""
    with link.makefile("rb") as stream:
        while header := stream.read(LENGTH.size):
            (size,) = LENGTH.unpack(header)
            messages.put(stream.read(size))
    os._exit(0)
