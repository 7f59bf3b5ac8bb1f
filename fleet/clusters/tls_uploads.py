"""Uploaded TLS files of clusters: whether they can be used, and what is told about them. Never the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from fleet.models.clusters import Cluster
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.transport.client_identity import IdentityFileError
from fleet.transport.identity_file import parse_identity_file
from fleet.vocabulary.clusters import TLSSource

#: The parts of a cluster's TLS files, with their labels.
TLS_PARTS: dict[str, str] = {
    "authority": "CA certificate",
    "certificate": "Certificate of Refloat",
    "key": "Private key",
}
#: The only part of a cluster with an identity file.
IDENTITY_PART = "identity"
_IDENTITY_PARTS: dict[str, str] = {IDENTITY_PART: "Identity file"}
#: Characters of one file: a bundle of certificates has a few thousand.
MAX_PEM_LENGTH = 256 * 1024
_LONGEST_NAME = 80
#: Public key of a certificate or private key, as bytes that can be compared.
_KEY_FORMAT = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True)
class UploadFacts:
    """What is told about an uploaded file. `common_name` and `expires_at` (UTC): of its first certificate."""

    part: str
    common_name: str = ""
    expires_at: datetime | None = None


def parts_of(source: TLSSource) -> Mapping[str, str]:
    """Return the parts of the TLS files of a source, with their labels."""
    is_identity = source in {TLSSource.IDENTITY, TLSSource.IDENTITY_UPLOADED}
    return _IDENTITY_PARTS if is_identity else TLS_PARTS


def find_identity_problem(pem: str, now: datetime) -> str:
    """Return why an identity file cannot be used and what to do, as sentences; empty if it can."""
    try:
        parse_identity_file(pem.encode(errors="replace"), now=now)
    except IdentityFileError as error:
        return f"{error}."
    return ""


def find_upload_problems(contents: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with the files together, a sentence by part. `contents`: PEM by part."""
    problems: dict[str, str] = {}
    certificates = _read_certificates(contents, "certificate", problems)
    _read_certificates(contents, "authority", problems)
    key = _read_key(contents.get("key", ""), problems)
    if bool(contents.get("certificate")) != bool(contents.get("key")):
        missing_part = "key" if contents.get("certificate") else "certificate"
        problems.setdefault(
            missing_part, "A certificate and its private key belong together. Upload both, or neither."
        )
    if certificates and key and not _belong_together(certificates[0], key):
        problems["key"] = (
            "This private key belongs to another certificate. Upload the key of the certificate."
        )
    return problems


def read_upload_facts(row: Cluster) -> tuple[UploadFacts, ...]:
    """Return what is told about the uploaded files of a cluster. Raises UnsealError."""
    contents = unseal(row.tls_secrets)
    return tuple(
        _facts_of(part, contents[part]) for part in parts_of(TLSSource(row.tls_source)) if contents.get(part)
    )


def describe_tls(row: Cluster) -> str:
    """Return where the TLS files of a cluster come from, with owner and expiry of what was uploaded."""
    match TLSSource(row.tls_source):
        case TLSSource.SETTINGS | TLSSource.NONE:
            return TLSSource(row.tls_source).label
        case TLSSource.FILES | TLSSource.IDENTITY as source:
            return "; ".join(
                f"{label}: {row.tls_files[part]}"
                for part, label in parts_of(source).items()
                if part in row.tls_files
            )
        case TLSSource.UPLOADED | TLSSource.IDENTITY_UPLOADED:
            try:
                facts = read_upload_facts(row)
            except UnsealError:
                return "Uploaded, but encrypted with another REFLOAT_SECRET_KEY. Upload the files again."
            return "; ".join(map(_describe_upload, facts))


def _describe_upload(facts: UploadFacts) -> str:
    text = f"{(TLS_PARTS | _IDENTITY_PARTS)[facts.part]}: uploaded"
    if facts.expires_at is None:
        return text
    return f"{text}, CN {facts.common_name or 'none'}, expires {facts.expires_at:%Y-%m-%d}"


def _read_certificates(
    contents: Mapping[str, str], part: str, problems: dict[str, str]
) -> list[x509.Certificate]:
    pem = contents.get(part, "")
    if not pem:
        return []
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        problems[part] = (
            "This file is a private key. Upload the certificate."
            if "PRIVATE KEY-----" in pem
            else "This file is not a PEM certificate. Its first line must be -----BEGIN CERTIFICATE-----."
        )
        return []


def _read_key(pem: str, problems: dict[str, str]) -> PrivateKeyTypes | None:
    if not pem:
        return None
    try:
        return load_pem_private_key(pem.encode(), password=None)
    except TypeError:
        problems["key"] = "This private key is encrypted. Upload a key without a passphrase."
    except (ValueError, UnsupportedAlgorithm):
        problems["key"] = (
            "This file is a certificate. Upload the private key."
            if "BEGIN CERTIFICATE-----" in pem
            else "This file is not a PEM private key. Its first line ends with PRIVATE KEY-----."
        )
    return None


def _belong_together(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    try:
        certified_key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False
    return certified_key.public_bytes(*_KEY_FORMAT) == key.public_key().public_bytes(*_KEY_FORMAT)


def _facts_of(part: str, pem: str) -> UploadFacts:
    if part == "key":
        return UploadFacts(part)
    try:
        certificate = x509.load_pem_x509_certificates(pem.encode())[0]
    except ValueError:
        return UploadFacts(part)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = "".join(character for character in str(names[0].value) if character.isprintable()) if names else ""
    return UploadFacts(part, text[:_LONGEST_NAME], certificate.not_valid_after_utc.astimezone(UTC))
