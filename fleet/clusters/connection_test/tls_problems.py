"""Reasons of failed TLS connections in words, with what to do. Pure."""

from __future__ import annotations

import ssl

from fleet.clusters.connection_test.certificates import CertificateFacts, format_day
from fleet.clusters.connection_test.findings import ServerProblem
from fleet.clusters.connection_test.probes import HandshakeResult, PlainResult
from fleet.transport.connection_errors import describe
from fleet.transport.tls import TLSFiles

#: OpenSSL's verification codes (x509_vfy.h). The codes of an unknown CA depend on what else the CAs have in common.
_NOT_YET_VALID, _EXPIRED, _INVALID_PURPOSE = 9, 10, 26
_WRONG_NAME = {62, 64}
_UNKNOWN_CA = {2, 7, 18, 19, 20, 21, 24}

_OWN_CERTIFICATE_REMEDY = (
    "Issue Refloat's certificate with the CA that the servers have as --tls-ca, for client authentication, and set the "
    "certificate and its key here."
)
#: Ends of OpenSSL's names of alerts by which a server refuses a client: what the server means.
_REFUSALS = (
    ("CERTIFICATE_REQUIRED", "the server requires a client certificate, and Refloat has none"),
    ("CERTIFICATE_EXPIRED", "the server refuses Refloat's certificate, because it has expired"),
    ("UNKNOWN_CA", "the server refuses Refloat's certificate, because another CA issued it"),
    ("UNSUPPORTED_CERTIFICATE", "the server refuses Refloat's certificate, because it is not for clients"),
)


