"""Calls of the CLI to members of the local fleet."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

from fleet.nodes.local.record import FleetRecord
from fleet.nodes.shared.addresses import parse
from fleet.transport import channels
from fleet.transport.channels import TLSFiles


def channel_to(record: FleetRecord, name: str) -> grpc.aio.Channel:
    """Open a channel to an instance, with the files of the fleet's console. Raises UnknownNameError, TLSError."""
    tls = TLSFiles()
    if record.console:
        files = {setting: Path(path) for setting, path in record.console.items()}
        tls = TLSFiles(files["REFLOAT_TLS_CERT"], files["REFLOAT_TLS_KEY"], files["REFLOAT_TLS_CA"])
    member = record.member(name)
    return channels.open_channel(channels.target_of([parse(member.grpc)]), tls.towards(member.role))
