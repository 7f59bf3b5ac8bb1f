from __future__ import annotations

import pytest

from fleet.sources.channels import Connections


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
