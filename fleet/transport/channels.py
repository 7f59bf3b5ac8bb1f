"""Options of all gRPC servers and channels, in one place; `tls.py` has their credentials."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
import grpc.experimental

from fleet.transport.tls import TLSFiles, channel_credentials, server_credentials

GrpcOptions = list[tuple[str, int | str]]

#: Bytes of a stream in flight without being read: at 100 ms of latency that is 40 MB/s.
STREAM_WINDOW_BYTES = 4 * 1024 * 1024
#: Bounds of grpc's reconnect backoff; by default it doubles up to two minutes, too long for an agent.
_RECONNECT_BACKOFF_MS = (1_000, 8_000)
#: What grpc calls the least reconnect backoff is also the time in which a connection must be set up, with TLS and
#: HTTP/2: on a link with 600 ms of round trip that takes 2 s.
_CONNECT_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class KeepaliveSettings:
    """HTTP/2 pings of a channel that detect a dead peer. Seconds."""

    #: Time without data after which a ping is sent.
    ping_after: float
    #: Time in which the ping must be answered.
    answer_within: float


def server_options() -> GrpcOptions:
    """Return the options of every server.

    Ports are not shared, so a port in use is an error; clients may ping once per second without data.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ]


def channel_options(
    keepalive: KeepaliveSettings | None = None, *, own_connection: bool = True
) -> GrpcOptions:
    """Return the options of a channel; `own_connection`: do not share its TCP connection with similar channels."""
    options: GrpcOptions = [
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_BACKOFF_MS[0]),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_TIMEOUT_MS),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_BACKOFF_MS[1]),
    ]
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    if keepalive is not None:
        # keepalive_timeout_ms does not end the connection of a frozen peer in grpcio 1.85; ping_timeout_ms does, and
        # only if pings without data are not throttled.
        options += [
            ("grpc.keepalive_time_ms", max(int(keepalive.ping_after * 1000), 1)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.ping_timeout_ms", max(int(keepalive.answer_within * 1000), 1)),
        ]
    return options


def fixed_window_options() -> GrpcOptions:
    """Return options for a channel of which one process has hundreds.

    gRPC probes a connection's bandwidth with a ping for each burst of data, to set the window size. Where most bursts
    are one small message, that is a quarter of the cost of a message. Here the window is fixed instead.
    """
    return [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES)]


def target_of(addresses: Sequence[tuple[str, int]]) -> str:
    """Return the gRPC target for host:port pairs, to be tried in order.

    Raises ValueError for several names: gRPC accepts a list of IP addresses or one name.
    """
    versions = {_ip_version(host) for host, _ in addresses}
    # gRPC's name resolver is a part of the cost of a new connection that an IP address does not need. IPv6 uses it all
    # the same, because the URI of its own scheme would be escaped in :authority.
    if len(addresses) == 1 and versions != {4}:
        host, port = addresses[0]
        return f"dns:///{_bracket_ipv6(host)}:{port}"
    if len(versions) != 1 or None in versions:
        raise ValueError("several addresses must be IP addresses of one family; use a host name on its own")
    return f"ipv{versions.pop()}:" + ",".join(f"{_bracket_ipv6(host)}:{port}" for host, port in addresses)


def open_channel(
    target: str,
    tls: TLSFiles | None = None,
    keepalive: KeepaliveSettings | None = None,
    *,
    own_connection: bool = True,
    extra_options: Sequence[tuple[str, int | str]] = (),
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    credentials: grpc.ChannelCredentials | None = None,
) -> grpc.aio.Channel:
    """Open a channel, with TLS if files are given. Raises TLSError.

    `extra_options`: options of gRPC beside those of all channels. `credentials`: those of the files, if they were read
    before.
    """
    options = [*channel_options(keepalive, own_connection=own_connection), *extra_options]
    if tls is None or not tls.enabled:
        return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(
        target, credentials or channel_credentials(tls), options=options, interceptors=interceptors
    )


def open_stream_channel(
    target: str, tls: TLSFiles | None = None, extra_options: Sequence[tuple[str, int | str]] = ()
) -> grpc.Channel:
    """Open a channel without an event loop, whose streams are each read by one thread. Raises TLSError.

    The thread that reads a stream receives its messages itself: a message then costs a quarter.
    """
    options = [
        *channel_options(),
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
        *extra_options,
    ]
    if tls is None or not tls.enabled:
        return grpc.insecure_channel(target, options=options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.secure_channel(target, channel_credentials(tls), options=options)


def add_port(server: grpc.aio.Server, address: str, tls: TLSFiles | None = None) -> int:
    """Add a listening port at host:port to a server; return the port. Raises RuntimeError if in use, and TLSError."""
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