def describe_handshake(
    handshake: HandshakeResult,
    certificate: CertificateFacts | None,
    tls: TLSFiles,
    role: str,
    now: float,
    *,
    has_own_issuer: bool = True,
) -> ServerProblem | None:
    """Return the problem of a handshake with a server that should have a role, or None. `tls`: of that role.

    `has_own_issuer`: the CA of the cluster issued Refloat's certificate.
    """
    error = handshake.error
    if error is None:
        if handshake.has_http2:
            return None
        return ServerProblem(
            "it is a TLS server without HTTP/2, so it is not a gRPC server",
            _address_remedy_of(role),
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _describe_verification(error, certificate, tls.server_name, role, now)
    if isinstance(error, TimeoutError):
        return ServerProblem(
            "it does not respond to a TLS handshake",
            f"Check that the address is that of the gRPC port, and that the {role} is not frozen.",
        )
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if reason.endswith(("NO_APPLICATION_PROTOCOL", "NO_PROTOCOLS_AVAILABLE")):
        return ServerProblem(
            "it is a TLS server without HTTP/2, so it is not a gRPC server",
            _address_remedy_of(role),
        )
    for alert_name, text in _REFUSALS:
        if reason.endswith(alert_name):
            return ServerProblem(text, _OWN_CERTIFICATE_REMEDY)
    if handshake.is_refused_by_server or ("ALERT" in reason and certificate is not None):
        if tls.certificate is None:
            return ServerProblem(
                "the server requires a client certificate, and Refloat has none", _OWN_CERTIFICATE_REMEDY
            )
        if not has_own_issuer:
            return ServerProblem(
                "the server refuses Refloat's certificate, which the CA of this cluster did not issue",
                _OWN_CERTIFICATE_REMEDY,
            )
        return ServerProblem(
            f"the server refuses Refloat's certificate ({_reason_text(error)})", _OWN_CERTIFICATE_REMEDY
        )
    return ServerProblem(f"the TLS handshake failed: {_reason_text(error)}", _turn_on_remedy_of(role))


def is_plain_server(error: OSError | None) -> bool:
    """Return whether a handshake failed because the response was not TLS, or the server closed the connection."""
    if isinstance(error, ssl.SSLCertVerificationError) or error is None:
        return False
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        return reason in {
            "WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE",
            "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE", "RECORD_TOO_SMALL",
        }  # fmt: skip
    return isinstance(error, (ConnectionError, ssl.SSLEOFError))


def describe_plain_server(response: PlainResult, role: str) -> ServerProblem:
    """Return the problem of a server that does not speak TLS, where this cluster uses TLS."""
    if response.has_http2:
        return ServerProblem(
            "it speaks gRPC without TLS, but this cluster uses TLS",
            _turn_on_remedy_of(role),
        )
    return describe_other_protocol(response, role)


def describe_other_protocol(response: PlainResult, role: str) -> ServerProblem:
    """Return the problem of a server that does not speak HTTP/2, with what it sent."""
    remedy = _address_remedy_of(role)
    if response.first_bytes.startswith(b"\x15\x03"):
        return ServerProblem(
            "it requires TLS, but this cluster does not use TLS",
            "Set the CA of the auths for this cluster, and Refloat's certificate and key.",
        )
    if response.first_bytes:
        first_line = response.first_bytes[:30].decode("ascii", "backslashreplace").splitlines()[0]
        return ServerProblem(f"it is not a gRPC server: its response begins with {first_line!r}", remedy)
    if isinstance(response.error, TimeoutError):
        return ServerProblem(
            "it accepts the connection, but does not respond to HTTP/2",
            f"{remedy} If this is that port, its process may be frozen, or a firewall may drop its packets.",
        )
    return ServerProblem(
        "it closed the connection without a response: it may require TLS, or not be a gRPC server",
        f"{remedy} If it requires TLS, set the CA of the auths for this cluster.",
    )


def describe_expiry(certificate: CertificateFacts, now: float) -> str:
    """Return "expires 2027-01-02 03:04 UTC (in 5 days)"."""
    days = int((certificate.valid_until - now) // 86400)
    day_text = "today" if days < 1 else "in 1 day" if days == 1 else f"in {days} days"
    return f"expires {format_day(certificate.valid_until)} ({day_text})"


def _describe_verification(
    error: ssl.SSLCertVerificationError,
    certificate: CertificateFacts | None,
    expected_name: str,
    role: str,
    now: float,
) -> ServerProblem:
    code = error.verify_code
    if code == _EXPIRED:
        if certificate is None or certificate.valid_until > now:
            return ServerProblem(
                "the certificate of its CA has expired", "Renew the CA, and set the new CA for this cluster."
            )
        return ServerProblem(
            f"its certificate expired on {format_day(certificate.valid_until)}",
            f"Renew the certificate of the {role} and restart it.",
        )
    if code == _NOT_YET_VALID:
        start = "" if certificate is None else f" before {format_day(certificate.valid_from)}"
        return ServerProblem(
            f"its certificate is not valid{start}",
            "Check the clock of the machine where workers run, or issue the certificate again.",
        )
    if code in _UNKNOWN_CA:
        issuer = "" if certificate is None or not certificate.issuer else f" (issuer {certificate.issuer!r})"
        return ServerProblem(
            f"its certificate{issuer} was not issued by the CA of this cluster",
            "Set the CA that issued the certificates of auths and proxies for this cluster.",
        )
    if code == _INVALID_PURPOSE or (certificate is not None and not certificate.is_for_servers):
        return ServerProblem(
            f"its certificate{_describe_role(certificate)} is for clients only, not for servers",
            f"Issue the {role}'s certificate for server authentication, with the role {role}.",
        )
    if code in _WRONG_NAME:
        names = "" if certificate is None else f", only {certificate.describe_names()}"
        if certificate is not None and certificate.role and certificate.role != role:
            return ServerProblem(
                f"its certificate has the role {certificate.role}: it is not {_with_article(role)}",
                f"Enter the address of {_with_article(role)}.",
            )
        return ServerProblem(
            f"its certificate does not have the name {expected_name}{names}",
            f"Issue the {role}'s certificate with that name, or set one of its names as the server name here.",
        )
    return ServerProblem(
        f"its certificate is not accepted: {error.verify_message}",
        f"Issue the {role}'s certificate again.",
    )


def _address_remedy_of(role: str) -> str:
    return f"Enter the address of the gRPC port of {_with_article(role)}."


def _turn_on_remedy_of(role: str) -> str:
    return f"Start the {role} with --tls-cert and --tls-key, or set this cluster to no TLS."


def _with_article(role: str) -> str:
    return f"{'an' if role == 'auth' else 'a'} {role}"


def _describe_role(certificate: CertificateFacts | None) -> str:
    return f" (role {certificate.role})" if certificate is not None and certificate.role else ""


def _reason_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return describe(error)
