"""Channels to members of a local fleet."""

from __future__ import annotations

import os

import pytest

from fleet.cli.local.members import open_channel_to
from fleet.nodes.local.record import FleetRecord, Member, UnknownNameError
from fleet.transport.tls import TLSError


async def test_channel_needs_a_member_and_readable_files() -> None:
    """An unknown name and missing certificate files are errors."""
    member = Member("auth-1", "auth", os.getpid(), None, "", grpc="127.0.0.1:1")
    files = dict.fromkeys(("REFLOAT_TLS_CERT", "REFLOAT_TLS_KEY", "REFLOAT_TLS_CA"), "/nowhere.pem")
    plain = FleetRecord("default", os.getpid(), None, 0.0, 0, "", "", "", "", "", members=(member,))
    secured = FleetRecord("default", os.getpid(), None, 0.0, 0, "", "", "", "", "", (member,), console=files)
    await open_channel_to(plain, "auth-1").close()
    with pytest.raises(UnknownNameError, match="auth-2"):
        open_channel_to(plain, "auth-2")
    with pytest.raises(TLSError, match=r"nowhere\.pem"):
        open_channel_to(secured, "auth-1")
