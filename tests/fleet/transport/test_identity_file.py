from __future__ import annotations

import datetime
from dataclasses import dataclass

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleet.transport.client_identity import IdentityExpired, IdentityFileError
from fleet.transport.identity_file import (
    MAX_BYTES,
    parse_identity_file,
    parse_tls_files,
    server_name_of_cluster,
)

NOW = datetime.datetime(2026, 11, 28, 12, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SSH_CERTIFICATE = b"ecdsa-sha2-nistp256-cert-v01@openssh.com AAAAKGVjZHNhLXNoYTItbmlzdHAyNTYtY2VydC12MDE=\n"
KNOWN_HOST = b"@cert-authority *.root.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== type=host\n"


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return self.encode_key(serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def encode_key(
        self, form: serialization.PrivateFormat, encryption: serialization.KeySerializationEncryption
    ) -> bytes:
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption)


def issue(
    name: str,
    *,
    signer: Pair | None = None,
    ends: datetime.datetime = NOW + HOUR,
    begins: datetime.datetime = NOW - HOUR,
) -> Pair:
    """Make a CA, or with a signer the certificate of a user."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .sign(signer.key if signer else key, hashes.SHA256())
    )
    return Pair(key, certificate)


HOSTS = issue("root.example.com")
USERS = issue("root.example.com")
USER = issue("refloat", signer=USERS)
WHOLE = USER.key_pem + SSH_CERTIFICATE + USER.pem + KNOWN_HOST + HOSTS.pem
HARDWARE_KEY = WHOLE.replace(b"BEGIN PRIV", b"BEGIN PIV YUBIKEY PRIV").replace(
    b"END PRIV", b"END PIV YUBIKEY PRIV"
)


def refusal(content: bytes) -> str:
    """Return why an identity file is refused."""
    with pytest.raises(IdentityFileError) as caught:
        parse_identity_file(content, now=NOW)
    return str(caught.value)


def test_identity_file_as_teleport_writes_it() -> None:
    """Key, certificate and CA are taken from between the lines of SSH. The user's CA is not in the file."""
    identity = parse_identity_file(WHOLE, now=NOW)
    assert (identity.private_key, identity.certificate, identity.authorities) == (
        USER.key_pem,
        USER.pem,
        HOSTS.pem,
    )
    assert identity.user == "refloat"
    assert identity.expires_at == NOW + HOUR
    assert identity.server_name == "teleport.cluster.local"


def test_identity_file_with_windows_line_ends_and_two_cas() -> None:
    """While a CA is rotated there are two of it."""
    second = issue("root.example.com")
    identity = parse_identity_file((WHOLE + second.pem).replace(b"\n", b"\r\n"), now=NOW)
    assert identity.authorities.replace(b"\r\n", b"\n") == HOSTS.pem + second.pem
    assert identity.private_key.replace(b"\r\n", b"\n") == USER.key_pem


def test_identity_without_ssh_lines() -> None:
    assert parse_identity_file(USER.key_pem + USER.pem + HOSTS.pem, now=NOW).user == "refloat"


def test_private_key_is_not_shown() -> None:
    """Identities get into logs and tracebacks."""
    assert "PRIVATE" not in repr(parse_identity_file(WHOLE, now=NOW))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n\n", "is empty", id="blank"),
        pytest.param(b"version: v1\nkind: Config\n", "has no PEM blocks", id="another file"),
        pytest.param(b"\x00\xff" * 40, "has no PEM blocks", id="binary"),
        pytest.param(b"x" * (MAX_BYTES + 1), "more than 1 MiB", id="large"),
        pytest.param(USER.pem + HOSTS.pem, "has no private key", id="only certificates"),
        pytest.param(USER.key_pem, "has no certificate", id="only a key"),
        pytest.param(USER.key_pem + SSH_CERTIFICATE + KNOWN_HOST, "only an SSH certificate", id="only SSH"),
        pytest.param(USER.key_pem + USER.pem + KNOWN_HOST, "has no CA", id="no CA"),
        pytest.param(USER.pem + USER.key_pem + HOSTS.pem, "wrong order", id="certificate first"),
        pytest.param(USER.key_pem + HOSTS.pem + USER.pem, "is a CA, not the user's", id="CA before the user"),
        pytest.param(USER.key_pem + USER.pem + USER.pem, "is not a CA", id="two users"),
        pytest.param(USER.key_pem + WHOLE, "has 2 private keys", id="two keys"),
        pytest.param(HOSTS.key_pem + USER.pem + HOSTS.pem, "does not match", id="foreign key"),
        pytest.param(WHOLE[: len(WHOLE) - 60], "ends within a PEM block", id="truncated"),
        pytest.param(USER.key_pem + USER.pem.replace(b"MII", b"MIJ") + HOSTS.pem, "is damaged", id="damaged"),
        pytest.param(HARDWARE_KEY, "hardware key", id="hardware key"),
    ],
)
def test_refused_identity_files(content: bytes, reason: str) -> None:
    """Each wrong file has its own reason."""
    assert reason in refusal(content)


