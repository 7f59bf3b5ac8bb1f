from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetServiceConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServiceConfigResponse(_message.Message):
    __slots__ = ("config",)
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: ServiceConfig
    def __init__(self, config: _Optional[_Union[ServiceConfig, _Mapping]] = ...) -> None: ...

class ServiceConfig(_message.Message):
    __slots__ = ("load_balancing_config", "health_check_config")
    LOAD_BALANCING_CONFIG_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_CONFIG_FIELD_NUMBER: _ClassVar[int]
    load_balancing_config: _containers.RepeatedCompositeFieldContainer[LoadBalancerConfig]
    health_check_config: HealthCheckConfig
    def __init__(self, load_balancing_config: _Optional[_Iterable[_Union[LoadBalancerConfig, _Mapping]]] = ..., health_check_config: _Optional[_Union[HealthCheckConfig, _Mapping]] = ...) -> None: ...

class LoadBalancerConfig(_message.Message):
    __slots__ = ("teleport_pick_healthy",)
    TELEPORT_PICK_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    teleport_pick_healthy: TeleportPickHealthyConfig
    def __init__(self, teleport_pick_healthy: _Optional[_Union[TeleportPickHealthyConfig, _Mapping]] = ...) -> None: ...

class TeleportPickHealthyConfig(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: str
    def __init__(self, mode: _Optional[str] = ...) -> None: ...

class HealthCheckConfig(_message.Message):
    __slots__ = ("service_name",)
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    service_name: str
    def __init__(self, service_name: _Optional[str] = ...) -> None: ...
