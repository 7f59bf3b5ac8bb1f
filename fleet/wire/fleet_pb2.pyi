from fleet.wire import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeregisterRequest(_message.Message):
    __slots__ = ("agent_id",)
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    def __init__(self, agent_id: _Optional[str] = ...) -> None: ...

class DeregisterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: AgentResource
    def __init__(self, agent: _Optional[_Union[AgentResource, _Mapping]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("auth_id", "revision", "networking_config", "auth_reconnect_advisory")
    AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NETWORKING_CONFIG_FIELD_NUMBER: _ClassVar[int]
    AUTH_RECONNECT_ADVISORY_FIELD_NUMBER: _ClassVar[int]
    auth_id: str
    revision: int
    networking_config: _types_pb2.ClusterNetworkingConfigV2
    auth_reconnect_advisory: AuthReconnectAdvisory
    def __init__(self, auth_id: _Optional[str] = ..., revision: _Optional[int] = ..., networking_config: _Optional[_Union[_types_pb2.ClusterNetworkingConfigV2, _Mapping]] = ..., auth_reconnect_advisory: _Optional[_Union[AuthReconnectAdvisory, _Mapping]] = ...) -> None: ...

class AgentResource(_message.Message):
    __slots__ = ("agent_id", "name", "version", "ttl_ms", "via_proxy_id", "policy", "tracker", "labels", "networking_revision")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    VIA_PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    TRACKER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NETWORKING_REVISION_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    version: str
    ttl_ms: int
    via_proxy_id: str
    policy: ClientPolicy
    tracker: TrackerSummary
    labels: _containers.ScalarMap[str, str]
    networking_revision: str
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., via_proxy_id: _Optional[str] = ..., policy: _Optional[_Union[ClientPolicy, _Mapping]] = ..., tracker: _Optional[_Union[TrackerSummary, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., networking_revision: _Optional[str] = ...) -> None: ...

class ClientPolicy(_message.Message):
    __slots__ = ("mode", "health_check", "read_age_ms", "auth_id")
    MODE_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    READ_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    mode: str
    health_check: bool
    read_age_ms: int
    auth_id: str
    def __init__(self, mode: _Optional[str] = ..., health_check: _Optional[bool] = ..., read_age_ms: _Optional[int] = ..., auth_id: _Optional[str] = ...) -> None: ...

class TrackerSummary(_message.Message):
    __slots__ = ("desired_count", "claimed", "tracked", "ttl_seen_ms", "desired_tunnel_count")
    DESIRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    TTL_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    DESIRED_TUNNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    desired_count: int
    claimed: _containers.RepeatedScalarFieldContainer[str]
    tracked: int
    ttl_seen_ms: int
    desired_tunnel_count: int
    def __init__(self, desired_count: _Optional[int] = ..., claimed: _Optional[_Iterable[str]] = ..., tracked: _Optional[int] = ..., ttl_seen_ms: _Optional[int] = ..., desired_tunnel_count: _Optional[int] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ("epoch", "since_revision", "limit")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    since_revision: int
    limit: int
    def __init__(self, epoch: _Optional[str] = ..., since_revision: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("epoch", "revision", "full", "more", "agents", "removed")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    revision: int
    full: bool
    more: bool
    agents: _containers.RepeatedCompositeFieldContainer[AgentEntry]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[str] = ..., revision: _Optional[int] = ..., full: _Optional[bool] = ..., more: _Optional[bool] = ..., agents: _Optional[_Iterable[_Union[AgentEntry, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ...) -> None: ...

class AgentEntry(_message.Message):
    __slots__ = ("agent", "auth_id", "expires_in_ms")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    agent: AgentResource
    auth_id: str
    expires_in_ms: int
    def __init__(self, agent: _Optional[_Union[AgentResource, _Mapping]] = ..., auth_id: _Optional[str] = ..., expires_in_ms: _Optional[int] = ...) -> None: ...

class ListTunnelsRequest(_message.Message):
    __slots__ = ("epoch", "since_revision", "limit")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    since_revision: int
    limit: int
    def __init__(self, epoch: _Optional[str] = ..., since_revision: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTunnelsResponse(_message.Message):
    __slots__ = ("epoch", "revision", "full", "more", "tunnels", "closed", "proxy_id")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TUNNELS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    revision: int
    full: bool
    more: bool
    tunnels: _containers.RepeatedCompositeFieldContainer[TunnelEntry]
    closed: _containers.RepeatedScalarFieldContainer[str]
    proxy_id: str
    def __init__(self, epoch: _Optional[str] = ..., revision: _Optional[int] = ..., full: _Optional[bool] = ..., more: _Optional[bool] = ..., tunnels: _Optional[_Iterable[_Union[TunnelEntry, _Mapping]]] = ..., closed: _Optional[_Iterable[str]] = ..., proxy_id: _Optional[str] = ...) -> None: ...

class TunnelEntry(_message.Message):
    __slots__ = ("agent_id", "agent_name", "open_for_ms", "sessions")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    OPEN_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    open_for_ms: int
    sessions: int
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., open_for_ms: _Optional[int] = ..., sessions: _Optional[int] = ...) -> None: ...

class AgentFrame(_message.Message):
    __slots__ = ("hello", "ping", "advisory_reply", "retiring", "auth_advisory_reply")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    ADVISORY_REPLY_FIELD_NUMBER: _ClassVar[int]
    RETIRING_FIELD_NUMBER: _ClassVar[int]
    AUTH_ADVISORY_REPLY_FIELD_NUMBER: _ClassVar[int]
    hello: AgentHello
    ping: Ping
    advisory_reply: AdvisoryReply
    retiring: Retiring
    auth_advisory_reply: AuthAdvisoryReply
    def __init__(self, hello: _Optional[_Union[AgentHello, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., advisory_reply: _Optional[_Union[AdvisoryReply, _Mapping]] = ..., retiring: _Optional[_Union[Retiring, _Mapping]] = ..., auth_advisory_reply: _Optional[_Union[AuthAdvisoryReply, _Mapping]] = ...) -> None: ...

class Retiring(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class AgentHello(_message.Message):
    __slots__ = ("agent_id", "name", "version", "keep_alive_interval_ms")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    version: str
    keep_alive_interval_ms: int
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., keep_alive_interval_ms: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("sequence", "keep_alive_interval_ms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    keep_alive_interval_ms: int
    def __init__(self, sequence: _Optional[int] = ..., keep_alive_interval_ms: _Optional[int] = ...) -> None: ...

class AdvisoryReply(_message.Message):
    __slots__ = ("advisory_id", "accepted")
    ADVISORY_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    advisory_id: str
    accepted: bool
    def __init__(self, advisory_id: _Optional[str] = ..., accepted: _Optional[bool] = ...) -> None: ...

class ProxyFrame(_message.Message):
    __slots__ = ("hello", "pong", "discovery", "reconnect_advisory", "networking_config_notice", "auth_reconnect_advisory")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_ADVISORY_FIELD_NUMBER: _ClassVar[int]
    NETWORKING_CONFIG_NOTICE_FIELD_NUMBER: _ClassVar[int]
    AUTH_RECONNECT_ADVISORY_FIELD_NUMBER: _ClassVar[int]
    hello: ProxyHello
    pong: Pong
    discovery: Discovery
    reconnect_advisory: ReconnectAdvisory
    networking_config_notice: NetworkingConfigNotice
    auth_reconnect_advisory: AuthReconnectAdvisory
    def __init__(self, hello: _Optional[_Union[ProxyHello, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., discovery: _Optional[_Union[Discovery, _Mapping]] = ..., reconnect_advisory: _Optional[_Union[ReconnectAdvisory, _Mapping]] = ..., networking_config_notice: _Optional[_Union[NetworkingConfigNotice, _Mapping]] = ..., auth_reconnect_advisory: _Optional[_Union[AuthReconnectAdvisory, _Mapping]] = ...) -> None: ...

class ProxyHello(_message.Message):
    __slots__ = ("proxy_id", "version")
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    version: str
    def __init__(self, proxy_id: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Discovery(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class ReconnectAdvisory(_message.Message):
    __slots__ = ("advisory_id", "reason", "leaving")
    ADVISORY_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    advisory_id: str
    reason: str
    leaving: bool
    def __init__(self, advisory_id: _Optional[str] = ..., reason: _Optional[str] = ..., leaving: _Optional[bool] = ...) -> None: ...

class AuthReconnectAdvisory(_message.Message):
    __slots__ = ("advisory_id", "reason", "leave_auth_id")
    ADVISORY_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEAVE_AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    advisory_id: str
    reason: str
    leave_auth_id: str
    def __init__(self, advisory_id: _Optional[str] = ..., reason: _Optional[str] = ..., leave_auth_id: _Optional[str] = ...) -> None: ...

class AuthAdvisoryReply(_message.Message):
    __slots__ = ("advisory_id", "outcome", "auth_id", "reason")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[AuthAdvisoryReply.Outcome]
        OUTCOME_MOVED: _ClassVar[AuthAdvisoryReply.Outcome]
        OUTCOME_STAYED: _ClassVar[AuthAdvisoryReply.Outcome]
        OUTCOME_ELSEWHERE: _ClassVar[AuthAdvisoryReply.Outcome]
    OUTCOME_UNSPECIFIED: AuthAdvisoryReply.Outcome
    OUTCOME_MOVED: AuthAdvisoryReply.Outcome
    OUTCOME_STAYED: AuthAdvisoryReply.Outcome
    OUTCOME_ELSEWHERE: AuthAdvisoryReply.Outcome
    ADVISORY_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    advisory_id: str
    outcome: AuthAdvisoryReply.Outcome
    auth_id: str
    reason: str
    def __init__(self, advisory_id: _Optional[str] = ..., outcome: _Optional[_Union[AuthAdvisoryReply.Outcome, str]] = ..., auth_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class NetworkingConfigNotice(_message.Message):
    __slots__ = ("revision", "spread_ms")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SPREAD_MS_FIELD_NUMBER: _ClassVar[int]
    revision: str
    spread_ms: int
    def __init__(self, revision: _Optional[str] = ..., spread_ms: _Optional[int] = ...) -> None: ...

class AdviseReconnectRequest(_message.Message):
    __slots__ = ("advisory_id", "reason", "agent_ids", "limit", "dry_run")
    ADVISORY_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    advisory_id: str
    reason: str
    agent_ids: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    dry_run: bool
    def __init__(self, advisory_id: _Optional[str] = ..., reason: _Optional[str] = ..., agent_ids: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class AdviseAuthReconnectRequest(_message.Message):
    __slots__ = ("advisory_id", "reason", "agent_ids", "limit", "dry_run", "leave_auth_id")
    ADVISORY_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_AUTH_ID_FIELD_NUMBER: _ClassVar[int]
    advisory_id: str
    reason: str
    agent_ids: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    dry_run: bool
    leave_auth_id: str
    def __init__(self, advisory_id: _Optional[str] = ..., reason: _Optional[str] = ..., agent_ids: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., dry_run: _Optional[bool] = ..., leave_auth_id: _Optional[str] = ...) -> None: ...

class AdviseReconnectResponse(_message.Message):
    __slots__ = ("proxy_id", "advised_count", "already_advised_count", "remaining_count", "absent_count", "staying_count", "staying_ids", "absent_ids", "moved_count", "elsewhere_count", "staying_reasons")
    class StayingReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROXY_ID_FIELD_NUMBER: _ClassVar[int]
    ADVISED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ADVISED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_COUNT_FIELD_NUMBER: _ClassVar[int]
    ABSENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    STAYING_COUNT_FIELD_NUMBER: _ClassVar[int]
    STAYING_IDS_FIELD_NUMBER: _ClassVar[int]
    ABSENT_IDS_FIELD_NUMBER: _ClassVar[int]
    MOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_COUNT_FIELD_NUMBER: _ClassVar[int]
    STAYING_REASONS_FIELD_NUMBER: _ClassVar[int]
    proxy_id: str
    advised_count: int
    already_advised_count: int
    remaining_count: int
    absent_count: int
    staying_count: int
    staying_ids: _containers.RepeatedScalarFieldContainer[str]
    absent_ids: _containers.RepeatedScalarFieldContainer[str]
    moved_count: int
    elsewhere_count: int
    staying_reasons: _containers.ScalarMap[str, str]
    def __init__(self, proxy_id: _Optional[str] = ..., advised_count: _Optional[int] = ..., already_advised_count: _Optional[int] = ..., remaining_count: _Optional[int] = ..., absent_count: _Optional[int] = ..., staying_count: _Optional[int] = ..., staying_ids: _Optional[_Iterable[str]] = ..., absent_ids: _Optional[_Iterable[str]] = ..., moved_count: _Optional[int] = ..., elsewhere_count: _Optional[int] = ..., staying_reasons: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SetDeclaredStatusRequest(_message.Message):
    __slots__ = ("declaration", "reason", "duration_ms")
    class Declaration(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DECLARATION_UNSPECIFIED: _ClassVar[SetDeclaredStatusRequest.Declaration]
        DECLARATION_DRAIN: _ClassVar[SetDeclaredStatusRequest.Declaration]
        DECLARATION_UNDRAIN: _ClassVar[SetDeclaredStatusRequest.Declaration]
        DECLARATION_DEGRADE: _ClassVar[SetDeclaredStatusRequest.Declaration]
        DECLARATION_RESTORE: _ClassVar[SetDeclaredStatusRequest.Declaration]
    DECLARATION_UNSPECIFIED: SetDeclaredStatusRequest.Declaration
    DECLARATION_DRAIN: SetDeclaredStatusRequest.Declaration
    DECLARATION_UNDRAIN: SetDeclaredStatusRequest.Declaration
    DECLARATION_DEGRADE: SetDeclaredStatusRequest.Declaration
    DECLARATION_RESTORE: SetDeclaredStatusRequest.Declaration
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    declaration: SetDeclaredStatusRequest.Declaration
    reason: str
    duration_ms: int
    def __init__(self, declaration: _Optional[_Union[SetDeclaredStatusRequest.Declaration, str]] = ..., reason: _Optional[str] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class SetDeclaredStatusResponse(_message.Message):
    __slots__ = ("instance_id", "draining", "degraded")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    draining: bool
    degraded: bool
    def __init__(self, instance_id: _Optional[str] = ..., draining: _Optional[bool] = ..., degraded: _Optional[bool] = ...) -> None: ...

class GetPoliciesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PoliciesReport(_message.Message):
    __slots__ = ("instance_id", "role", "run_id", "uptime_ms", "revision", "refusal_reason", "policies")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_REASON_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    role: str
    run_id: str
    uptime_ms: int
    revision: str
    refusal_reason: str
    policies: _containers.RepeatedCompositeFieldContainer[PolicyReport]
    def __init__(self, instance_id: _Optional[str] = ..., role: _Optional[str] = ..., run_id: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., revision: _Optional[str] = ..., refusal_reason: _Optional[str] = ..., policies: _Optional[_Iterable[_Union[PolicyReport, _Mapping]]] = ...) -> None: ...

class PolicyReport(_message.Message):
    __slots__ = ("name", "value", "source", "next_value", "next_source", "fallback_value", "fallback_source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_VALUE_FIELD_NUMBER: _ClassVar[int]
    NEXT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_VALUE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    next_value: str
    next_source: str
    fallback_value: str
    fallback_source: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., next_value: _Optional[str] = ..., next_source: _Optional[str] = ..., fallback_value: _Optional[str] = ..., fallback_source: _Optional[str] = ...) -> None: ...

class SetPoliciesRequest(_message.Message):
    __slots__ = ("revision", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    revision: str
    values: _containers.ScalarMap[str, str]
    def __init__(self, revision: _Optional[str] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RestartRequest(_message.Message):
    __slots__ = ("run_id", "reason", "drain_ms")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRAIN_MS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    drain_ms: int
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ..., drain_ms: _Optional[int] = ...) -> None: ...

class RestartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
