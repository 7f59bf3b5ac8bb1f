"""Who is at the other end of a call, as its certificate says: `authority.py` writes the role as organizational unit."""

from __future__ import annotations

from typing import Any

import grpc.aio
from cryptography import x509
from cryptography.x509.oid import NameOID


def role_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The role in the caller's certificate; empty when it showed none, or one without a role."""
    shown = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return role_in(bytes(shown)) if shown else ""


def role_in(pem: bytes) -> str:
    """The role in a certificate; empty when there is none."""
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError:
        return ""
    units = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(units[0].value) if units else ""
