"""TLS: contexts that are made from files, and what a failed handshake means."""

from __future__ import annotations

import base64
import re
import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from headwater.errors import ConfigError

# OpenSSL's numbers of the reasons why a certificate was not accepted.
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_IP = 9, 10, 62, 64
# What a server says, as an alert of the protocol or by not speaking it.
_REASONS = (
    (
        r"CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE",
        "it wants a certificate of its clients",
        "set {group}.cert_file and {group}.key_file",
    ),
    (
        r"ALERT_(UNKNOWN_CA|BAD_CERT|CERTIFICATE|UNSUPPORTED_CERT|DECRYPT_ERROR|ACCESS_DENIED)",
        "it does not accept the certificate in {group}.cert_file",
        "use one that is valid now, from a CA that it trusts",
    ),
    (
        r"WRONG_VERSION_NUMBER|RECORD_LAYER|PACKET_LENGTH|UNEXPECTED_EOF",
        "it does not speak TLS on this port",
        "correct the port, or use a URL without TLS",
    ),
    (
        r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL",
        "it has no version of TLS that is allowed here, 1.2 or newer",
        "allow TLS 1.2 or 1.3 there",
    ),
    (
        r"KEY_VALUES_MISMATCH",
        "{group}.key_file is not the key of {group}.cert_file",
        "give both files of one certificate",
    ),
    (
        r"NO_START_LINE|PEM.LIB|BAD_BASE64|NO_CERTIFICATE_OR_CRL|BAD_DECRYPT|BAD_PASSWORD",
        "a file of {group} is not PEM, or its key needs another password",
        "give PEM files, and a key without a password",
    ),
)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# The end of the validity, as X.509 encodes it: two times, of two or of four digits for the year.
_VALIDITY = re.compile(rb"\d{10,12}Z(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z")


def exposure(server: Any, encryption: ssl.SSLObject | None) -> str | None:
    """Return how others can read or answer requests to a server; empty if they cannot.

    ``server`` is the address of the peer. Return None if it is on this machine.
    """
    if is_on_this_machine(server):
        return None
    if encryption is None:
        return "not encrypted"
    is_checked = encryption.context.verify_mode != ssl.CERT_NONE
    return "" if is_checked else "encrypted, but to an unchecked server"


def is_on_this_machine(server: Any) -> bool:
    """Return whether the address of a peer is a loopback address, or the path of a socket."""
    return not isinstance(server, tuple) or ip_address(server[0].partition("%")[0]).is_loopback


def client_context(
    ca_file: str = "", cert_file: str = "", key_file: str = "", *, verify: bool = True
) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or newer; without ``ca_file``, the system's CAs are trusted."""
    check_readable(ca_file, cert_file, key_file)
    context = ssl.create_default_context(cafile=ca_file or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file:
        load_chain(context, cert_file, key_file)
    return context


class ServedCertificate:
    """The certificate of a server, which is read again when its files have changed."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        """Raise ConfigError if the files cannot be used."""
        self._files = (cert_file, key_file)
        self._seen = self._stamps()
        self.context = self._current = self._loaded()
        # Asked for each handshake. A context that loads other files keeps keys of another type.
        self.context.sni_callback = self._choose

    def refresh(self) -> bool:
        """Read files that have changed, and return whether there are; raise ConfigError.

        After an error the former certificate is used until the files change again.
        """
        if (stamps := self._stamps()) == self._seen:
            return False
        self._seen = stamps
        self._current = self._loaded()
        return True

    def _choose(self, handshake: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        handshake.context = self._current

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            check_readable(*self._files)
            load_chain(context, *self._files)
        except OSError as error:
            problem = "; ".join(explained(error, "http.tls") or (str(error),))
            files = " and ".join(filter(None, self._files))
            raise ConfigError(f"{files} cannot be used for TLS: {problem}") from error
        return context

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(Path(file)) for file in self._files if file]


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def check_readable(*files: str) -> None:
    """Raise an OSError that names the first of the files that cannot be read; OpenSSL's do not."""
    for file in filter(None, files):
        Path(file).open("rb").close()


def load_chain(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    """Load a certificate and its key; a password would be asked for at the terminal."""
    context.load_cert_chain(cert_file, key_file or None, password=lambda: "")


def explained(error: BaseException, group: str) -> tuple[str, str] | None:
    """Return what an error of TLS means and its remedy; ``group`` names the settings to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            problem = f"its certificate is not valid now ({said})"
            return problem, "renew it there, and compare the clocks"
        if error.verify_code in (_OTHER_NAME, _OTHER_IP):
            problem = f"its certificate is for another name ({said})"
            named = f", or set {group}.server_name to it" if group == "redis.tls" else ""
            return problem, f"use the name that it is for{named}"
        problem = f"its certificate is not from a trusted CA ({said})"
        return problem, f"set {group}.ca_file to the certificate of the CA that signed it"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        for pattern, problem, remedy in _REASONS:
            if re.search(pattern, reason, re.IGNORECASE):
                said = problem.format(group=group)
                return f"{said} ({reason})", remedy.format(group=group)
        return f"TLS failed ({reason})", f"check {group}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be read ({error.strerror})", f"correct {group}"
    return None


def expiry(file: Path) -> datetime:
    """Return when the first certificate of a file expires; raise ValueError if it has none."""
    found = _CERTIFICATE.search(file.read_text(encoding="latin-1"))
    times = _VALIDITY.search(base64.b64decode(found[1])) if found else None
    if times is None:
        raise ValueError("it has no certificate in PEM")
    short, long = times.groups()
    if long:
        return datetime.strptime(long.decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return datetime.strptime(short.decode(), "%y%m%d%H%M%S").replace(tzinfo=UTC)
