"""Ids of requests, which tie a response to its log records."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from itertools import count

HEADER = b"x-request-id"

_is_sane = re.compile(rb"[A-Za-z0-9._-]{1,64}").fullmatch


class RequestIds:
    """Gives every request an id: the one its client sent, or a new one.

    New ids are a random prefix of this process and a number, which takes a tenth of the time of a
    UUID.
    """

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(4) + "-"
        self._numbers = count(1)

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the id of a request; an id that could forge log records is replaced."""
        for name, value in headers:
            if name == HEADER and _is_sane(value):
                return value.decode()
        return self._prefix + str(next(self._numbers))
