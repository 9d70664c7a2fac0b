"""The address of a Redis server, read from the setting ``redis.url``."""

from __future__ import annotations

import re
from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote

from headwater.errors import ConfigError
from headwater.errors.hints import nearest

_PORT, _SENTINEL_PORT = 6379, 26379
_URL = re.compile(r"([\w+]+)://(?:([^/?#]*)@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?")
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^\[\]:]+))?(?::(.*))?")
_NEXT_URL = re.compile(r",\s*[\w+]+://")
_SENTINEL = "+sentinel"
_SERVERS = ("redis", "rediss", "valkey", "valkeys")
_SCHEMES = (*_SERVERS, *(scheme + _SENTINEL for scheme in _SERVERS), "unix")


class Address(NamedTuple):
    """The address of a server, with the credentials and the database to use.

    With the name of a ``master`` it is that of a Sentinel, which knows where this master is.
    """

    host: str
    port: int
    path: str = ""
    username: str = ""
    password: str = ""
    database: int = 0
    secure: bool = False
    master: str = ""

    def at(self, host: str, port: int) -> Self:
        """Return the address of another server of the same cluster, or of the master itself."""
        return self._replace(host=host, port=port, path="", master="")

    def __str__(self) -> str:
        place = self.path or f"{self.host}:{self.port}"
        return f"{self.master!r} of the Sentinels at {place}" if self.master else place


def parse_url(url: str) -> list[Address]:
    """Return the servers of ``redis://user:password@host:port,host:port/0``, at least one.

    The scheme is ``rediss`` for an encrypted connection, and ``unix:///path?db=0`` names a socket.
    ``redis+sentinel://host:port,host:port/name?db=0`` names Sentinels and a master that they watch.
    """
    if url.partition("://")[0] not in _SCHEMES:
        raise ConfigError(
            "redis.url must begin with redis://, rediss:// (encrypted), unix:// or "
            "redis+sentinel://, for example redis://localhost:6379/0"
        )
    if _NEXT_URL.search(url):
        raise _invalid(
            "it contains several URLs; write the scheme, the user and the password once, and all "
            "hosts after them, such as redis://:password@a:6379,b:6379"
        )
    if (parts := _URL.fullmatch(url)) is None:
        raise _invalid("it contains a '#'")
    scheme, user, hosts, path, options = parts.groups(default="")
    scheme, sentinel, _ = scheme.partition(_SENTINEL)
    usual = _SENTINEL_PORT if sentinel else _PORT
    endpoints = [_endpoint(host, usual) for host in (hosts or "localhost").split(",")]
    username, _, password = user.partition(":")
    is_local, place = scheme == "unix", path.strip("/")
    database = _option(options, "db")
    if sentinel and not place:
        raise _invalid("it must name the master, as in redis+sentinel://one:26379,two:26379/name")
    return [
        Address(
            host,
            port,
            path=unquote(path) if is_local else "",
            username=unquote(username),
            password=unquote(password),
            database=_number(database if is_local or sentinel else place or database, "database"),
            secure=scheme in ("rediss", "valkeys"),
            master=unquote(place) if sentinel else "",
        )
        for host, port in endpoints
    ]


def _endpoint(text: str, usual: int) -> tuple[str, int]:
    parts = _HOST.fullmatch(text)
    if not text or parts is None:
        raise _invalid("after the user and the password it must name host:port, or several of them")
    ipv6, name, port = parts.groups(default="")
    try:
        name.encode("idna")
    except UnicodeError:
        raise _invalid("a host is not a valid name") from None
    return ipv6 or name or "localhost", _number(port, "port") if port else usual


def _option(options: str, wanted: str) -> str:
    values = parse_qs(options, keep_blank_values=True)
    for name in values:
        if name != wanted:
            raise ConfigError(
                f"redis.url has the unknown option {name!r}: {nearest(name, [wanted])}; timeouts "
                "are the settings redis.timeout and redis.connect_timeout"
            )
    return values.get(wanted, ["0"])[-1]


def _number(text: str, meaning: str) -> int:
    if not text.isdecimal():
        raise _invalid(f"its {meaning} must be a number")
    return int(text)


def _invalid(problem: str) -> ConfigError:
    # Without the text, which may be a part of the password.
    return ConfigError(
        f"redis.url is invalid: {problem}; write it as redis://user:password@host:6379/0, with "
        "special characters of the password percent-encoded and several hosts separated by commas"
    )
