"""Wrong keys are slowed down, for each address."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from headwater.access.errors import TooManyWrongKeysError

_ALLOWED = 10
_WINDOW_SECONDS = 10.0
_LARGEST_TABLE = 10_000


class _Failures(NamedTuple):
    number: int
    until: float


class WrongKeys:
    """Counts wrong keys by address.

    After ten in ten seconds, an address has to wait for the end of these ten seconds. Keys that
    were valid in an earlier request are not affected: clients behind a proxy share its address.
    """

    def __init__(self, size: int = _LARGEST_TABLE) -> None:
        self._size = size
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def check(self, address: str, now: float) -> None:
        """Raise TooManyWrongKeysError if an address has to wait."""
        failures = self._failures.get(address)
        if failures is None:
            return
        if failures.until <= now:
            del self._failures[address]
        elif failures.number >= _ALLOWED:
            raise TooManyWrongKeysError(failures.until - now)

    def add(self, address: str, now: float) -> None:
        """Count a wrong key of an address."""
        failures = self._failures.pop(address, None)
        if failures is None or failures.until <= now:
            failures = _Failures(0, now + _WINDOW_SECONDS)
        if len(self._failures) >= self._size:
            self._failures.popitem(last=False)
        self._failures[address] = _Failures(failures.number + 1, failures.until)
