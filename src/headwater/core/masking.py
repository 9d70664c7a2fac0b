"""Secrets in settings: read from files, and masked where they are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Self

_MASK = "***"
_HARMLESS = {
    "application_name",
    "connect_timeout",
    "db",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "role",
    "s3_endpoint",
    "s3_region",
    "s3_url_style",
    "s3_use_ssl",
    "sslmode",
    "sslrootcert",
    "table",
    "target_session_attrs",
    "user",
    "warehouse",
}
"""The options of an address whose values are shown; any other may hold a secret."""

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*://")
_USER = re.compile(r"[\w.+-]*")
_HOST = r"(?:\[[\da-fA-F:.]+\]|[\w.%-]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w./%*=-]*)?")
_OPTION_VALUE = re.compile(r"[\w.,/:%-]*")
# As libpq reads it: quoted values contain spaces, and a backslash escapes any character.
_KEYWORD = re.compile(r"(\w+)(\s*=\s*)('(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])*)(?=\s|$)", re.DOTALL)
_KEYWORDS = re.compile(rf"\s*(?:{_KEYWORD.pattern}\s*)*", re.DOTALL)


class FileText(str):
    """The text of a file that a variable such as HEADWATER_REDIS_URL_FILE names."""

    __slots__ = ("path",)
    path: Path

    @classmethod
    def of(cls, text: str, path: Path) -> Self:
        """Return a text that was read from a file."""
        made = cls(text)
        made.path = path
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return FileText.of, (str(self), self.path)


def read_secret(path: Path) -> str:
    """Return the text of a file, without the end of its last line."""
    return path.read_text(encoding="utf-8").rstrip("\r\n")


def present(text: str) -> str:
    """Return a text of the settings; one from a file is read again.

    Raise OSError or ValueError if it is missing or has become empty: it may be being replaced.
    """
    if not isinstance(text, FileText):
        return text
    now = read_secret(text.path)
    if text and not now:
        raise ValueError(f"{text.path} is empty")
    return now


def mask(secret: str) -> str:
    """Return a secret as it is shown."""
    return _MASK if secret else ""


def mask_address(address: str) -> str:
    """Return a URL, or the keywords of a Postgres server, with everything masked but known parts.

    A password may contain any character, so it ends at the last ``@``. Before it, a name alone is
    that of a user only for Postgres; other servers take tokens there.
    """
    if _KEYWORDS.fullmatch(address):
        return _KEYWORD.sub(_mask_keyword, address)
    begin = _SCHEME.match(address)
    scheme = begin[0] if begin else ""
    credentials, at, rest = address[len(scheme) :].rpartition("@")
    user, colon, _ = credentials.partition(":")
    if user and not colon and not scheme.lower().startswith("postgres"):
        user = _MASK
    place, mark, options = rest.partition("?")
    password = colon and colon + _MASK
    shown = "&".join(map(_mask_option, options.split("&"))) if mark else ""
    return f"{scheme}{_only(_USER, user)}{password}{at}{_only(_PLACE, place)}{mark}{shown}"


def _only(clean: re.Pattern[str], text: str) -> str:
    return text if clean.fullmatch(text) else _MASK


def _mask_keyword(keyword: re.Match[str]) -> str:
    name, equals, value = keyword.groups()
    return f"{name}{equals}{value if name in _HARMLESS else _MASK}"


def _mask_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals:
        return mask(option)
    if name in _HARMLESS:
        return f"{name}={_only(_OPTION_VALUE, value)}"
    return f"{_only(_OPTION_VALUE, name)}={_MASK}"
