"""Certificates for tests, and HTTPS as Python's `ssl` speaks it.

Takes a folder; gives an authority whose files lie there, and connections that say what they have met.
"""

from __future__ import annotations

import datetime
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import ocsp

from raw import Client, Reply
from serving import DEADLINE_S, Milepost


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    """A file that is there whole from one moment to the next, as renewers write it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(path)
    return path


class Authority:
    """An authority and what it signs, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA(organization_name="Test Authority")
        self.pem = write(folder / "authority.pem", self.ca.cert_pem.bytes())

    def issue(self, *names: str, rsa: bool = False) -> trustme.LeafCert:
        """A certificate for a server, or for a client."""
        kind = trustme.KeyType.RSA if rsa else trustme.KeyType.ECDSA
        return self.ca.issue_cert(*names, key_type=kind)

    def put(self, title: str, leaf: trustme.LeafCert, password: bytes | None = None) -> tuple[Path, Path]:
        """Chain and key as `TITLE.pem` and `TITLE.key`."""
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        key = leaf.private_key_pem.bytes()
        if password:
            key = load_pem_private_key(key, None).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password),
            )
        pem = write(self.folder / f"{title}.pem", chain)
        return pem, write(self.folder / f"{title}.key", key)

    def pair(self, title: str, *names: str, rsa: bool = False) -> tuple[Path, Path]:
        """The same for a new certificate."""
        return self.put(title, self.issue(*names, rsa=rsa))

    def flags(self, title: str, *names: str) -> tuple[str, ...]:
        """Flags of a server with a new certificate."""
        pem, key = self.pair(title, *names)
        return "--tls-cert", str(pem), "--tls-key", str(key)

    @property
    def _signer(self) -> tuple[x509.Certificate, object]:
        key = load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        return x509.load_pem_x509_certificate(self.ca.cert_pem.bytes()), key

    def revoke(self, *leaves: trustme.LeafCert) -> Path:
        """A list of revoked certificates."""
        own, key = self._signer
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateRevocationListBuilder(own.subject, now, now + datetime.timedelta(days=9))
        builder = builder.add_extension(x509.CRLNumber(1), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key())
        builder = builder.add_extension(issuer, False)
        for leaf in leaves:
            revoked = x509.RevokedCertificateBuilder(certificate(leaf).serial_number, now).build()
            builder = builder.add_revoked_certificate(revoked)
        signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
        return write(self.folder / "crl.pem", signed.public_bytes(serialization.Encoding.PEM))

    def staple(self, leaf: trustme.LeafCert) -> Path:
        """An OCSP response that says that the certificate is good."""
        own, key = self._signer
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=certificate(leaf),
            issuer=own,
            algorithm=hashes.SHA1(),  # noqa: S303  (an identifier, as RFC 6960 has it)
            cert_status=ocsp.OCSPCertStatus.GOOD,
            this_update=now,
            next_update=now + datetime.timedelta(days=1),
            revocation_time=None,
            revocation_reason=None,
        )
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, own)
        signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
        return write(self.folder / "staple.der", signed.public_bytes(serialization.Encoding.DER))

    def context(self, own: tuple[Path, Path] | None = None, version: str = "1.3") -> ssl.SSLContext:
        """A client that trusts the authority, perhaps with a certificate of its own."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.pem)
        # Names that the certificate is not for are what some tests ask about.
        context.check_hostname = False
        if version == "1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if own:
            context.load_cert_chain(*own)
        return context


def certificate(leaf: trustme.LeafCert) -> x509.Certificate:
    """The certificate itself."""
    return x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())


@dataclass
class Met:
    """What a client has met."""

    names: list[str]
    kind: str
    serial: int
    reply: Reply
    is_resumed: bool
    session: ssl.SSLSession | None


def port_of(server: Milepost) -> int:
    """The port of its first address."""
    return int(server.url.rstrip("/").rpartition(":")[2])


def connect(
    server: Milepost,
    context: ssl.SSLContext,
    name: str | None = "shop.example",
    session: ssl.SSLSession | None = None,
    port: int | None = None,
) -> ssl.SSLSocket:
    """A connection whose handshake is over."""
    sock = socket.create_connection(("127.0.0.1", port or port_of(server)), DEADLINE_S)
    try:
        return context.wrap_socket(sock, server_hostname=name, session=session)
    except BaseException:
        sock.close()
        raise


def meet(
    server: Milepost,
    context: ssl.SSLContext,
    name: str | None = "shop.example",
    session: ssl.SSLSession | None = None,
    target: str = "/",
    host: str | None = None,
    port: int | None = None,
) -> Met:
    """One request over a connection of its own."""
    with connect(server, context, name, session, port) as sock:
        client = Client(sock, server.count)
        reply = client.ask("GET", target, "Connection: close", host=host or name or "127.0.0.1")
        leaf = x509.load_der_x509_certificate(sock.getpeercert(True) or b"")
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return Met(
            names=extension.value.get_values_for_type(x509.DNSName),
            kind=type(leaf.public_key()).__name__.lower(),
            serial=leaf.serial_number,
            reply=reply,
            is_resumed=bool(sock.session_reused),
            session=sock.session,
        )
