"""Options and credentials of every gRPC server and channel, in one place."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio

Options = list[tuple[str, int | str]]

#: Every server's certificate names this host too.
SERVER_NAME = "refloat.local"
#: Roles of servers. Certificates of all other roles are good for clients only.
SERVER_ROLES = ("auth", "proxy", "gateway")
#: What Teleport's clients ask servers for, whatever address they dial (api/constants, `APIDomain`); with a label in
#: front where they mean one cluster.
TELEPORT_NAMES = ("teleport.cluster.local", "*.teleport.cluster.local")
#: Bytes of a stream on their way without being read: 100 ms away that is 40 MB/s.
WINDOW = 4 * 1024 * 1024
#: grpc doubles its wait for a dead server up to two minutes: an agent should be back sooner than that.
_RECONNECT_MS = (1_000, 8_000)


def role_name(role: str) -> str:
    """Return the host that every certificate of a role of servers names, and none of another role."""
    return f"{role}.{SERVER_NAME}"


#: The certificates of auths alone name this host, so that a proxy cannot answer in the place of an auth.
AUTH_NAME = role_name("auth")
#: Names that many certificates have: they do not tell one program from another.
SHARED_NAMES = frozenset((SERVER_NAME, "localhost", *TELEPORT_NAMES, *map(role_name, SERVER_ROLES)))


class TLSError(Exception):
    """A key or certificate that cannot be used; the sentence names the file."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """PEM files; an own certificate and key make it mutual on the client's side, a CA on the server's."""

    certificate: Path | None = None
    key: Path | None = None
    #: Whom we trust.
    authority: Path | None = None
    #: A client expects this name in the server's certificate; empty means the name of the role that it dials, and the
    #: host where servers have no role of ours.
    server_name: str = ""
    #: The same of an auth's certificate; empty means as `server_name`.
    auth_name: str = ""

    @property
    def enabled(self) -> bool:
        """Whether TLS is on at all."""
        return any((self.certificate, self.key, self.authority))

    def towards(self, role: str) -> TLSFiles:
        """Return the same for connections to servers of a role, whose certificates must prove it."""
        by_role = self.auth_name if role == "auth" else ""
        return replace(self, server_name=by_role or self.server_name or role_name(role))


@dataclass(frozen=True, slots=True)
class DeadPeer:
    """HTTP/2 pings of a channel. Seconds."""

    #: Silence after which we ping.
    ping_after: float
    #: How long the answer may take.
    answer_within: float


def server_options() -> Options:
    """Options of every server.

    Ports are not shared, so that one in use is an error; clients may ping as often as they are told to.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ]


def channel_options(dead_peer: DeadPeer | None = None, *, own_connection: bool = True) -> Options:
    """Options of a channel; `own_connection` keeps it from sharing its TCP connection with channels alike."""
    options: Options = [
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


def still_options() -> Options:
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
        return f"dns:///{_bracketed(host)}:{port}"
    if len(versions) != 1 or None in versions:
        raise ValueError("several addresses must be IP addresses of one family; a host name must stand alone")
    return f"ipv{versions.pop()}:" + ",".join(f"{_bracketed(host)}:{port}" for host, port in addresses)


def open_channel(
    target: str,
    tls: TLSFiles | None = None,
    dead_peer: DeadPeer | None = None,
    *,
    own_connection: bool = True,
    more: Sequence[tuple[str, int | str]] = (),
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """Open a channel, with TLS when files are given and with `more` options. Raises TLSError."""
    options = [*channel_options(dead_peer, own_connection=own_connection), *more]
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


def server_credentials(tls: TLSFiles) -> grpc.ServerCredentials:
    """Credentials of a server; with an authority it demands a client's certificate. Raises TLSError."""
    if tls.certificate is None or tls.key is None:
        raise TLSError("a server with TLS needs a certificate and its key")
    must_be_usable(tls)
    authority = _read(tls.authority)
    pair = (_must_read(tls.key), _must_read(tls.certificate))
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def channel_credentials(tls: TLSFiles) -> grpc.ChannelCredentials:
    """Credentials of a client; with a certificate it shows itself. Raises TLSError."""
    if (tls.certificate is None) != (tls.key is None):
        raise TLSError("a certificate and its key go together")
    must_be_usable(tls)
    return grpc.ssl_channel_credentials(_read(tls.authority), _read(tls.key), _read(tls.certificate))


def must_be_usable(tls: TLSFiles) -> None:
    """Raise TLSError for files that are no PEM or do not belong together: gRPC would take them, and reach nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if tls.certificate is not None and tls.key is not None:
            named = f"{tls.certificate} and {tls.key}"
            context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        if tls.authority is not None:
            named = str(tls.authority)
            context.load_verify_locations(tls.authority)
    except ssl.SSLError as error:
        raise TLSError(f"{named} cannot be used: {_reason(error)}") from error
    except OSError as error:
        raise TLSError(f"{named} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Without it OpenSSL would ask for the password of a locked key on the terminal."""
    return ""


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _read(path: Path | None) -> bytes | None:
    return None if path is None else _must_read(path)


def _must_read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TLSError(f"{path} cannot be read: {error.strerror}") from error


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
