"""The caller of an RPC, identified by its certificate.

`certificate_authority.py` writes the role as organizational unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc.aio
from cryptography import x509
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an RPC by its certificate, which the TLS handshake verified."""

    #: Role in the certificate; empty without one.
    role: str
    #: Common name and alternative names.
    names: tuple[str, ...]


def caller_of(context: grpc.aio.ServicerContext[Any, Any]) -> Caller | None:
    """Return the caller; None without a certificate, which a server with a CA does not accept."""
    auth_context = context.auth_context()
    pem = next(iter(auth_context.get("x509_pem_cert", ())), None)
    if pem is None:
        return None
    names = [
        *auth_context.get("x509_common_name", ()),
        *auth_context.get("x509_subject_alternative_name", ()),
    ]
    return Caller(role_in(bytes(pem)), tuple(dict.fromkeys(name.decode(errors="replace") for name in names)))


def role_of(context: grpc.aio.ServicerContext[Any, Any]) -> str | None:
    """Return the role in the caller's certificate, empty if it has none; None without a certificate."""
    caller = caller_of(context)
    return None if caller is None else caller.role


def role_in(pem: bytes) -> str:
    """Return the role in a certificate; empty without one."""
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError:
        return ""
    units = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(units[0].value) if units else ""
