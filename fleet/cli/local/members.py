"""gRPC channels from the CLI to instances of the local fleet."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

from fleet.nodes.local.record import FleetRecord
from fleet.nodes.shared.addresses import parse
from fleet.transport import channels
from fleet.transport.tls import TLSFiles


def console_tls_files_of(record: FleetRecord) -> TLSFiles:
    """Return the TLS files of the fleet's console; empty for a fleet without TLS."""
    if not record.console:
        return TLSFiles()
    certificate, key, ca = (Path(record.console[f"REFLOAT_TLS_{name}"]) for name in ("CERT", "KEY", "CA"))
    return TLSFiles(certificate, key, ca)


def open_channel_to(record: FleetRecord, name: str) -> grpc.aio.Channel:
    """Open a channel to an instance, with the console's TLS files. Raises UnknownNameError, TLSError."""
    member = record.find_member(name)
    tls = console_tls_files_of(record).for_role(member.role)
    return channels.open_channel(channels.target_of([parse(member.grpc)]), tls)
