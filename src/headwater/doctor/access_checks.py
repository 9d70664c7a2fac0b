"""Checks of API keys and tokens: who may call a server of this store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.access.key_format import check_strength
from headwater.access.keys_file import ApiKey, read_keys
from headwater.access.local_requests import is_loopback
from headwater.errors import ConfigError
from headwater.model.health import Findings
from headwater.settings.schema import Settings

_CHECK = "API keys"
_SOON = timedelta(days=14)
_WRITABLE_BY_OTHERS = 0o022
_CREATE = "create a key with `headwater keys create NAME --scope admin`, or set HEADWATER_API_KEY"


def add_access(settings: Settings, report: Findings) -> None:
    """Add the findings about the keys of callers."""
    path = Path(settings.keys_file)
    try:
        keys = read_keys(path)
    except ConfigError as error:
        remedy = "correct the file; running servers keep the keys that they read before"
        report.error(_CHECK, str(error), remedy, str(path))
        return
    _add_sources(settings, keys, report)
    _add_expiry(keys, str(path), report)
    if path.exists() and path.stat().st_mode & _WRITABLE_BY_OTHERS:
        report.error(
            *("keys file", "other users of this machine can write the keys file, and so add keys"),
            *(f"chmod 600 {path}", str(path)),
        )
    if not is_loopback(settings.http.host):
        _add_strength(settings, report)


def _add_sources(settings: Settings, keys: Mapping[str, ApiKey], report: Findings) -> None:
    for text, place in _sources(settings, keys):
        report.ok(_CHECK, text, place)
    if any(_sources(settings, keys)):
        return
    if settings.env == "production":
        problem = "production has no API key, so the server does not start"
        report.error(_CHECK, problem, _CREATE, settings.keys_file)
    else:
        report.ok(_CHECK, "none: the server answers this machine only", settings.keys_file)


def _sources(settings: Settings, keys: Mapping[str, ApiKey]) -> Iterator[tuple[str, str]]:
    if settings.api_keys:
        yield f"{len(settings.api_keys)} in api_key", "HEADWATER_API_KEY"
    if keys:
        yield f"{len(keys)} in the keys file", settings.keys_file
    if settings.oidc.issuer:
        yield f"tokens of {settings.oidc.issuer}", "oidc.issuer"


def _add_expiry(keys: Mapping[str, ApiKey], place: str, report: Findings) -> None:
    now = datetime.now(UTC)
    for name, key in keys.items():
        if key.expires is None or key.expires > now + _SOON:
            continue
        verb = "expired" if key.expires <= now else "expires"
        report.warning(
            *("key expiry", f"the key {name!r} {verb} on {key.expires.date().isoformat()}"),
            *(f"create another, then revoke it with `headwater keys revoke {name}`", place),
        )


def _add_strength(settings: Settings, report: Findings) -> None:
    for key in settings.api_keys:
        try:
            check_strength(key)
        except ConfigError as error:
            report.error("key strength", str(error), "replace the key", "HEADWATER_API_KEY")
