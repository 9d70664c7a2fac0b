"""A CA of the tests, its certificates, and a proxy that speaks TLS in front of a server."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)
_HANDSHAKE = b"\x16"


class Certificate(NamedTuple):
    """The files of a certificate and its key, in PEM."""

    cert: Path
    key: Path


class Authority:
    """A CA, whose certificate is a file and whose key is in memory."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"{name} of the tests")
        self.file = folder / f"{name}.pem"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        certificate = (
            _builder(self._name, self._name, self._key, 30 * _DAY)
            .add_extension(basic, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *hosts: str, file: str = "", days: float = 30, common_name: str = ""
    ) -> Certificate:
        """Write a certificate for these hosts; with ``days`` below zero it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(common_name or name)
        builder = _builder(subject, self._name, key, days * _DAY)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = Certificate(
            self._folder / f"{file or name}.pem", self._folder / f"{file or name}.key"
        )
        files.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        files.key.chmod(0o600)
        return files

    def revoke(self, *revoked: Certificate) -> Path:
        """Write the list of the certificates that are revoked."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(self._name, now - _DAY, now + _DAY)
        for certificate in revoked:
            number = x509.load_pem_x509_certificate(certificate.cert.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder(number, now - _DAY).build()
            builder = builder.add_revoked_certificate(entry)
        file = self._folder / "revoked.pem"
        signed = builder.sign(self._key, hashes.SHA256())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ip_address(host))
    return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + lasts) - _DAY)
        .not_valid_after(now + lasts)
    )


class TlsProxy:
    """Speaks TLS on a port and passes the bytes on to another port of this machine.

    In threads, because asyncio does not send the alert with which a server refuses a client.
    """

    def __init__(
        self, context: ssl.SSLContext, target: int = 0, *, accepts_plain: bool = False
    ) -> None:
        """With ``accepts_plain``, pass on what is not TLS as it is, such as that of replicas."""
        self._context, self.target, self.port = context, target, 0
        self._accepts_plain = accepts_plain
        self._open: set[socket.socket] = set()
        self.names: list[str] = []
        """The common names in the certificates of the clients, in the order of connections."""

    @contextmanager
    def open(self) -> Iterator[int]:
        """Yield the port; at the end all connections break."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=[listener], daemon=True).start()
            self.port = listener.getsockname()[1]
            yield self.port
            # A close alone would not wake the thread that accepts.
            listener.shutdown(socket.SHUT_RDWR)
        for connection in [*self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._enter, args=[client], daemon=True).start()

    def _enter(self, client: socket.socket) -> None:
        if self._accepts_plain and client.recv(1, socket.MSG_PEEK) != _HANDSHAKE:
            self._open.add(client)
            with client, suppress(OSError), self._connected() as far:
                _pass_on(client, far)
            return
        near = self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        self._open.add(near)
        # A socket that another thread has closed has no TLS, for which ssl raises AttributeError.
        with near, suppress(OSError, AttributeError):
            try:
                near.do_handshake()
            except ssl.SSLError:
                # Else the kernel would reset the connection, and with it the alert.
                near.shutdown(socket.SHUT_WR)
                while near.recv(4_096):
                    pass
                raise
            if shown := near.getpeercert(binary_form=True):
                subject = x509.load_der_x509_certificate(shown).subject
                self.names += [str(name.value) for name in subject]
            with self._connected() as far:
                _pass_on(near, far)

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.target))


def _pass_on(near: socket.socket, far: socket.socket) -> None:
    others: dict[socket.socket, socket.socket] = {near: far, far: near}
    while True:
        is_read = isinstance(near, ssl.SSLSocket) and near.pending()
        ready = [near] if is_read else select.select([near, far], [], [])[0]
        for end in ready:
            data = end.recv(65_536)
            if not data:
                return
            others[end].sendall(data)


def server_context(own: Certificate, clients: Path | None = None) -> ssl.SSLContext:
    """Return the context of a server; with a CA of clients, they have to show a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
    context.load_cert_chain(own.cert, own.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
