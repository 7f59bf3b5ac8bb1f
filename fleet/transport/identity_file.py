"""Teleport's identity files: one PEM bundle of a private key, certificates and CAs, written by `tctl auth sign`,
`tsh login --out` or a bot (tbot).

Teleport's programs take the PEM blocks by their order: the private key, the TLS certificate, then CAs. Between them are
lines of SSH: the user's certificate and `@cert-authority` lines, which are skipped here. Pure: the caller reads the
file, again whenever it changes, and passes the time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from fleet.transport.client_identity import ClientIdentity, IdentityExpired, IdentityFileError
from fleet.vocabulary.clusters import TELEPORT_SERVER_NAME

#: Bytes of the largest file that is read: real ones have some 10 KiB, with a CA per certificate rotation.
MAX_BYTES = 1 << 20

_CREATE = "Create one with: tctl auth sign --user=USER --out=FILE"
_BLOCK = re.compile(rb"-----BEGIN ([^-\r\n]+)-----.*?-----END \1-----", re.DOTALL)
_BEGIN = re.compile(rb"^-----BEGIN ", re.MULTILINE)
_SSH_CERTIFICATE = re.compile(rb"^\S+-cert-v01@openssh\.com ", re.MULTILINE)
_ENCRYPTED = (b"ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True)
class _Block:
    """One PEM block: its label and the whole of it."""

    label: bytes
    pem: bytes

    @property
    def is_key(self) -> bool:
        return self.label.endswith(b"PRIVATE KEY")

    @property
    def is_certificate(self) -> bool:
        return self.label == b"CERTIFICATE"


def parse_identity_file(content: bytes, *, now: datetime) -> ClientIdentity:
    """Return the identity in a file's content. Raises IdentityFileError, for an expired one IdentityExpired."""
    blocks = _read_blocks(content, "identity file")
    keys = [block for block in blocks if block.is_key]
    certificates = [block for block in blocks if block.is_certificate]
    if not keys:
        raise IdentityFileError(f"The identity file has no private key, only certificates. {_CREATE}")
    if len(keys) > 1:
        raise IdentityFileError(
            f"The identity file has {len(keys)} private keys; it must have one. {_CREATE}"
        )
    if not certificates:
        kind = "only an SSH certificate" if _SSH_CERTIFICATE.search(content) else "no certificate"
        raise IdentityFileError(
            f"The identity file has {kind}; the API needs a TLS certificate. {_CREATE} --format=file"
        )
    if not blocks[0].is_key:
        raise IdentityFileError(
            "The identity file has its parts in the wrong order: the private key must be first, then the user's "
            "certificate, then the CAs. Teleport's programs read them in that order"
        )
    return _make_identity(keys[0], certificates[0], certificates[1:], now=now)


def parse_tls_files(
    private_key: bytes, certificate: bytes, authorities: bytes, *, now: datetime
) -> ClientIdentity:
    """Return the identity in the three files of `tctl auth sign --format=tls`: NAME.key, NAME.crt, NAME.cas.

    Raises IdentityFileError, for an expired certificate IdentityExpired.
    """
    keys = _read_blocks(private_key, "key file")
    certificates = _read_blocks(certificate, "certificate file")
    if not keys[0].is_key:
        raise IdentityFileError(
            "The key file has a certificate. Check that the files were not exchanged: NAME.key has the private key"
        )
    if not certificates[0].is_certificate:
        raise IdentityFileError(
            "The certificate file has a private key. Check that the files were not exchanged: NAME.crt has the "
            "certificate"
        )
    cas = [block for block in _read_blocks(authorities, "CA file") if block.is_certificate]
    return _make_identity(keys[0], certificates[0], cas, now=now)


def server_name_of_cluster(cluster: str) -> str:
    """Return the name in auths' certificates by which a proxy knows the cluster that is meant: Teleport hides the
    dots of the cluster's name in hexadecimal digits."""
    return f"{cluster.encode().hex()}.{TELEPORT_SERVER_NAME}"


def _read_blocks(content: bytes, source: str) -> list[_Block]:
    if not content.strip():
        raise IdentityFileError(f"The {source} is empty. {_CREATE}")
    if len(content) > MAX_BYTES:
        raise IdentityFileError(f"The {source} has more than {MAX_BYTES >> 20} MiB: it is not from Teleport")
    blocks = [_Block(match[1], match[0] + b"\n") for match in _BLOCK.finditer(content)]
    if len(_BEGIN.findall(content)) > len(blocks):
        raise IdentityFileError(
            f"The {source} is incomplete: it ends within a PEM block. Copy the whole file"
        )
    if not blocks:
        raise IdentityFileError(f"The {source} has no PEM blocks (-----BEGIN …-----). {_CREATE}")
    return blocks


def _make_identity(
    key: _Block, certificate: _Block, cas: Sequence[_Block], *, now: datetime
) -> ClientIdentity:
    leaf = _load_certificate(certificate)
    if _is_authority(leaf):
        raise IdentityFileError(
            "The first certificate is a CA, not the user's: the user's certificate must come before the CAs"
        )
    _check_key(key, leaf)
    if not cas:
        raise IdentityFileError(
            "The identity has no CA: without one the cluster's certificates cannot be verified. "
            "Use the whole output of tctl auth sign"
        )
    if not all(_is_authority(_load_certificate(block)) for block in cas):
        raise IdentityFileError(
            "A certificate among the CAs is not a CA: there must be one user's certificate only"
        )
    user = _user_of(leaf)
    if leaf.not_valid_after_utc <= now:
        raise IdentityExpired(user, leaf.not_valid_after_utc)
    if leaf.not_valid_before_utc > now:
        raise IdentityFileError(
            f"The identity of user {user} is not valid before {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC. "
            "Check the clocks of this host and of the auth"
        )
    return ClientIdentity(
        private_key=key.pem,
        certificate=certificate.pem,
        authorities=b"".join(block.pem for block in cas),
        user=user,
        expires_at=leaf.not_valid_after_utc,
    )


def _load_certificate(block: _Block) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(block.pem)
    except ValueError as error:
        raise IdentityFileError("A certificate of the identity is damaged. Copy the whole file") from error


def _check_key(block: _Block, certificate: x509.Certificate) -> None:
    """Raise IdentityFileError for a key that gRPC cannot use, or that is not the certificate's."""
    if any(mark in block.pem for mark in _ENCRYPTED):
        raise IdentityFileError(
            "The private key is encrypted. Use a key without a passphrase, as tctl auth sign writes"
        )
    if block.label.startswith(b"PIV"):
        raise IdentityFileError(
            "The private key is on a hardware key (PIV), which a program cannot use. Use a bot's identity"
        )
    try:
        key = serialization.load_pem_private_key(block.pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityFileError(
            "The private key is damaged, or of a kind that cannot be used. Copy the whole file"
        ) from error
    if _public_bytes(key.public_key()) != _public_bytes(certificate.public_key()):
        raise IdentityFileError(
            "The private key does not match the certificate: the parts are of different identities"
        )


def _public_bytes(key: object) -> bytes:
    assert hasattr(key, "public_bytes"), "public keys of certificates and of private keys have it"
    encoded: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _user_of(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value)[:256] if names else "without a name"
