"""gRPC options of tunnel servers and channels."""

from __future__ import annotations

from fleet.transport.channels import KeepaliveSettings
from fleet.transport.tunnel import options


def test_server_pings_only_with_a_dead_peer_policy() -> None:
    """Without it there are no pings; with it, the argument that takes effect is set."""
    assert dict(options.server_options()) == {"grpc.max_receive_message_length": options.MOST_MESSAGE}
    ping_options = dict(options.server_options(KeepaliveSettings(ping_after=10, answer_within=2.5)))
    assert ping_options["grpc.keepalive_time_ms"] == 10_000
    assert ping_options["grpc.http2.ping_timeout_ms"] == 2_500
    assert ping_options["grpc.http2.max_pings_without_data"] == 0


def test_channel_accepts_large_messages() -> None:
    """Other peers choose the size of their messages."""
    assert dict(options.channel_options()) == {"grpc.max_receive_message_length": options.MOST_MESSAGE}
