from fleet.wire import types_pb2 as _types_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetClusterNetworkingConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateClusterNetworkingConfigRequest(_message.Message):
    __slots__ = ("cluster_network_config",)
    CLUSTER_NETWORK_CONFIG_FIELD_NUMBER: _ClassVar[int]
    cluster_network_config: _types_pb2.ClusterNetworkingConfigV2
    def __init__(self, cluster_network_config: _Optional[_Union[_types_pb2.ClusterNetworkingConfigV2, _Mapping]] = ...) -> None: ...

class UpsertClusterNetworkingConfigRequest(_message.Message):
    __slots__ = ("cluster_network_config",)
    CLUSTER_NETWORK_CONFIG_FIELD_NUMBER: _ClassVar[int]
    cluster_network_config: _types_pb2.ClusterNetworkingConfigV2
    def __init__(self, cluster_network_config: _Optional[_Union[_types_pb2.ClusterNetworkingConfigV2, _Mapping]] = ...) -> None: ...

class ResetClusterNetworkingConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
