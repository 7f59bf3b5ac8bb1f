from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Data(_message.Message):
    __slots__ = ("tag", "data", "close")
    TAG_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    tag: int
    data: bytes
    close: bool
    def __init__(self, tag: _Optional[int] = ..., data: _Optional[bytes] = ..., close: _Optional[bool] = ...) -> None: ...

class RegisterOp(_message.Message):
    __slots__ = ("target", "session", "subscription")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    target: Target
    session: Session
    subscription: Subscription
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("op", "accept", "target", "target_type", "error")
    class TargetOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Target.TargetOp]
        ADD: _ClassVar[Target.TargetOp]
        REMOVE: _ClassVar[Target.TargetOp]
    UNKNOWN: Target.TargetOp
    ADD: Target.TargetOp
    REMOVE: Target.TargetOp
    OP_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    op: Target.TargetOp
    accept: bool
    target: str
    target_type: str
    error: str
    def __init__(self, op: _Optional[_Union[Target.TargetOp, str]] = ..., accept: _Optional[bool] = ..., target: _Optional[str] = ..., target_type: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("tag", "accept", "target", "target_type", "error")
    TAG_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tag: int
    accept: bool
    target: str
    target_type: str
    error: str
    def __init__(self, tag: _Optional[int] = ..., accept: _Optional[bool] = ..., target: _Optional[str] = ..., target_type: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("op", "accept", "target_type", "error")
    class SubscriptionOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Subscription.SubscriptionOp]
        SUBSCRIBE: _ClassVar[Subscription.SubscriptionOp]
        UNSUBSCRIBE: _ClassVar[Subscription.SubscriptionOp]
    UNKNOWN: Subscription.SubscriptionOp
    SUBSCRIBE: Subscription.SubscriptionOp
    UNSUBSCRIBE: Subscription.SubscriptionOp
    OP_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    op: Subscription.SubscriptionOp
    accept: bool
    target_type: str
    error: str
    def __init__(self, op: _Optional[_Union[Subscription.SubscriptionOp, str]] = ..., accept: _Optional[bool] = ..., target_type: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...
