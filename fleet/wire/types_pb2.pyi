import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProxyListenerMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Separate: _ClassVar[ProxyListenerMode]
    Multiplex: _ClassVar[ProxyListenerMode]

class RoutingStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNAMBIGUOUS_MATCH: _ClassVar[RoutingStrategy]
    MOST_RECENT: _ClassVar[RoutingStrategy]
Separate: ProxyListenerMode
Multiplex: ProxyListenerMode
UNAMBIGUOUS_MATCH: RoutingStrategy
MOST_RECENT: RoutingStrategy

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
    __slots__ = ("addr", "hostname", "cmd_labels", "use_tunnel", "version", "peer_addr", "proxy_ids", "public_addrs")
    class CmdLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: CommandLabelV2
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[CommandLabelV2, _Mapping]] = ...) -> None: ...
    ADDR_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    CMD_LABELS_FIELD_NUMBER: _ClassVar[int]
    USE_TUNNEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDR_FIELD_NUMBER: _ClassVar[int]
    PROXY_IDS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ADDRS_FIELD_NUMBER: _ClassVar[int]
    addr: str
    hostname: str
    cmd_labels: _containers.MessageMap[str, CommandLabelV2]
    use_tunnel: bool
    version: str
    peer_addr: str
    proxy_ids: _containers.RepeatedScalarFieldContainer[str]
    public_addrs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, addr: _Optional[str] = ..., hostname: _Optional[str] = ..., cmd_labels: _Optional[_Mapping[str, CommandLabelV2]] = ..., use_tunnel: _Optional[bool] = ..., version: _Optional[str] = ..., peer_addr: _Optional[str] = ..., proxy_ids: _Optional[_Iterable[str]] = ..., public_addrs: _Optional[_Iterable[str]] = ...) -> None: ...

class CommandLabelV2(_message.Message):
    __slots__ = ("period", "command", "result")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    period: int
    command: _containers.RepeatedScalarFieldContainer[str]
    result: str
    def __init__(self, period: _Optional[int] = ..., command: _Optional[_Iterable[str]] = ..., result: _Optional[str] = ...) -> None: ...

class ClusterNetworkingConfigV2(_message.Message):
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
    spec: ClusterNetworkingConfigSpecV2
    def __init__(self, kind: _Optional[str] = ..., sub_kind: _Optional[str] = ..., version: _Optional[str] = ..., metadata: _Optional[_Union[Metadata, _Mapping]] = ..., spec: _Optional[_Union[ClusterNetworkingConfigSpecV2, _Mapping]] = ...) -> None: ...

class ClusterNetworkingConfigSpecV2(_message.Message):
    __slots__ = ("client_idle_timeout", "keep_alive_interval", "keep_alive_count_max", "session_control_timeout", "idle_timeout_message", "web_idle_timeout", "proxy_listener_mode", "routing_strategy", "tunnel_strategy", "proxy_ping_interval", "assist_command_execution_workers", "case_insensitive_routing", "ssh_dial_timeout", "graceful_tunnel_closing", "tunnel_closing_wait_min", "tunnel_closing_wait_max", "tunnel_disconnect_threshold")
    CLIENT_IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    SESSION_CONTROL_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WEB_IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    PROXY_LISTENER_MODE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    PROXY_PING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ASSIST_COMMAND_EXECUTION_WORKERS_FIELD_NUMBER: _ClassVar[int]
    CASE_INSENSITIVE_ROUTING_FIELD_NUMBER: _ClassVar[int]
    SSH_DIAL_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    GRACEFUL_TUNNEL_CLOSING_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_CLOSING_WAIT_MIN_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_CLOSING_WAIT_MAX_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_DISCONNECT_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    client_idle_timeout: int
    keep_alive_interval: int
    keep_alive_count_max: int
    session_control_timeout: int
    idle_timeout_message: str
    web_idle_timeout: int
    proxy_listener_mode: ProxyListenerMode
    routing_strategy: RoutingStrategy
    tunnel_strategy: TunnelStrategyV1
    proxy_ping_interval: int
    assist_command_execution_workers: int
    case_insensitive_routing: bool
    ssh_dial_timeout: int
    graceful_tunnel_closing: bool
    tunnel_closing_wait_min: int
    tunnel_closing_wait_max: int
    tunnel_disconnect_threshold: int
    def __init__(self, client_idle_timeout: _Optional[int] = ..., keep_alive_interval: _Optional[int] = ..., keep_alive_count_max: _Optional[int] = ..., session_control_timeout: _Optional[int] = ..., idle_timeout_message: _Optional[str] = ..., web_idle_timeout: _Optional[int] = ..., proxy_listener_mode: _Optional[_Union[ProxyListenerMode, str]] = ..., routing_strategy: _Optional[_Union[RoutingStrategy, str]] = ..., tunnel_strategy: _Optional[_Union[TunnelStrategyV1, _Mapping]] = ..., proxy_ping_interval: _Optional[int] = ..., assist_command_execution_workers: _Optional[int] = ..., case_insensitive_routing: _Optional[bool] = ..., ssh_dial_timeout: _Optional[int] = ..., graceful_tunnel_closing: _Optional[bool] = ..., tunnel_closing_wait_min: _Optional[int] = ..., tunnel_closing_wait_max: _Optional[int] = ..., tunnel_disconnect_threshold: _Optional[int] = ...) -> None: ...

class TunnelStrategyV1(_message.Message):
    __slots__ = ("agent_mesh", "proxy_peering")
    AGENT_MESH_FIELD_NUMBER: _ClassVar[int]
    PROXY_PEERING_FIELD_NUMBER: _ClassVar[int]
    agent_mesh: AgentMeshTunnelStrategy
    proxy_peering: ProxyPeeringTunnelStrategy
    def __init__(self, agent_mesh: _Optional[_Union[AgentMeshTunnelStrategy, _Mapping]] = ..., proxy_peering: _Optional[_Union[ProxyPeeringTunnelStrategy, _Mapping]] = ...) -> None: ...

class AgentMeshTunnelStrategy(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProxyPeeringTunnelStrategy(_message.Message):
    __slots__ = ("agent_connection_count",)
    AGENT_CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    agent_connection_count: int
    def __init__(self, agent_connection_count: _Optional[int] = ...) -> None: ...
