"""An auth that keeps a networking config, served in threads: for synchronous code that runs loops of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from fleet.protocol.networking.config import Origin
from fleet.transport import networking_config
from fleet.wire import clusterconfig_pb2_grpc, types_pb2


@dataclass
class ConfigAuth(clusterconfig_pb2_grpc.ClusterConfigServiceServicer):
    """The config and the errors of the auth."""

    address: str = ""
    config: Any = field(default_factory=lambda: networking_config.default_message("1"))
    #: Whether the auth drops a field that it does not know.
    drops_unknown_field: bool = False
    #: The status of every call.
    error_code: grpc.StatusCode | None = None
    #: Reads after an update that still return the config before it, as from a cache.
    stale_reads: int = 0
    #: Whether the response to the next update is lost, after it was written.
    loses_response: bool = False
    updates: int = 0
    _stale_config: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def GetClusterNetworkingConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._answer(context)
        if self._stale_config is not None and self.stale_reads > 0:
            self.stale_reads -= 1
            return self._stale_config
        return self.config

    def UpdateClusterNetworkingConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._answer(context)
        new_config = types_pb2.ClusterNetworkingConfigV2()
        new_config.CopyFrom(request.cluster_network_config)
        with self._lock:
            if new_config.metadata.revision != self.config.metadata.revision:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "compare failed")
            self.updates += 1
            if self.drops_unknown_field:
                new_config.spec.graceful_tunnel_closing = False
            networking_config.finalize(new_config, Origin.DYNAMIC, f"{new_config.metadata.revision}+")
            self._stale_config, self.config = self.config, new_config
        if self.loses_response:
            self.loses_response = False
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
        return new_config

    def update_concurrently(self, **fields: Any) -> None:
        """Update the config as another client would."""
        new_config = types_pb2.ClusterNetworkingConfigV2()
        new_config.CopyFrom(self.config)
        for name, value in fields.items():
            setattr(new_config.spec, name, value)
        new_config.metadata.revision += "x"
        self.config = new_config

    def _answer(self, context: Any) -> None:
        if self.error_code is not None:
            context.abort(self.error_code, "because")


@contextmanager
def run_config_auth() -> Iterator[ConfigAuth]:
    """Run the auth on a free port."""
    auth = ConfigAuth()
    server = grpc.server(ThreadPoolExecutor(4))
    clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(auth, server)  # type: ignore[no-untyped-call]
    auth.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield auth
    finally:
        server.stop(None).wait()
