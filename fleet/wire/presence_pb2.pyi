from fleet.wire import resources_pb2 as _resources_pb2
from fleet.wire import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListAuthServersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAuthServersResponse(_message.Message):
    __slots__ = ("servers", "next_page_token")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedCompositeFieldContainer[_types_pb2.ServerV2]
    next_page_token: str
    def __init__(self, servers: _Optional[_Iterable[_Union[_types_pb2.ServerV2, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListProxyServersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListProxyServersResponse(_message.Message):
    __slots__ = ("servers", "next_page_token")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedCompositeFieldContainer[_types_pb2.ServerV2]
    next_page_token: str
    def __init__(self, servers: _Optional[_Iterable[_Union[_types_pb2.ServerV2, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListRemoteClustersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRemoteClustersResponse(_message.Message):
    __slots__ = ("remote_clusters", "next_page_token")
    REMOTE_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    remote_clusters: _containers.RepeatedCompositeFieldContainer[_resources_pb2.RemoteClusterV3]
    next_page_token: str
    def __init__(self, remote_clusters: _Optional[_Iterable[_Union[_resources_pb2.RemoteClusterV3, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
