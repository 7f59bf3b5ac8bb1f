import datetime

from fleet.wire import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceHeader(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ...) -> None: ...

class AppServerV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    spec: AppServerSpecV3
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ..., spec: _Optional[_Union[AppServerSpecV3, _Mapping]] = ...) -> None: ...

class AppServerSpecV3(_message.Message):
    __slots__ = ("version", "hostname", "host_id", "app", "proxy_ids")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    PROXY_IDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    hostname: str
    host_id: str
    app: AppV3
    proxy_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., hostname: _Optional[str] = ..., host_id: _Optional[str] = ..., app: _Optional[_Union[AppV3, _Mapping]] = ..., proxy_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AppV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ...) -> None: ...

class DatabaseServerV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    spec: DatabaseServerSpecV3
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ..., spec: _Optional[_Union[DatabaseServerSpecV3, _Mapping]] = ...) -> None: ...

class DatabaseServerSpecV3(_message.Message):
    __slots__ = ("version", "hostname", "host_id", "database", "proxy_ids")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    PROXY_IDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    hostname: str
    host_id: str
    database: DatabaseV3
    proxy_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., hostname: _Optional[str] = ..., host_id: _Optional[str] = ..., database: _Optional[_Union[DatabaseV3, _Mapping]] = ..., proxy_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DatabaseV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ...) -> None: ...

class KubernetesServerV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    spec: KubernetesServerSpecV3
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ..., spec: _Optional[_Union[KubernetesServerSpecV3, _Mapping]] = ...) -> None: ...

class KubernetesServerSpecV3(_message.Message):
    __slots__ = ("version", "hostname", "host_id", "cluster", "proxy_ids")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PROXY_IDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    hostname: str
    host_id: str
    cluster: KubernetesClusterV3
    proxy_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., hostname: _Optional[str] = ..., host_id: _Optional[str] = ..., cluster: _Optional[_Union[KubernetesClusterV3, _Mapping]] = ..., proxy_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class KubernetesClusterV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ...) -> None: ...

class WindowsDesktopServiceV3(_message.Message):
    __slots__ = ("header", "spec")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    header: ResourceHeader
    spec: WindowsDesktopServiceSpecV3
    def __init__(self, header: _Optional[_Union[ResourceHeader, _Mapping]] = ..., spec: _Optional[_Union[WindowsDesktopServiceSpecV3, _Mapping]] = ...) -> None: ...

class WindowsDesktopServiceSpecV3(_message.Message):
    __slots__ = ("addr", "teleport_version", "hostname", "proxy_ids")
    ADDR_FIELD_NUMBER: _ClassVar[int]
    TELEPORT_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PROXY_IDS_FIELD_NUMBER: _ClassVar[int]
    addr: str
    teleport_version: str
    hostname: str
    proxy_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, addr: _Optional[str] = ..., teleport_version: _Optional[str] = ..., hostname: _Optional[str] = ..., proxy_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class InstanceV1(_message.Message):
    __slots__ = ("header", "spec")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    header: ResourceHeader
    spec: InstanceSpecV1
    def __init__(self, header: _Optional[_Union[ResourceHeader, _Mapping]] = ..., spec: _Optional[_Union[InstanceSpecV1, _Mapping]] = ...) -> None: ...

class InstanceSpecV1(_message.Message):
    __slots__ = ("version", "services", "hostname", "auth_id", "last_seen", "last_measurement")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    LAST_MEASUREMENT_FIELD_NUMBER: _ClassVar[int]
    version: str
    services: _containers.RepeatedScalarFieldContainer[str]
    hostname: str
    auth_id: str
    last_seen: _timestamp_pb2.Timestamp
    last_measurement: SystemClockMeasurement
    def __init__(self, version: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ..., hostname: _Optional[str] = ..., auth_id: _Optional[str] = ..., last_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_measurement: _Optional[_Union[SystemClockMeasurement, _Mapping]] = ...) -> None: ...

class SystemClockMeasurement(_message.Message):
    __slots__ = ("controller_system_clock", "system_clock", "request_duration")
    CONTROLLER_SYSTEM_CLOCK_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_CLOCK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_DURATION_FIELD_NUMBER: _ClassVar[int]
    controller_system_clock: _timestamp_pb2.Timestamp
    system_clock: _timestamp_pb2.Timestamp
    request_duration: _duration_pb2.Duration
    def __init__(self, controller_system_clock: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., system_clock: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., request_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class InstanceFilter(_message.Message):
    __slots__ = ("server_id", "version", "services")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    version: str
    services: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, server_id: _Optional[str] = ..., version: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoteClusterV3(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "status")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    status: RemoteClusterStatusV3
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ..., status: _Optional[_Union[RemoteClusterStatusV3, _Mapping]] = ...) -> None: ...

class RemoteClusterStatusV3(_message.Message):
    __slots__ = ("connection", "last_heartbeat")
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    connection: str
    last_heartbeat: _timestamp_pb2.Timestamp
    def __init__(self, connection: _Optional[str] = ..., last_heartbeat: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class TunnelConnectionV2(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    spec: TunnelConnectionSpecV2
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ..., spec: _Optional[_Union[TunnelConnectionSpecV2, _Mapping]] = ...) -> None: ...

class TunnelConnectionSpecV2(_message.Message):
    __slots__ = ("cluster_name", "proxy_name", "last_heartbeat", "type")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    PROXY_NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    proxy_name: str
    last_heartbeat: _timestamp_pb2.Timestamp
    type: str
    def __init__(self, cluster_name: _Optional[str] = ..., proxy_name: _Optional[str] = ..., last_heartbeat: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., type: _Optional[str] = ...) -> None: ...

class WatchKind(_message.Message):
    __slots__ = ("kind", "load_secrets", "name", "filter", "sub_kind", "version")
    class FilterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    LOAD_SECRETS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    load_secrets: bool
    name: str
    filter: _containers.ScalarMap[str, str]
    sub_kind: str
    version: str
    def __init__(self, kind: _Optional[str] = ..., load_secrets: _Optional[bool] = ..., name: _Optional[str] = ..., filter: _Optional[_Mapping[str, str]] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class WatchStatusV1(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: _types_pb2.Metadata
    spec: WatchStatusSpecV1
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[_types_pb2.Metadata, _Mapping]] = ..., spec: _Optional[_Union[WatchStatusSpecV1, _Mapping]] = ...) -> None: ...

class WatchStatusSpecV1(_message.Message):
    __slots__ = ("kinds",)
    KINDS_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedCompositeFieldContainer[WatchKind]
    def __init__(self, kinds: _Optional[_Iterable[_Union[WatchKind, _Mapping]]] = ...) -> None: ...
