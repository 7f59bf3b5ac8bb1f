"""Identity files as Teleport writes them, with the lines of SSH between the PEM blocks."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SSH_CERTIFICATE = b"ecdsa-sha2-nistp256-cert-v01@openssh.com AAAAKGVjZHNhLXNoYTItbmlzdHAyNTYtY2VydC12MDE=\n"
_KNOWN_HOST = b"@cert-authority *.root.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== type=host\n"


def make_identity_file(
    *, user: str = "refloat", begins_at: datetime, ends_at: datetime, has_key: bool = True
) -> bytes:
    """Return an identity file of a user."""
    key, certificate = _issue(user, begins_at, ends_at, is_authority=False)
    _, authority = _issue("root.example.com", begins_at, ends_at + timedelta(days=3650), is_authority=True)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (key_pem if has_key else b"") + _SSH_CERTIFICATE + certificate + _KNOWN_HOST + authority


def _issue(
    name: str, begins_at: datetime, ends_at: datetime, *, is_authority: bool
) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins_at)
        .not_valid_after(ends_at)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, certificate.public_bytes(serialization.Encoding.PEM)
