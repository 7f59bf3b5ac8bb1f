from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Session(_message.Message):
    __slots__ = ("tag", "accept", "capabilities", "target_id", "error")
    TAG_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tag: int
    accept: bool
    capabilities: Capabilities
    target_id: str
    error: str
    def __init__(self, tag: _Optional[int] = ..., accept: _Optional[bool] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., target_id: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("handler",)
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    handler: bool
    def __init__(self, handler: _Optional[bool] = ...) -> None: ...
