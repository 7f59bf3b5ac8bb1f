"""gRPC options for tunnels; channels and servers also have those of `fleet.transport.channels`."""

from __future__ import annotations

from fleet.transport.channels import GrpcOptions, KeepaliveSettings

#: Maximum bytes of a message: other peers choose their size; a larger one is refused with RESOURCE_EXHAUSTED.
MOST_MESSAGE = 64 * 1024 * 1024


def server_options(keepalive: KeepaliveSettings | None = None) -> GrpcOptions:
    """Return the options of a server; with `keepalive` it pings clients. Go's clients accept any number of pings."""
    options: GrpcOptions = [("grpc.max_receive_message_length", MOST_MESSAGE)]
    if keepalive is not None:
        options += [
            ("grpc.keepalive_time_ms", max(int(keepalive.ping_after * 1000), 1)),
            ("grpc.http2.max_pings_without_data", 0),
            # keepalive_timeout_ms alone does not end the connection of a frozen peer.
            ("grpc.http2.ping_timeout_ms", max(int(keepalive.answer_within * 1000), 1)),
        ]
    return options


def channel_options() -> GrpcOptions:
    """Return the options of a channel."""
    return [("grpc.max_receive_message_length", MOST_MESSAGE)]
