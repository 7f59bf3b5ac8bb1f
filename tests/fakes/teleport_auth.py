"""One auth of a Teleport cluster in this process, with configurable resources and refusals; by gRPC only."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from typing_extensions import override

from fleet.wire import authservice_pb2, authservice_pb2_grpc, presence_pb2, resources_pb2, types_pb2
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
        #: None: the version has no list of leaf clusters.
        self.leaf_clusters: list[resources_pb2.RemoteClusterV3] | None = None
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

    def refuse(self, name: str, context: grpc.ServicerContext) -> None:
        """End a call that is refused, as a real auth does."""
        if code := self.refusals.get(name):
            context.abort(code, f"{_DENIED} {name}" if code is grpc.StatusCode.PERMISSION_DENIED else name)


class _AuthService(authservice_pb2_grpc.AuthServiceServicer):
    def __init__(self, auth: FakeTeleportAuth) -> None:
        self._auth = auth

    @override
    def Ping(
        self, request: authservice_pb2.PingRequest, context: grpc.ServicerContext
    ) -> authservice_pb2.PingResponse:
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
