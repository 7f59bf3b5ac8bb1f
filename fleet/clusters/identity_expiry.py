"""Validity of the client certificate that Refloat has for a cluster. For processes that can read its files."""

from __future__ import annotations

from cryptography import x509

from fleet.clusters.connection_test.certificates import read_pem_certificates
from fleet.monitoring.state.identities import IdentityValidity
from fleet.transport.tls import TLSFiles


def read_validity(tls: TLSFiles | None) -> IdentityValidity | None:
    """Return the validity of the client certificate in TLS files; None without one, or if it cannot be read."""
    if tls is None or tls.certificate is None:
        return None
    try:
        certificates = read_pem_certificates(tls.certificate.read_bytes())
    except (OSError, x509.InvalidVersion):
        return None
    if not certificates:
        return None
    # Of a chain, and of an identity file, the first is Refloat's own.
    first = certificates[0]
    return IdentityValidity(first.common_name, first.valid_from, first.valid_until, first.organizations)
