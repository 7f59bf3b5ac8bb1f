"""Connections to one server: TCP, TLS as a client of gRPC makes it, and HTTP/2 without TLS. They block: use threads.

OpenSSL says why a handshake failed; gRPC does not.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fleet.transport.tls import TLSFiles

#: Seconds for each wait for the server.
TIMEOUT_SECONDS = 4.0
#: First bytes of an HTTP/2 client, with an empty SETTINGS frame (RFC 9113, 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS_TYPE = 4
_MOST_BYTES = 64


class HandshakeResult(NamedTuple):
    """Result of a TLS handshake. `error` is None when both sides accepted each other's certificates."""

    #: The server's certificate, DER; empty when it sent none.
    certificate: bytes = b""
    error: OSError | None = None
    #: The error came after the handshake: the server refused Refloat's certificate, or the lack of one.
    is_refused_by_server: bool = False
    #: The server speaks HTTP/2, as every gRPC server.
    has_http2: bool = True


class PlainResult(NamedTuple):
    """Response of a server to HTTP/2 without TLS."""

    #: It sent HTTP/2 settings, as every gRPC server without TLS.
    has_http2: bool = False
    first_bytes: bytes = b""
    error: OSError | None = None


def shake_hands(host: str, port: int, tls: TLSFiles, server_name: str) -> HandshakeResult:
    """Make two TLS connections: one to read the server's certificate, whatever it is, and one that verifies it."""
    context = _create_context(tls)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connect(host, port) as plain, context.wrap_socket(plain, server_hostname=server_name) as server:
            certificate = server.getpeercert(binary_form=True) or b""
            has_http2 = server.selected_alpn_protocol() == "h2"
    except OSError as error:
        return HandshakeResult(error=error)
    try:
        with (
            _connect(host, port) as plain,
            _create_context(tls).wrap_socket(plain, server_hostname=server_name) as server,
        ):
            try:
                # With TLS 1.3 the server verifies the client after the handshake. A gRPC server speaks first.
                server.sendall(_PREFACE)
                response = server.recv(_MOST_BYTES)
            except TimeoutError:
                return HandshakeResult(certificate, None, has_http2=has_http2)
            except OSError as error:
                return HandshakeResult(certificate, error, is_refused_by_server=True, has_http2=has_http2)
            if not response:
                closed = ConnectionResetError("the server closed the connection")
                return HandshakeResult(certificate, closed, is_refused_by_server=True, has_http2=has_http2)
    except OSError as error:
        return HandshakeResult(certificate, error, has_http2=has_http2)
    return HandshakeResult(certificate, has_http2=has_http2)


def ask_without_tls(host: str, port: int) -> PlainResult:
    """Send the beginning of HTTP/2 without TLS and return the beginning of the response."""
    try:
        with _connect(host, port) as server:
            server.sendall(_PREFACE)
            response = server.recv(_MOST_BYTES)
    except OSError as error:
        return PlainResult(error=error)
    is_settings = len(response) >= 9 and response[3] == _SETTINGS_TYPE and response[:1] == b"\0"
    return PlainResult(is_settings, response)


@contextmanager
def _connect(host: str, port: int) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as connection:
        yield connection


def _create_context(tls: TLSFiles) -> ssl.SSLContext:
    """Return a context with the CA and certificate of a cluster. Raises OSError, as ssl.SSLError is one."""
    context = ssl.create_default_context(cafile=None if tls.authority is None else str(tls.authority))
    # gRPC needs at least this version.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if tls.certificate is not None and tls.key is not None:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    return context
