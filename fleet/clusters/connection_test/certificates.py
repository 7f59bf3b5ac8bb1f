"""Facts of a certificate: its owner, role, names and dates. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Seconds before its expiry from which a certificate is a warning.
EXPIRY_WARNING_SECONDS = 14 * 86400.0
_MOST_NAMES = 6
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Owner and validity of a certificate. Times in seconds since the epoch."""

    common_name: str
    #: Organizational unit; empty without one.
    role: str
    #: Organizations: of a certificate that Teleport issued to a user, the user's roles.
    organizations: tuple[str, ...]
    #: Alternative names.
    names: tuple[str, ...]
    issuer: str
    valid_from: float
    valid_until: float
    is_for_servers: bool

    def describe_names(self) -> str:
        """Return the names as a list, or the common name without any."""
        names = self.names[:_MOST_NAMES] or (self.common_name,)
        rest_count = len(self.names) - len(names)
        return ", ".join(names) + (f" and {rest_count} more" if rest_count > 0 else "")


def read_certificate(der: bytes) -> CertificateFacts | None:
    """Return the facts of a certificate that a server sent; None when it cannot be read."""
    try:
        return _facts_of(x509.load_der_x509_certificate(der))
    except ValueError:
        return None


def read_pem_certificates(pem: bytes) -> Sequence[CertificateFacts]:
    """Return the facts of the certificates in a file; empty when it cannot be read."""
    try:
        return [_facts_of(certificate) for certificate in x509.load_pem_x509_certificates(pem)]
    except ValueError:
        return []


def is_issued_by(pem: bytes, authority_pem: bytes) -> bool:
    """Return whether a CA of a file issued a certificate of another file. Raises ValueError if one is not PEM."""
    for authority in x509.load_pem_x509_certificates(authority_pem):
        for certificate in x509.load_pem_x509_certificates(pem):
            try:
                certificate.verify_directly_issued_by(authority)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return True
    return False


def format_day(at: float) -> str:
    """Return a time as day and minute, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _facts_of(certificate: x509.Certificate) -> CertificateFacts:
    return CertificateFacts(
        common_name=_attribute_of(certificate.subject, NameOID.COMMON_NAME),
        role=_attribute_of(certificate.subject, NameOID.ORGANIZATIONAL_UNIT_NAME),
        organizations=_organizations_of(certificate.subject),
        names=_alternative_names_of(certificate),
        issuer=_attribute_of(certificate.issuer, NameOID.COMMON_NAME),
        valid_from=certificate.not_valid_before_utc.timestamp(),
        valid_until=certificate.not_valid_after_utc.timestamp(),
        is_for_servers=_is_for_servers(certificate),
    )


def _organizations_of(name: x509.Name) -> tuple[str, ...]:
    attributes = name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return tuple(_clean(str(attribute.value)) for attribute in attributes[:_MOST_NAMES])


def _attribute_of(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    attributes = name.get_attributes_for_oid(oid)
    return _clean(str(attributes[0].value)) if attributes else ""


def _alternative_names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    hosts = names.get_values_for_type(x509.DNSName)
    addresses = names.get_values_for_type(x509.IPAddress)
    return tuple(_clean(str(name)) for name in (*hosts, *addresses))


def _is_for_servers(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return True
    return ExtendedKeyUsageOID.SERVER_AUTH in usage


def _clean(text: str) -> str:
    """Return a text of a certificate of anybody in one short line."""
    printable_text = "".join(character for character in text if character.isprintable())
    return (
        printable_text if len(printable_text) <= _LONGEST_NAME else f"{printable_text[: _LONGEST_NAME - 1]}…"
    )
