"""Options and targets of channels."""

from __future__ import annotations

import pytest

from fleet.transport import channels
from fleet.transport.channels import KeepaliveSettings


@pytest.mark.parametrize(
    ("addresses", "target"),
    [
        ([("127.0.0.1", 1)], "ipv4:127.0.0.1:1"),
        ([("auth.example", 1)], "dns:///auth.example:1"),
        ([("::1", 1)], "dns:///[::1]:1"),
        ([("127.0.0.1", 1), ("127.0.0.2", 2)], "ipv4:127.0.0.1:1,127.0.0.2:2"),
        ([("::1", 1), ("::2", 2)], "ipv6:[::1]:1,[::2]:2"),
    ],
)
def test_target_of(addresses: list[tuple[str, int]], target: str) -> None:
    """One name or address, or a list of addresses."""
    assert channels.target_of(addresses) == target


@pytest.mark.parametrize("hosts", [("a", "b"), ("127.0.0.1", "b"), ("127.0.0.1", "::1")])
def test_target_of_mixed_addresses_is_refused(hosts: tuple[str, ...]) -> None:
    """A list must contain IP addresses of one family."""
    with pytest.raises(ValueError, match="several addresses"):
        channels.target_of([(host, 1) for host in hosts])


def test_channel_options_with_a_dead_peer_policy() -> None:
    """All options that grpcio needs to detect a frozen peer."""
    options = dict(channels.channel_options(KeepaliveSettings(ping_after=10.0, answer_within=20.0)))
    assert options["grpc.keepalive_time_ms"] == 10_000
    assert options["grpc.http2.ping_timeout_ms"] == 20_000
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.use_local_subchannel_pool"] == 1


def test_connection_over_a_slow_link_has_time_to_be_set_up() -> None:
    """TCP, TLS and HTTP/2 take three round trips; a refused connection is still tried again after a second."""
    options = dict(channels.channel_options())
    assert options["grpc.min_reconnect_backoff_ms"] == 5_000
    assert options["grpc.initial_reconnect_backoff_ms"] == 1_000


def test_server_options_do_not_share_ports() -> None:
    """A port in use is an error, not a second server on it."""
    assert dict(channels.server_options())["grpc.so_reuseport"] == 0
