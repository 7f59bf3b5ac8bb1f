"""One server: whether it accepts connections, and whether TLS with it works."""

from __future__ import annotations

import asyncio

from fleet.clusters.address_entries import AddressEntryError, parse_address
from fleet.clusters.connection_test.certificates import (
    EXPIRY_WARNING_SECONDS,
    CertificateFacts,
    is_issued_by,
    read_certificate,
)
from fleet.clusters.connection_test.findings import ServerProblem
from fleet.clusters.connection_test.probes import TIMEOUT_SECONDS, ask_without_tls, shake_hands
from fleet.clusters.connection_test.tls_problems import (
    describe_expiry,
    describe_handshake,
    describe_other_protocol,
    describe_plain_server,
    is_plain_server,
)
from fleet.clusters.test_report import StepVerdict
from fleet.transport.connection_errors import describe
from fleet.transport.tls import TLSFiles


async def connect_to(address: str, role: str) -> ServerProblem | None:
    """Open a TCP connection to a server with a role; return the problem, if any."""
    remedy = (
        f"Check that the {role} runs and listens on this address, and that no firewall between it and the workers "
        "blocks the port."
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(*parse_address(address))
    except TimeoutError:
        return ServerProblem(f"no response within {TIMEOUT_SECONDS:g} s", remedy)
    except (OSError, UnicodeError) as error:
        return ServerProblem(describe(error) if isinstance(error, OSError) else str(error), remedy)
    except AddressEntryError as error:
        return ServerProblem(str(error).removesuffix("."), "Correct the address that the instance announces.")
    writer.close()
    return None


async def check_server(
    address: str, tls: TLSFiles, role: str, now: float
) -> tuple[ServerProblem | None, CertificateFacts | None]:
    """Make a TLS connection to a server with a role; return its problem and its certificate, if any."""
    tls = tls.for_role(role)
    host, port = parse_address(address)
    handshake = await asyncio.to_thread(shake_hands, host, port, tls, tls.server_name)
    certificate = read_certificate(handshake.certificate) if handshake.certificate else None
    if certificate is None and is_plain_server(handshake.error):
        response = await asyncio.to_thread(ask_without_tls, host, port)
        return describe_plain_server(response, role), None
    problem = describe_handshake(handshake, certificate, tls, role, now, has_own_issuer=_has_own_issuer(tls))
    if problem is None and certificate is not None and certificate.valid_until - now < EXPIRY_WARNING_SECONDS:
        problem = ServerProblem(
            f"its certificate {describe_expiry(certificate, now)}",
            f"Renew the certificate of the {role}.",
            StepVerdict.WARNING,
        )
    return problem, certificate


async def check_plain_server(address: str, role: str) -> ServerProblem | None:
    """Return the problem of a server that should speak gRPC without TLS, if any."""
    response = await asyncio.to_thread(ask_without_tls, *parse_address(address))
    return None if response.has_http2 else describe_other_protocol(response, role)


async def find_connection_problem(
    address: str, tls: TLSFiles | None, role: str, now: float
) -> ServerProblem | None:
    """Return why a server with a role does not respond to gRPC; None when a connection to it works."""
    if (problem := await connect_to(address, role)) is not None:
        return problem
    if tls is None or not tls.enabled:
        return await check_plain_server(address, role)
    problem, _ = await check_server(address, tls, role, now)
    return problem


def _has_own_issuer(tls: TLSFiles) -> bool:
    """Return whether the CA of a cluster issued Refloat's certificate there, as far as the files tell."""
    if tls.certificate is None or tls.authority is None:
        return True
    try:
        return is_issued_by(tls.certificate.read_bytes(), tls.authority.read_bytes())
    except (OSError, ValueError):
        return True
