"""Certificates with a fault: of another CA, of another role, expired or not yet valid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet.transport import certificate_authority
from fleet.transport.tls import TLSFiles


class FaultyCertificates:
    """Issues certificates of CAs by name; `days_ago` moves the day of issue, which starts a year of validity."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, name: str, role: str, *, ca: str = "ca", days_ago: int = 0) -> TLSFiles:
        """Return the files of a new certificate."""
        now = datetime.now(UTC)
        authority = certificate_authority.ensure_authority(self._folder / ca, now=now)
        pair = certificate_authority.issue(authority, name, role=role, now=now - timedelta(days=days_ago))
        return TLSFiles(pair.certificate, pair.key, pair.ca)
