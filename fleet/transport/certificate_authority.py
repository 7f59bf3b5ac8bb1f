"""A certificate authority for the local test fleet and for tests: one CA, one certificate per program.

A certificate has the program's role as its organizational unit and its id as its common name, so that a server can
check what a client may claim. Production fleets bring their own files.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fleet.transport.tls import SERVER_NAME, SERVER_ROLES, TELEPORT_NAMES, server_name_of

_VALIDITY = datetime.timedelta(days=365)
#: Certificates are valid from earlier on: clocks of a fleet differ, and may be set back by an hour.
_SKEW = datetime.timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Paths of a certificate, its private key, and the CA that signed it."""

    ca: Path
    certificate: Path
    key: Path


def ensure_authority(folder: Path, *, now: datetime.datetime) -> KeyPair:
    """Create a CA in `folder` unless a valid one (for another day) exists. Raises OSError if it cannot be written."""
    pair = KeyPair(ca=folder / "ca.crt", certificate=folder / "ca.crt", key=folder / "ca.key")
    if pair.key.exists() and _is_valid_certificate(pair.certificate, now):
        return pair
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Refloat CA")])
    certificate = (
        _create_certificate_builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_create_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(pair, certificate, key)
    return pair


def issue(
    authority: KeyPair, name: str, *, role: str, now: datetime.datetime, uris: Sequence[str] = ()
) -> KeyPair:
    """Issue a certificate to `name` beside the CA's; a valid one with the same claims is kept.

    It is for clients and, for roles of servers, also for servers. `uris` are additional names.

    Raises OSError when a file cannot be read or written, ValueError when the CA's files are damaged.
    """
    folder = authority.ca.parent
    pair = KeyPair(ca=authority.ca, certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
    claims = _Claims.of(name, role, uris)
    if pair.key.exists() and _is_valid_certificate(
        pair.certificate, now, issuer_path=authority.certificate, claims=claims
    ):
        return pair
    ca = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    ca_key = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"{authority.key} is not a key that Refloat created. Remove {folder} and start again"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _create_certificate_builder(claims.subject, ca.subject, key.public_key(), now)
        .add_extension(claims.names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_create_key_usage(sign_certificates=False), critical=True)
        .add_extension(claims.purposes, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    _write(pair, certificate, key)
    return pair


@dataclass(frozen=True, slots=True)
class _Claims:
    """Subject, names and purposes of a certificate."""

    subject: x509.Name
    names: x509.SubjectAlternativeName
    purposes: x509.ExtendedKeyUsage

    @classmethod
    def of(cls, name: str, role: str, uris: Sequence[str]) -> _Claims:
        """Return the claims of a program; `role` may be empty."""
        is_server = role in SERVER_ROLES
        units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role)] if role else []
        hosts = (SERVER_NAME, server_name_of(role), *TELEPORT_NAMES, "localhost") if is_server else ()
        addresses = ("127.0.0.1", "::1") if is_server else ()
        server = [ExtendedKeyUsageOID.SERVER_AUTH] if is_server else []
        return cls(
            subject=x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            names=x509.SubjectAlternativeName(
                [
                    *(x509.DNSName(host) for host in (*hosts, name)),
                    *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
                    *(x509.UniformResourceIdentifier(uri) for uri in uris),
                ]
            ),
            purposes=x509.ExtendedKeyUsage([*server, ExtendedKeyUsageOID.CLIENT_AUTH]),
        )

    def matches_certificate(self, certificate: x509.Certificate) -> bool:
        """Return whether a certificate has exactly these claims. Raises ExtensionNotFound."""
        names, purposes = (
            certificate.extensions.get_extension_for_class(kind).value
            for kind in (x509.SubjectAlternativeName, x509.ExtendedKeyUsage)
        )
        return (certificate.subject, names, purposes) == (self.subject, self.names, self.purposes)


def _create_certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALIDITY)
    )


def _create_key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _is_valid_certificate(
    path: Path, now: datetime.datetime, *, issuer_path: Path | None = None, claims: _Claims | None = None
) -> bool:
    """Return whether a certificate is valid for another day, signed by the CA, and has the claims."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        if issuer_path is not None:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(issuer_path.read_bytes()))
        if claims is not None and not claims.matches_certificate(certificate):
            return False
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        # Missing, damaged or of another CA: in each case a new one is made. A file that cannot be read cannot be
        # written either, and writing reports it.
        return False
    return certificate.not_valid_after_utc > now + datetime.timedelta(days=1)


def _write(pair: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pair.key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # Created with owner-only permissions, not restricted afterwards: others can never read it.
    pair.key.unlink(missing_ok=True)
    descriptor = os.open(pair.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
