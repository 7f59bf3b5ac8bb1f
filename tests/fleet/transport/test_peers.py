"""Who is at the other end, by certificate."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fleet.transport import authority, peers


def test_role_in_a_certificate(tmp_path: Path) -> None:
    """The role that the authority wrote is read; what is no certificate has none."""
    ca = authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    pair = authority.issue(ca, "agents-1", role="agent", now=datetime.now(UTC))
    assert peers.role_in(pair.certificate.read_bytes()) == "agent"
    assert peers.role_in(pair.ca.read_bytes()) == ""
    assert peers.role_in(b"nonsense") == ""
