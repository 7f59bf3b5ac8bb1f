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
    """Its config, and what goes wrong with it."""

    address: str = ""
    held: Any = field(default_factory=lambda: networking_config.defaults("1"))
    #: It forgets the field that it does not know.
    old: bool = False
    #: Every call fails with it.
    fails: grpc.StatusCode | None = None
    updates: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def GetClusterNetworkingConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._answer(context)
        return self.held

    def UpdateClusterNetworkingConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._answer(context)
        wanted = types_pb2.ClusterNetworkingConfigV2()
        wanted.CopyFrom(request.cluster_network_config)
        with self._lock:
            if wanted.metadata.revision != self.held.metadata.revision:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "compare failed")
            self.updates += 1
            if self.old:
                wanted.spec.graceful_tunnel_closing = False
            networking_config.finalize(wanted, Origin.DYNAMIC, f"{wanted.metadata.revision}+")
            self.held = wanted
        return wanted

    def somebody_else_writes(self, **fields: Any) -> None:
        """Another console, or a terminal."""
        changed = types_pb2.ClusterNetworkingConfigV2()
        changed.CopyFrom(self.held)
        for name, value in fields.items():
            setattr(changed.spec, name, value)
        changed.metadata.revision += "x"
        self.held = changed

    def _answer(self, context: Any) -> None:
        if self.fails is not None:
            context.abort(self.fails, "because")


@contextmanager
def serving() -> Iterator[ConfigAuth]:
    """Run one."""
    auth = ConfigAuth()
    server = grpc.server(ThreadPoolExecutor(4))
    clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(auth, server)  # type: ignore[no-untyped-call]
    auth.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield auth
    finally:
        server.stop(None).wait()
