from fleet.wire import resources_pb2 as _resources_pb2
from fleet.wire import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INIT: _ClassVar[Operation]
    PUT: _ClassVar[Operation]
    DELETE: _ClassVar[Operation]
INIT: Operation
PUT: Operation
DELETE: Operation

class PingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ("cluster_name", "server_version", "server_features", "proxy_public_addr")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_FEATURES_FIELD_NUMBER: _ClassVar[int]
    PROXY_PUBLIC_ADDR_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    server_version: str
    server_features: Features
    proxy_public_addr: str
    def __init__(self, cluster_name: _Optional[str] = ..., server_version: _Optional[str] = ..., server_features: _Optional[_Union[Features, _Mapping]] = ..., proxy_public_addr: _Optional[str] = ...) -> None: ...

class Features(_message.Message):
    __slots__ = ("cloud",)
    CLOUD_FIELD_NUMBER: _ClassVar[int]
    cloud: bool
    def __init__(self, cloud: _Optional[bool] = ...) -> None: ...

class ListResourcesRequest(_message.Message):
    __slots__ = ("resource_type", "namespace", "limit", "start_key", "need_total_count")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    NEED_TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    resource_type: str
    namespace: str
    limit: int
    start_key: str
    need_total_count: bool
    def __init__(self, resource_type: _Optional[str] = ..., namespace: _Optional[str] = ..., limit: _Optional[int] = ..., start_key: _Optional[str] = ..., need_total_count: _Optional[bool] = ...) -> None: ...

class ListResourcesResponse(_message.Message):
    __slots__ = ("resources", "next_key", "total_count")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_KEY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[PaginatedResource]
    next_key: str
    total_count: int
    def __init__(self, resources: _Optional[_Iterable[_Union[PaginatedResource, _Mapping]]] = ..., next_key: _Optional[str] = ..., total_count: _Optional[int] = ...) -> None: ...

class PaginatedResource(_message.Message):
    __slots__ = ("database_server", "app_server", "node", "kubernetes_server", "windows_desktop_service")
    DATABASE_SERVER_FIELD_NUMBER: _ClassVar[int]
    APP_SERVER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_SERVER_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_DESKTOP_SERVICE_FIELD_NUMBER: _ClassVar[int]
    database_server: _resources_pb2.DatabaseServerV3
    app_server: _resources_pb2.AppServerV3
    node: _types_pb2.ServerV2
    kubernetes_server: _resources_pb2.KubernetesServerV3
    windows_desktop_service: _resources_pb2.WindowsDesktopServiceV3
    def __init__(self, database_server: _Optional[_Union[_resources_pb2.DatabaseServerV3, _Mapping]] = ..., app_server: _Optional[_Union[_resources_pb2.AppServerV3, _Mapping]] = ..., node: _Optional[_Union[_types_pb2.ServerV2, _Mapping]] = ..., kubernetes_server: _Optional[_Union[_resources_pb2.KubernetesServerV3, _Mapping]] = ..., windows_desktop_service: _Optional[_Union[_resources_pb2.WindowsDesktopServiceV3, _Mapping]] = ...) -> None: ...

class ListUnifiedResourcesRequest(_message.Message):
    __slots__ = ("kinds", "limit", "start_key")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    start_key: str
    def __init__(self, kinds: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., start_key: _Optional[str] = ...) -> None: ...

class ListUnifiedResourcesResponse(_message.Message):
    __slots__ = ("resources", "next_key")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_KEY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[PaginatedResource]
    next_key: str
    def __init__(self, resources: _Optional[_Iterable[_Union[PaginatedResource, _Mapping]]] = ..., next_key: _Optional[str] = ...) -> None: ...

