"""Facts of certificates that Refloat's own CA issued."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from fleet.clusters.connection_test.certificates import (
    format_day,
    is_issued_by,
    read_certificate,
    read_pem_certificates,
)
from tests.fakes.faulty_certificates import FaultyCertificates


def test_facts_of_a_certificate(tmp_path: Path) -> None:
    """Owner, role, names, purpose and dates; the same from DER and PEM."""
    files = FaultyCertificates(tmp_path).of("auth-1", "auth")
    assert files.certificate is not None
    pem = files.certificate.read_bytes()

    (facts,) = read_pem_certificates(pem)

    assert (facts.common_name, facts.role, facts.issuer) == ("auth-1", "auth", "Refloat CA")
    assert facts.is_for_servers
    assert "auth.refloat.local" in facts.names
    assert facts.describe_names().endswith("and 2 more")
    assert 364 < (facts.valid_until - facts.valid_from) / 86400 < 366
    assert read_certificate(ssl.PEM_cert_to_DER_cert(pem.decode())) == facts
    (agent_facts,) = read_pem_certificates(
        Path(str(FaultyCertificates(tmp_path).of("a", "agent").certificate)).read_bytes()
    )
    assert not agent_facts.is_for_servers


def test_what_is_no_certificate_has_no_facts() -> None:
    """A server or a file may contain anything."""
    assert read_certificate(b"x") is None
    assert read_pem_certificates(b"x") == []


def test_damaged_extension_has_no_names() -> None:
    """The owner and the dates are readable nevertheless."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime(2026, 1, 1, tzinfo=UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "auth-1")])
    damaged = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"x")
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    certificate = builder.add_extension(damaged, critical=False).sign(key, hashes.SHA256())

    facts = read_certificate(certificate.public_bytes(serialization.Encoding.DER))

    assert facts is not None
    assert (facts.common_name, facts.names) == ("auth-1", ())


def test_the_issuer_is_found_by_its_signature(tmp_path: Path) -> None:
    """CAs with the same name are not the same."""
    certificates = FaultyCertificates(tmp_path)
    files, other_files = certificates.of("a", "agent"), certificates.of("a", "agent", ca="other")
    assert files.certificate is not None
    assert files.authority is not None
    assert other_files.authority is not None
    pem = files.certificate.read_bytes()

    assert is_issued_by(pem, files.authority.read_bytes())
    assert not is_issued_by(pem, other_files.authority.read_bytes())


def test_a_day_has_its_time_zone() -> None:
    """Certificates end at a minute."""
    assert format_day(0.0) == "1970-01-01 00:00 UTC"
