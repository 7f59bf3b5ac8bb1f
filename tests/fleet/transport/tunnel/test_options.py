"""Options of what carries tunnels."""

from __future__ import annotations

from fleet.transport.channels import DeadPeer
from fleet.transport.tunnel import options


def test_server_pings_its_clients_only_when_told() -> None:
    """Without a dead-peer time there are no pings; with one, the argument that really counts is among them."""
    assert dict(options.server_options()) == {"grpc.max_receive_message_length": options.MOST_MESSAGE}
    pinging = dict(options.server_options(DeadPeer(ping_after=10, answer_within=2.5)))
    assert pinging["grpc.keepalive_time_ms"] == 10_000
    assert pinging["grpc.http2.ping_timeout_ms"] == 2_500
    assert pinging["grpc.http2.max_pings_without_data"] == 0


def test_channel_takes_large_messages() -> None:
    """Other peers choose the size of what they send."""
    assert dict(options.channel_options()) == {"grpc.max_receive_message_length": options.MOST_MESSAGE}
