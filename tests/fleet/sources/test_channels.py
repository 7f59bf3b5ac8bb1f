from __future__ import annotations

from typing import Any

import grpc
import pytest

from fleet.sources import SourceFailed
from fleet.sources.channels import Connections
from fleet.sources.presence import ask_instances
from tests.fakes.instances import FakeAuth


async def test_channel_is_kept_until_it_is_discarded(connections: Connections) -> None:
    """One for each address."""
    first = connections.channel("127.0.0.1:1")
    assert connections.channel("127.0.0.1:1") is first
    assert connections.channel("127.0.0.1:2") is not first
    await connections.discard("127.0.0.1:1")
    assert connections.channel("127.0.0.1:1") is not first


async def test_channels_to_others_are_closed(connections: Connections) -> None:
    """Only those asked for stay."""
    kept, other = connections.channel("127.0.0.1:1"), connections.channel("127.0.0.1:2")
    await connections.keep_only({"127.0.0.1:1"})
    assert connections.channel("127.0.0.1:1") is kept
    assert connections.channel("127.0.0.1:2") is not other


def test_address_that_is_none() -> None:
    """A ValueError, for the attempt to say."""
    with pytest.raises(ValueError, match="invalid literal"):
        Connections().channel("nowhere")


async def test_reader_reads_again_within_the_deadline(
    auth: FakeAuth, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure is not seen; a channel for probes is another one, and shows each."""
    asked = auth.asked

    def fails_once(request: Any, context: Any) -> None:
        auth.fails = None if auth.calls else grpc.StatusCode.UNAVAILABLE
        asked(request, context)

    monkeypatch.setattr(auth, "asked", fails_once)
    reader = connections.reader(auth.address)
    assert connections.reader(auth.address) is reader
    assert await ask_instances(reader, timeout=30) == ()
    auth.calls.clear()
    with pytest.raises(SourceFailed, match="told to fail"):
        await ask_instances(connections.channel(auth.address), timeout=30)
    await connections.discard(auth.address)
    assert connections.reader(auth.address) is not reader