class Watch(_message.Message):
    __slots__ = ("kinds", "allow_partial_success")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_PARTIAL_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedCompositeFieldContainer[_resources_pb2.WatchKind]
    allow_partial_success: bool
    def __init__(self, kinds: _Optional[_Iterable[_Union[_resources_pb2.WatchKind, _Mapping]]] = ..., allow_partial_success: _Optional[bool] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("type", "resource_header", "server", "tunnel_connection", "remote_cluster", "database_server", "cluster_networking_config", "windows_desktop_service", "app_server", "kubernetes_server", "watch_status")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    REMOTE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DATABASE_SERVER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NETWORKING_CONFIG_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_DESKTOP_SERVICE_FIELD_NUMBER: _ClassVar[int]
    APP_SERVER_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_SERVER_FIELD_NUMBER: _ClassVar[int]
    WATCH_STATUS_FIELD_NUMBER: _ClassVar[int]
    type: Operation
    resource_header: _resources_pb2.ResourceHeader
    server: _types_pb2.ServerV2
    tunnel_connection: _resources_pb2.TunnelConnectionV2
    remote_cluster: _resources_pb2.RemoteClusterV3
    database_server: _resources_pb2.DatabaseServerV3
    cluster_networking_config: _types_pb2.ClusterNetworkingConfigV2
    windows_desktop_service: _resources_pb2.WindowsDesktopServiceV3
    app_server: _resources_pb2.AppServerV3
    kubernetes_server: _resources_pb2.KubernetesServerV3
    watch_status: _resources_pb2.WatchStatusV1
    def __init__(self, type: _Optional[_Union[Operation, str]] = ..., resource_header: _Optional[_Union[_resources_pb2.ResourceHeader, _Mapping]] = ..., server: _Optional[_Union[_types_pb2.ServerV2, _Mapping]] = ..., tunnel_connection: _Optional[_Union[_resources_pb2.TunnelConnectionV2, _Mapping]] = ..., remote_cluster: _Optional[_Union[_resources_pb2.RemoteClusterV3, _Mapping]] = ..., database_server: _Optional[_Union[_resources_pb2.DatabaseServerV3, _Mapping]] = ..., cluster_networking_config: _Optional[_Union[_types_pb2.ClusterNetworkingConfigV2, _Mapping]] = ..., windows_desktop_service: _Optional[_Union[_resources_pb2.WindowsDesktopServiceV3, _Mapping]] = ..., app_server: _Optional[_Union[_resources_pb2.AppServerV3, _Mapping]] = ..., kubernetes_server: _Optional[_Union[_resources_pb2.KubernetesServerV3, _Mapping]] = ..., watch_status: _Optional[_Union[_resources_pb2.WatchStatusV1, _Mapping]] = ...) -> None: ...

class InventoryStatusRequest(_message.Message):
    __slots__ = ("connected",)
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    connected: bool
    def __init__(self, connected: _Optional[bool] = ...) -> None: ...

class InventoryStatusSummary(_message.Message):
    __slots__ = ("connected", "instance_count", "version_counts", "upgrader_counts", "service_counts")
    class VersionCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class UpgraderCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ServiceCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    VERSION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    UPGRADER_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    connected: _containers.RepeatedCompositeFieldContainer[UpstreamInventoryHello]
    instance_count: int
    version_counts: _containers.ScalarMap[str, int]
    upgrader_counts: _containers.ScalarMap[str, int]
    service_counts: _containers.ScalarMap[str, int]
    def __init__(self, connected: _Optional[_Iterable[_Union[UpstreamInventoryHello, _Mapping]]] = ..., instance_count: _Optional[int] = ..., version_counts: _Optional[_Mapping[str, int]] = ..., upgrader_counts: _Optional[_Mapping[str, int]] = ..., service_counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class UpstreamInventoryHello(_message.Message):
    __slots__ = ("version", "server_id", "services", "hostname", "external_upgrader", "external_upgrader_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_UPGRADER_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_UPGRADER_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    server_id: str
    services: _containers.RepeatedScalarFieldContainer[str]
    hostname: str
    external_upgrader: str
    external_upgrader_version: str
    def __init__(self, version: _Optional[str] = ..., server_id: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ..., hostname: _Optional[str] = ..., external_upgrader: _Optional[str] = ..., external_upgrader_version: _Optional[str] = ...) -> None: ...

class InventoryConnectedServiceCountsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InventoryConnectedServiceCounts(_message.Message):
    __slots__ = ("service_counts",)
    class ServiceCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SERVICE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    service_counts: _containers.ScalarMap[str, int]
    def __init__(self, service_counts: _Optional[_Mapping[str, int]] = ...) -> None: ...
