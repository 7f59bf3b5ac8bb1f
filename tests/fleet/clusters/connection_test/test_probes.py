"""Single connections to a server. tests/fleet/clusters/connection_test/test_run.py tries what steps make of them."""

from __future__ import annotations

from pathlib import Path

from fleet.clusters.connection_test.probes import ask_without_tls, shake_hands
from tests.fakes.faulty_certificates import FaultyCertificates


def test_closed_port_refuses_nobody(tmp_path: Path) -> None:
    """There is an error, and nothing else is known of the server."""
    tls = FaultyCertificates(tmp_path).of("console", "console")
    handshake = shake_hands("127.0.0.1", 1, tls, "auth.refloat.local")
    assert isinstance(handshake.error, ConnectionRefusedError)
    assert (handshake.certificate, handshake.is_refused_by_server) == (b"", False)
    plain = ask_without_tls("127.0.0.1", 1)
    assert isinstance(plain.error, ConnectionRefusedError)
    assert (plain.first_bytes, plain.has_http2) == (b"", False)
