"""Encoding and decoding of tunnel messages, for both wire versions.

Messages on Register are small and rare, and use protobuf. Data is the hot path: it is encoded and decoded by hand,
which saves two objects and a copy per message; the bytes are those of protobuf.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from fleet.protocol.tunnel.messages import (
    LONGEST_TARGET,
    Capabilities,
    Message,
    Op,
    Registration,
    Session,
    Subscription,
    Target,
    TunnelError,
    WireVersion,
)
from fleet.wire import tunnel_pb2, tunnel_v01_pb2

SERVICE = "grpctunnel.Tunnel"
REGISTER_METHOD = f"/{SERVICE}/Register"
TUNNEL_METHOD = f"/{SERVICE}/Tunnel"

#: Data{close: true}, in a message of its own: other peers ignore data that comes with it.
CLOSE_MESSAGE = b"\x18\x01"

#: Maximum bytes of a Register message; its longest part is an error text. Larger ones are not parsed.
_LONGEST_MESSAGE = 65_536

#: Maximum bytes before the payload of a Data message: its key and a length of 32 bits.
HEADER_ROOM = 6
_DATA_KEY = 0x12

_MIXED_MESSAGE_REASON = (
    "a session message must not contain capabilities: they are exchanged once, in the first message"
)

_TARGET_OPS = {
    Op.UNKNOWN: tunnel_pb2.Target.UNKNOWN,
    Op.ADD: tunnel_pb2.Target.ADD,
    Op.REMOVE: tunnel_pb2.Target.REMOVE,
}
_SUBSCRIPTION_OPS = {
    Op.UNKNOWN: tunnel_pb2.Subscription.UNKNOWN,
    Op.ADD: tunnel_pb2.Subscription.SUBSCRIBE,
    Op.REMOVE: tunnel_pb2.Subscription.UNSUBSCRIBE,
}


def encode(wire: WireVersion, message: Message) -> bytes:
    """Return a Register message as bytes."""
    return _encode_v01(message) if wire is WireVersion.V0_1 else _encode_v02(message)


def decode(wire: WireVersion, raw: bytes) -> Message:
    """Return a Register message from bytes. Raises TunnelError."""
    if len(raw) > _LONGEST_MESSAGE:
        raise TunnelError(f"a Register message is longer than {_LONGEST_MESSAGE} bytes")
    try:
        return _decode_v01(raw) if wire is WireVersion.V0_1 else _decode_v02(raw)
    except DecodeError:
        raise TunnelError(f"a Register message cannot be decoded as version {wire.value}") from None


def _encode_v01(message: Message) -> bytes:
    if isinstance(message, Capabilities):
        capabilities = tunnel_v01_pb2.Capabilities(handler=message.handler)
        return tunnel_v01_pb2.Session(capabilities=capabilities).SerializeToString()
    assert isinstance(message, Session), "version 0.1 has only sessions"
    return tunnel_v01_pb2.Session(
        tag=message.tag, accept=message.accept, target_id=message.target.name, error=message.error
    ).SerializeToString()


def _decode_v01(raw: bytes) -> Message:
    session = tunnel_v01_pb2.Session.FromString(raw)
    if not session.HasField("capabilities"):
        return Session(session.tag, _target(session.target_id), session.accept, session.error)
    if session.tag or session.target_id or session.accept or session.error:
        return Session(session.tag, _target(session.target_id), malformed_reason=_MIXED_MESSAGE_REASON)
    return Capabilities(session.capabilities.handler)


def _encode_v02(message: Message) -> bytes:
    if isinstance(message, Registration):
        target = tunnel_pb2.Target(
            op=_TARGET_OPS[message.op],
            accept=message.accept,
            target=message.target.name,
            target_type=message.target.type,
            error=message.error,
        )
        return tunnel_pb2.RegisterOp(target=target).SerializeToString()
    if isinstance(message, Session):
        session = tunnel_pb2.Session(
            tag=message.tag,
            accept=message.accept,
            target=message.target.name,
            target_type=message.target.type,
            error=message.error,
        )
        return tunnel_pb2.RegisterOp(session=session).SerializeToString()
    if isinstance(message, Subscription):
        subscription = tunnel_pb2.Subscription(
            op=_SUBSCRIPTION_OPS[message.op],
            accept=message.accept,
            target_type=message.type,
            error=message.error,
        )
        return tunnel_pb2.RegisterOp(subscription=subscription).SerializeToString()
    assert message is None, "version 0.2 has no capabilities"
    return b""


def _decode_v02(raw: bytes) -> Message:
    register_op = tunnel_pb2.RegisterOp.FromString(raw)
    operation = register_op.WhichOneof("Registration")
    if operation == "target":
        target = _target(register_op.target.target, register_op.target.target_type)
        return Registration(
            _op(register_op.target.op), target, register_op.target.accept, register_op.target.error
        )
    if operation == "session":
        target = _target(register_op.session.target, register_op.session.target_type)
        return Session(register_op.session.tag, target, register_op.session.accept, register_op.session.error)
    if operation == "subscription":
        subscription = register_op.subscription
        kind = _target("", subscription.target_type).type
        return Subscription(_op(subscription.op), kind, subscription.accept, subscription.error)
    return None


def _target(name: str, kind: str = "") -> Target:
    if max(len(name), len(kind)) > LONGEST_TARGET:
        raise TunnelError(f"the name or the type of a target is longer than {LONGEST_TARGET} characters")
    return Target(name, kind)


def _op(number: int) -> Op:
    return Op(number) if number in (Op.ADD, Op.REMOVE) else Op.UNKNOWN


# -- Data ----------------------------------------------------------------------------------------


def first_message(tag: int) -> bytes:
    """Return the client's first message of a Tunnel stream."""
    return tunnel_pb2.Data(tag=tag).SerializeToString()


