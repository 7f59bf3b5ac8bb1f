"""Who is at the other end of a call, as its certificate says.

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
    """The other end of a call by its certificate, which the handshake verified."""

    #: Empty: the certificate names none.
    role: str
    #: The common name and the alternative names.
    names: tuple[str, ...]


def caller_of(context: grpc.aio.ServicerContext[Any, Any]) -> Caller | None:
    """Return who calls; None when the caller showed no certificate, which a server with a CA does not admit."""
    auth_context = context.auth_context()
    pem = next(iter(auth_context.get("x509_pem_cert", ())), None)
    if pem is None:
        return None
    names = [*auth_context.get("x509_common_name", ()), *auth_context.get("x509_subject_alternative_name", ())]
    return Caller(
        role_in(bytes(pem)), tuple(dict.fromkeys(name.decode(errors="replace") for name in names))
    )


def role_of(context: grpc.aio.ServicerContext[Any, Any]) -> str | None:
    """The role in the caller's certificate, empty when that has none; None when the caller showed no certificate."""
    caller = caller_of(context)
    return None if caller is None else caller.role


def role_in(pem: bytes) -> str:
    """The role in a certificate; empty when there is none."""
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError:
        return ""
    units = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(units[0].value) if units else ""