@pytest.mark.parametrize(
    "form", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL]
)
def test_encrypted_key(form: serialization.PrivateFormat) -> None:
    """Both forms of encryption are named; the file has a header with hyphens in one of them."""
    key = USER.encode_key(form, serialization.BestAvailableEncryption(b"secret"))
    assert "is encrypted" in refusal(key + USER.pem + HOSTS.pem)


def test_key_of_openssl() -> None:
    """Older keys have a label with the algorithm's name."""
    key = USER.encode_key(serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    assert parse_identity_file(key + USER.pem + HOSTS.pem, now=NOW).private_key == key


def test_expired_identity() -> None:
    """It has its own error, with the user and the moment; in its last second it is still valid."""
    parse_identity_file(WHOLE, now=NOW + HOUR - datetime.timedelta(seconds=1))
    with pytest.raises(IdentityExpired, match="user refloat expired at 2026-11-28 13:00 UTC") as caught:
        parse_identity_file(WHOLE, now=NOW + HOUR)
    assert caught.value.expires_at == NOW + HOUR


def test_identity_of_the_future() -> None:
    user = issue("refloat", signer=USERS, begins=NOW + HOUR, ends=NOW + 2 * HOUR)
    assert "not valid before 2026-11-28 13:00 UTC" in refusal(user.key_pem + user.pem + HOSTS.pem)


def test_tls_files() -> None:
    """The three files of --format=tls give the same identity."""
    identity = parse_tls_files(USER.key_pem, USER.pem, HOSTS.pem, now=NOW)
    assert identity == parse_identity_file(WHOLE, now=NOW)


@pytest.mark.parametrize(
    ("key", "certificate", "authorities", "reason"),
    [
        pytest.param(USER.pem, USER.key_pem, HOSTS.pem, "key file has a certificate", id="exchanged"),
        pytest.param(
            USER.key_pem, USER.key_pem, HOSTS.pem, "certificate file has a private key", id="key twice"
        ),
        pytest.param(USER.key_pem, USER.pem, b"", "CA file is empty", id="empty CA"),
        pytest.param(USER.key_pem, USER.pem, USER.key_pem, "has no CA", id="key as CA"),
        pytest.param(USER.key_pem, USER.pem, USER.pem, "is not a CA", id="certificate as CA"),
    ],
)
def test_refused_tls_files(key: bytes, certificate: bytes, authorities: bytes, reason: str) -> None:
    with pytest.raises(IdentityFileError, match=reason):
        parse_tls_files(key, certificate, authorities, now=NOW)


def test_server_name_of_a_cluster() -> None:
    """Teleport's encoding: hexadecimal digits, so that a wildcard matches one label."""
    assert server_name_of_cluster("a.b") == "612e62.teleport.cluster.local"
