import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Metadata(_message.Message):
    __slots__ = ("name", "namespace", "description", "labels", "expires", "revision")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    description: str
    labels: _containers.ScalarMap[str, str]
    expires: _timestamp_pb2.Timestamp
    revision: str
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., description: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revision: _Optional[str] = ...) -> None: ...

class ServerV2(_message.Message):
    __slots__ = ("kind", "sub_kind", "version", "metadata", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUB_KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sub_kind: str
    version: str
    metadata: Metadata
    spec: ServerSpecV2
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[Metadata, _Mapping]] = ..., spec: _Optional[_Union[ServerSpecV2, _Mapping]] = ...) -> None: ...

class ServerSpecV2(_message.Message):
    __slots__ = ("addr", "hostname", "use_tunnel", "version", "peer_addr", "proxy_ids", "public_addrs")
    ADDR_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    USE_TUNNEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDR_FIELD_NUMBER: _ClassVar[int]
    PROXY_IDS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ADDRS_FIELD_NUMBER: _ClassVar[int]
    addr: str
    hostname: str
    use_tunnel: bool
    version: str
    peer_addr: str
    proxy_ids: _containers.RepeatedScalarFieldContainer[str]
    public_addrs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, addr: _Optional[str] = ..., hostname: _Optional[str] = ..., use_tunnel: _Optional[bool] = ..., version: _Optional[str] = ..., peer_addr: _Optional[str] = ..., proxy_ids: _Optional[_Iterable[str]] = ..., public_addrs: _Optional[_Iterable[str]] = ...) -> None: ...