def tag_of(raw: bytes) -> int:
    """Return the tag in the first message of a Tunnel stream. Raises TunnelError if there is anything else in it."""
    try:
        data = tunnel_pb2.Data.FromString(raw)
    except DecodeError:
        raise TunnelError("the first message of a Tunnel stream cannot be decoded as Data") from None
    if data.data or data.close:
        raise TunnelError("the first message of a Tunnel stream must contain only its tag")
    if data.tag == 0:
        raise TunnelError("tag 0 is not a session's tag")
    return data.tag


def data_header(size: int) -> bytes:
    """Return the bytes before a payload of `size` bytes; `size` must be above 0."""
    parts = bytearray((_DATA_KEY,))
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    parts.append(size)
    return bytes(parts)


def data_message(payload: bytes | memoryview) -> bytes:
    """Return a Data message with a payload, which must not be empty."""
    return b"".join((data_header(len(payload)), payload))


def read_data(raw: bytes, tag: int | None = None) -> tuple[memoryview, bool]:
    """Return the payload of a Data message, without a copy, and whether it closes the session.

    Raises TunnelError for an invalid message, and for the tag of another session than `tag`. Peers may or may not
    repeat the tag after the first message.
    """
    if len(raw) > 2 and raw[0] == _DATA_KEY:
        size = 0
        for at in range(1, min(len(raw), HEADER_ROOM)):
            size |= (raw[at] & 0x7F) << 7 * (at - 1)
            if raw[at] < 0x80:
                if at + 1 + size == len(raw):
                    return memoryview(raw)[at + 1 :], False
                break
    try:
        data = tunnel_pb2.Data.FromString(raw)
    except DecodeError:
        raise TunnelError("a message on a Tunnel stream cannot be decoded as Data") from None
    if tag is not None and data.tag not in (0, tag):
        raise TunnelError(f"data with tag {data.tag} arrived on the stream of tag {tag}")
    return memoryview(data.data), data.close
