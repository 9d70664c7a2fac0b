"""Footers of Parquet files, checked before DuckDB allocates what they claim to have.

A footer is a struct in Thrift's compact protocol. DuckDB makes a list as long as its head says, and
calls itself for each level of the schema: 67 bytes could take all memory, or end the process.
"""

from __future__ import annotations

from collections.abc import Callable

_SCHEMA = 2  # the field of the footer with the elements of the schema, parents first
_CHILDREN = 5  # the field of an element with the number of its children
_BYTE, _I32, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 3, 5, 7, 8, 9, 10, 11, 12
_TRUTH = (1, 2)
_INTEGERS = (4, _I32, 6)
_LONG_LIST = 15
# Twice what the largest table has that is within the limits of a server.
_MOST_STRUCTS = 1_000_000
_MOST_BYTES = 8_000_000  # without texts: each of the others takes a part of a microsecond
_DEEPEST = 100


class FooterError(ValueError):
    """A footer that is damaged, or larger than that of any table."""


def check_footer(footer: bytes) -> None:
    """Raise FooterError if a footer is damaged, or has too many parts or levels."""
    try:
        _Footer(footer).read_struct(is_footer=True)
    except (IndexError, RecursionError):
        raise FooterError("its footer is damaged") from None


class _Footer:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._structs = 0
        self._bytes = 0
        self._levels = 0

    def read_struct(self, *, is_footer: bool = False) -> int:
        """Read over a struct; return the number of children that it has as a schema element."""
        self._structs += 1
        field = children = 0
        while kind := (head := self._byte()) & 15:
            step = head >> 4
            field = (field + step if step else self._integer()) & 0xFFFF
            if is_footer and field == _SCHEMA and kind == _LIST:
                self._read_schema()
            elif field == _CHILDREN and kind == _I32:
                children = self._integer()
            elif kind not in _TRUTH:
                self._skip(kind)
        return children

    def _read_schema(self) -> None:
        kind, count = self._list_head()
        open_groups: list[int] = []
        for _ in range(count):
            if kind != _STRUCT:
                raise IndexError
            children = self.read_struct()
            while open_groups and not open_groups[-1]:
                open_groups.pop()
            if open_groups:
                open_groups[-1] -= 1
            if children > 0:
                open_groups.append(children)
            if len(open_groups) > _DEEPEST:
                raise FooterError(f"its columns are nested more than {_DEEPEST} deep")

    def _skip(self, kind: int) -> None:
        if kind == _STRUCT:
            self._nested(self.read_struct)
        elif kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            self._advance(self._varint())
        elif kind in (_LIST, _SET):
            self._nested(self._skip_list)
        elif kind == _MAP:
            self._nested(self._skip_map)
        elif kind == _DOUBLE:
            self._advance(8)
        elif kind == _BYTE or kind in _TRUTH:
            self._byte()
        else:
            raise IndexError

    def _nested(self, read: Callable[[], object]) -> None:
        self._levels += 1
        if self._levels > _DEEPEST:
            raise IndexError
        read()
        self._levels -= 1

    def _skip_list(self) -> None:
        kind, count = self._list_head()
        for _ in range(count):
            self._skip(kind)

    def _skip_map(self) -> None:
        count = self._size(self._varint())
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._skip(kinds >> 4)
            self._skip(kinds & 15)

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        return head & 15, self._size(self._varint() if count == _LONG_LIST else count)

    def _size(self, count: int) -> int:
        """Return the size of a list, each of whose values has a byte at least."""
        if count > len(self._data) - self._at:
            raise IndexError
        return count

    def _integer(self) -> int:
        value = self._varint() & 0xFFFFFFFF
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise IndexError
        return value | byte << shift

    def _byte(self) -> int:
        self._bytes += 1
        if self._bytes > _MOST_BYTES or self._structs > _MOST_STRUCTS:
            raise FooterError("its footer has too many parts; write it with fewer row groups")
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _advance(self, count: int) -> None:
        self._at += self._size(count)
