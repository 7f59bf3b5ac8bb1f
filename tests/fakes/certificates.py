"""Certificates of one authority of a test, by name and role."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import grpc.aio

from fleet.transport import certificate_authority, channels
from fleet.transport.tls import TLSFiles


class Certificates:
    """Issues what a test asks for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, name: str, role: str, *uris: str) -> TLSFiles:
        """Return the files of a certificate, which is the same one the second time."""
        now = datetime.now(UTC)
        ca = certificate_authority.ensure_authority(self._folder, now=now)
        pair = certificate_authority.issue(ca, name, role=role, now=now, uris=uris)
        return TLSFiles(pair.certificate, pair.key, pair.ca)


def channel_with(address: str, tls: TLSFiles) -> grpc.aio.Channel:
    """Return a channel to host:port that shows a certificate."""
    host, _, port = address.rpartition(":")
    return channels.open_channel(channels.target_of([(host, int(port))]), tls)
