"""Options of every gRPC server and channel, in one place; their credentials are in `tls.py`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from fleet.transport.tls import TLSFiles, channel_credentials, server_credentials

GrpcOptions = list[tuple[str, int | str]]

#: Bytes of a stream on their way without being read: 100 ms away that is 40 MB/s.
WINDOW = 4 * 1024 * 1024
#: grpc doubles its wait for a dead server up to two minutes: an agent should be back sooner than that.
_RECONNECT_MS = (1_000, 8_000)


@dataclass(frozen=True, slots=True)
class DeadPeer:
    """HTTP/2 pings of a channel. Seconds."""

    #: Silence after which we ping.
    ping_after: float
    #: How long the answer may take.
    answer_within: float


def server_options() -> GrpcOptions:
    """Options of every server.

    Ports are not shared, so that one in use is an error; clients may ping as often as they are told to.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ]


def channel_options(dead_peer: DeadPeer | None = None, *, own_connection: bool = True) -> GrpcOptions:
    """Options of a channel; `own_connection` keeps it from sharing its TCP connection with channels alike."""
    options: GrpcOptions = [
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS[0]),
        ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS[0]),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS[1]),
    ]
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    if dead_peer is not None:
        # keepalive_timeout_ms does not end a frozen peer's connection in grpcio 1.85; ping_timeout_ms does,
        # and only if pings without data are not throttled.
        options += [
            ("grpc.keepalive_time_ms", max(int(dead_peer.ping_after * 1000), 1)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.ping_timeout_ms", max(int(dead_peer.answer_within * 1000), 1)),
        ]
    return options


def fixed_window_options() -> GrpcOptions:
    """Options of a channel of which one process has hundreds.

    gRPC probes a connection's bandwidth with a ping for each burst of data, to size the window by the answer: where
    most bursts are one small message that is a quarter of what the message costs. The window is fixed instead.
    """
    return [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", WINDOW)]


def target_of(addresses: Sequence[tuple[str, int]]) -> str:
    """The gRPC target of host:port pairs, tried in their order.

    Raises ValueError for several names: gRPC takes a list of IP addresses or one name.
    """
    versions = {_ip_version(host) for host, _ in addresses}
    # gRPC's resolver of names is a part of what a new connection costs that an address does not need; one of IPv6
    # gets it nevertheless, because the URI of its own scheme would be escaped in :authority.
    if len(addresses) == 1 and versions != {4}:
        host, port = addresses[0]
        return f"dns:///{_bracket_ipv6(host)}:{port}"
    if len(versions) != 1 or None in versions:
        raise ValueError("several addresses must be IP addresses of one family; a host name must stand alone")
    return f"ipv{versions.pop()}:" + ",".join(f"{_bracket_ipv6(host)}:{port}" for host, port in addresses)


def open_channel(
    target: str,
    tls: TLSFiles | None = None,
    dead_peer: DeadPeer | None = None,
    *,
    own_connection: bool = True,
    extra_options: Sequence[tuple[str, int | str]] = (),
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """Open a channel, with TLS when files are given and with `more` options. Raises TLSError."""
    options = [*channel_options(dead_peer, own_connection=own_connection), *extra_options]
    if tls is None or not tls.enabled:
        return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(
        target, channel_credentials(tls), options=options, interceptors=interceptors
    )


def add_port(server: grpc.aio.Server, address: str, tls: TLSFiles | None = None) -> int:
    """Let a server listen on host:port and return the port. Raises RuntimeError when it cannot, TLSError."""
    if tls is None or not tls.enabled:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, server_credentials(tls))


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host
