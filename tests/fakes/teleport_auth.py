"""One auth of a Teleport cluster in this process, with configurable resources and refusals; by gRPC only."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import grpc
from typing_extensions import override

from fleet.transport import networking_config
from fleet.wire import (
    authservice_pb2,
    authservice_pb2_grpc,
    clusterconfig_pb2,
    clusterconfig_pb2_grpc,
    presence_pb2,
    resources_pb2,
    types_pb2,
)
from tests.fakes.instances import FakeAuth

_DENIED = "access denied to perform action"


class FakeTeleportAuth(FakeAuth):
    """Lists `resources` of each kind in pages of `page_size`, and `inventory`; refuses what is in `refusals`."""

    def __init__(self) -> None:
        #: By kind as ListResources names it.
        self.resources: dict[str, list[authservice_pb2.PaginatedResource]] = {}
        #: Auth by host.
        self.inventory: dict[str, str] = {}
        #: Status code by kind, or by method.
        self.refusals: dict[str, grpc.StatusCode] = {}
        self.networking = networking_config.default_message("revision-1")
        #: Kinds that lists have and watches do not.
        self.unwatched_kinds: set[str] = set()
        self._watches: list[queue.SimpleQueue[authservice_pb2.Event | None]] = []
        #: None: the version has no list of leaf clusters.
        self.leaf_clusters: list[resources_pb2.RemoteClusterV3] | None = []
        self.page_size = 2
        #: The last page names itself as the next one.
        self.is_endless = False
        super().__init__("auth-id", "auth-1")

    @override
    def add_services(self, server: grpc.Server) -> None:
        super().add_services(server)
        # The last handler of a method counts.
        server.add_registered_method_handlers("teleport.presence.v1.PresenceService", _leaf_handlers(self))
        authservice_pb2_grpc.add_AuthServiceServicer_to_server(_AuthService(self), server)
        clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(_ConfigService(self), server)

    def refuse(self, name: str, context: grpc.ServicerContext) -> None:
        """End a call that is refused, as a real auth does."""
        if code := self.refusals.get(name):
            context.abort(code, f"{_DENIED} {name}" if code is grpc.StatusCode.PERMISSION_DENIED else name)

    @property
    def list_count(self) -> int:
        """Return how many complete lists were requested: each has one first page of nodes."""
        return sum(
            isinstance(call, authservice_pb2.ListResourcesRequest)
            and (call.resource_type, call.start_key) == ("node", "")
            for call in self.calls
        )

    @property
    def watch_count(self) -> int:
        """Return how many watches are open."""
        return len(self._watches)

    def send(self, *events: authservice_pb2.Event) -> None:
        """Send events to every watch."""
        for watch in tuple(self._watches):
            for event in events:
                watch.put(event)

    def end_watches(self) -> None:
        """End every watch as an auth does that is too slow for it."""
        for watch in tuple(self._watches):
            watch.put(None)

    def watch(
        self, context: grpc.ServicerContext, first_event: authservice_pb2.Event
    ) -> Iterator[authservice_pb2.Event]:
        """Yield the first event of a new watch, and what is sent to it until it ends."""
        watch: queue.SimpleQueue[authservice_pb2.Event | None] = queue.SimpleQueue()
        context.add_callback(lambda: watch.put(None))
        self._watches.append(watch)
        try:
            yield first_event
            while (event := watch.get()) is not None:
                yield event
        finally:
            self._watches.remove(watch)

    @override
    def stop(self) -> None:
        self.end_watches()
        super().stop()


class _ConfigService(clusterconfig_pb2_grpc.ClusterConfigServiceServicer):
    def __init__(self, auth: FakeTeleportAuth) -> None:
        self._auth = auth

    @override
    def GetClusterNetworkingConfig(
        self, request: clusterconfig_pb2.GetClusterNetworkingConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ClusterNetworkingConfigV2:
        self._auth.refuse("GetClusterNetworkingConfig", context)
        return self._auth.networking


class _AuthService(authservice_pb2_grpc.AuthServiceServicer):
    def __init__(self, auth: FakeTeleportAuth) -> None:
        self._auth = auth

    @override
    def Ping(
        self, request: authservice_pb2.PingRequest, context: grpc.ServicerContext
    ) -> authservice_pb2.PingResponse:
        self._auth.note_call(request, context)
        self._auth.refuse("Ping", context)
        return authservice_pb2.PingResponse(cluster_name="example.com", server_version="18.1.0")

    @override
    def ListResources(
        self, request: authservice_pb2.ListResourcesRequest, context: grpc.ServicerContext
    ) -> authservice_pb2.ListResourcesResponse:
        auth = self._auth
        auth.note_call(request, context)
        auth.refuse(request.resource_type, context)
        resources = auth.resources.get(request.resource_type, [])
        start = int(request.start_key or 0)
        page, end = resources[start : start + auth.page_size], start + auth.page_size
        next_key = str(start) if auth.is_endless and start else str(end)
        has_next = end < len(resources) or auth.is_endless
        return authservice_pb2.ListResourcesResponse(resources=page, next_key=next_key if has_next else "")

    @override
    def GetInstances(
        self, request: resources_pb2.InstanceFilter, context: grpc.ServicerContext
    ) -> Iterator[resources_pb2.InstanceV1]:
        self._auth.refuse("GetInstances", context)
        for host, auth in self._auth.inventory.items():
            header = resources_pb2.ResourceHeader(kind="instance", metadata=types_pb2.Metadata(name=host))
            yield resources_pb2.InstanceV1(header=header, spec=resources_pb2.InstanceSpecV1(auth_id=auth))

    @override
    def WatchEvents(
        self, request: authservice_pb2.Watch, context: grpc.ServicerContext
    ) -> Iterator[authservice_pb2.Event]:
        auth = self._auth
        auth.refuse("WatchEvents", context)
        first_event = authservice_pb2.Event(type=authservice_pb2.INIT)
        first_event.watch_status.spec.kinds.extend(
            kind for kind in request.kinds if kind.kind not in {*auth.refusals, *auth.unwatched_kinds}
        )
        yield from auth.watch(context, first_event)
        context.abort(grpc.StatusCode.UNAVAILABLE, "watcher is closed")


def put_event(resource: authservice_pb2.PaginatedResource) -> authservice_pb2.Event:
    """Return the event of a new or renewed resource."""
    event = authservice_pb2.Event(type=authservice_pb2.PUT)
    match resource.WhichOneof("resource"):
        case "node":
            event.server.CopyFrom(resource.node)
        case "app_server":
            event.app_server.CopyFrom(resource.app_server)
    return event


def delete_event(kind: str, name: str, host: str = "") -> authservice_pb2.Event:
    """Return the event of a deleted resource, with the host as Teleport names it."""
    metadata = types_pb2.Metadata(name=name, description=host)
    header = resources_pb2.ResourceHeader(kind=kind, metadata=metadata)
    return authservice_pb2.Event(type=authservice_pb2.DELETE, resource_header=header)


def _leaf_handlers(auth: FakeTeleportAuth) -> dict[str, grpc.RpcMethodHandler]:
    """Return the handler of ListRemoteClusters, which only Teleport's auths have."""

    def list_leaf_clusters(
        _: presence_pb2.ListRemoteClustersRequest, context: grpc.ServicerContext
    ) -> presence_pb2.ListRemoteClustersResponse:
        if auth.leaf_clusters is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        return presence_pb2.ListRemoteClustersResponse(remote_clusters=auth.leaf_clusters)

    handler = grpc.unary_unary_rpc_method_handler(
        list_leaf_clusters,
        request_deserializer=presence_pb2.ListRemoteClustersRequest.FromString,
        response_serializer=presence_pb2.ListRemoteClustersResponse.SerializeToString,
    )
    return {"ListRemoteClusters": handler}


def make_node(
    host: str, *, expires_at: int = 700, use_tunnel: bool = True, sub_kind: str = ""
) -> authservice_pb2.PaginatedResource:
    """Return the node of a host, with the label env=prod and the command label site=oslo."""
    node = types_pb2.ServerV2(kind="node", sub_kind=sub_kind, metadata=_metadata(host, expires_at))
    node.metadata.labels["env"] = "prod"
    node.spec.hostname, node.spec.version, node.spec.use_tunnel = f"{host}.example", "18.1.0", use_tunnel
    node.spec.cmd_labels["site"].result = "oslo"
    return authservice_pb2.PaginatedResource(node=node)


def make_app(host: str, app: str, *, expires_at: int = 700) -> authservice_pb2.PaginatedResource:
    """Return the resource of an application that a host serves."""
    server = resources_pb2.AppServerV3(metadata=_metadata(app, expires_at))
    server.spec.host_id, server.spec.hostname, server.spec.version = host, f"{host}.example", "18.1.0"
    return authservice_pb2.PaginatedResource(app_server=server)


def _metadata(name: str, expires_at: int) -> types_pb2.Metadata:
    metadata = types_pb2.Metadata(name=name)
    metadata.expires.seconds = expires_at
    return metadata
