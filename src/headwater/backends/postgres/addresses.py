"""The addresses of Postgres and the parameters of a session."""

from __future__ import annotations

import math
import ssl
from urllib.parse import urlencode, urlsplit

from headwater.errors import ConfigError
from headwater.settings.schema import SETTINGS
from headwater.settings.servers import PostgresSettings


def addresses(settings: PostgresSettings, name: str = "postgres.url") -> list[str]:
    """Return a URL for each server in the settings; raise ConfigError if none or one is invalid.

    The driver's errors about hosts and ports would show a part of the password.
    """
    if not settings.url:
        raise ConfigError(
            "Postgres has no address; set HEADWATER_POSTGRES_URL to "
            "postgresql://user:password@host:5432/database"
        )
    try:
        ports = [server.rpartition("]")[2].partition(":")[2] for server in settings.servers]
        address = urlsplit(settings.url)
        # Without a scheme, or after a slash in the password, the rest would be the database.
        is_valid = all(port.isdecimal() or not port for port in ports)
        is_valid = is_valid and "://" in settings.url and "@" not in address.path
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"{SETTINGS[name].variable} has an invalid host or port; write it as "
            "postgresql://user:password@host:5432/database, with special characters of the "
            "password percent-encoded"
        )
    options = _tls_options(settings)
    if settings.target:
        options["target_session_attrs"] = settings.target
    return [_with_options(settings.url_of(server), options) for server in settings.servers]


def _with_options(url: str, options: dict[str, str]) -> str:
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}{urlencode(options)}" if options else url


def _tls_options(settings: PostgresSettings) -> dict[str, str]:
    """Return the options of a URL for encryption; the driver reads their files when it connects."""
    tls = settings.tls
    is_checked = tls.ca_file and "sslmode=" not in settings.url
    trusted = _system_cas() if tls.ca_file == "system" else tls.ca_file
    options = {
        "sslmode": tls.mode or ("verify-full" if is_checked else ""),
        "sslrootcert": trusted,
        "sslcert": tls.cert_file,
        "sslkey": tls.key_file,
        "sslpassword": tls.key_password,
        "sslcrl": tls.crl_file,
        "ssl_min_protocol_version": tls.min_version,
    }
    return {name: value for name, value in options.items() if value}


def _system_cas() -> str:
    """Return the file of the system's CAs; the driver does not read a folder of them."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None:
        raise ConfigError(
            "postgres.tls.ca_file = 'system', and the system has no file of its CAs, only the "
            f"folder {paths.capath}; name a file of them in SSL_CERT_FILE or postgres.tls.ca_file"
        )
    return paths.cafile


def session_settings(settings: PostgresSettings, timeout: float) -> dict[str, str]:
    """Return settings of a session that override the server's; 0 means no timeout."""
    milliseconds = str(math.ceil(timeout * 1_000))
    return {
        "application_name": f"headwater/{settings.schema}",
        "search_path": f'"{settings.schema}", public',
        "timezone": "UTC",
        "statement_timeout": milliseconds,
        # A process that hangs must not keep its lock on a partition of the outbox.
        "idle_in_transaction_session_timeout": milliseconds,
        # Rows are deleted from the outbox in Redis once the transaction has returned.
        "synchronous_commit": "on",
        # Compiling a query over many partitions takes longer than running it.
        "jit": "off",
    }
