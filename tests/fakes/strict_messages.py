"""What Register carries, read as strictly as no peer does: every field known, every combination one that Go sends.

Shared by both ends of the strict peer. Whatever a program of ours says that Go would stumble over is a complaint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.protocol.tunnel.messages import WireVersion
from tests.fakes import strict_wire
from tests.fakes.strict_wire import SESSION, SUBSCRIPTION, TARGET, Fields, WireError, signed, text

#: Go's io.Copy reads so much at a time.
BLOCK = 32 * 1024
#: Field numbers of each message and whether they carry text, by version and kind.
_SESSION_02 = {1: int, 2: int, 3: bytes, 4: bytes, 5: bytes}
_SESSION_01 = {1: int, 2: int, 3: bytes, 4: bytes, 5: bytes}
_TARGET = {1: int, 2: int, 3: bytes, 4: bytes, 5: bytes}
_SUBSCRIPTION = {1: int, 2: int, 3: bytes, 4: bytes}
_DATA = {1: int, 2: bytes, 3: int}


class GoError(Exception):
    """What a Go peer returns; as a status it is UNKNOWN with this text."""


@dataclass
class Complaints:
    """What our end said that it must not say to a Go peer."""

    texts: list[str] = field(default_factory=list)

    def add(self, complaint: str) -> str:
        """Complain, and say it."""
        self.texts.append(complaint)
        return complaint


@dataclass(frozen=True)
class RegisterMessage:
    """A message of Register. `what` is capabilities, target, session, subscription, or empty."""

    member: str
    op: int = 0
    tag: int = 0
    target: str = ""
    kind: str = ""
    accept: bool = False
    error: str = ""
    handler: bool = False

    @property
    def pair(self) -> tuple[str, str]:
        """A target and its type."""
        return self.target, self.kind


def _read_known_fields(raw: bytes, known_fields: dict[int, type]) -> Fields:
    fields = strict_wire.read(raw)
    for number, value in fields.items():
        if number not in known_fields:
            raise WireError(f"field {number} is not known")
        if not isinstance(value, known_fields[number]):
            raise WireError(f"field {number} has the wrong wire type")
    return fields


def read(wire: WireVersion, raw: bytes) -> RegisterMessage:
    """Read a message of Register. Raises WireError."""
    return _read_01(raw) if wire is WireVersion.V0_1 else _read_02(raw)


def _read_01(raw: bytes) -> RegisterMessage:
    fields = _read_known_fields(raw, _SESSION_01)
    if 3 in fields:
        if len(fields) > 1:
            raise WireError("capabilities come alone")
        inner = _read_known_fields(strict_wire.payload(fields, 3), {1: int})
        return RegisterMessage("capabilities", handler=bool(inner.get(1)))
    return RegisterMessage(
        "session",
        tag=signed(fields, 1),
        accept=bool(fields.get(2)),
        target=text(fields, 4),
        error=text(fields, 5),
    )


def _read_02(raw: bytes) -> RegisterMessage:
    fields = _read_known_fields(raw, {TARGET: bytes, SESSION: bytes, SUBSCRIPTION: bytes})
    if not fields:
        return RegisterMessage("")
    if len(fields) > 1:
        raise WireError("a RegisterOp has one member")
    (member,) = fields
    raw = strict_wire.payload(fields, member)
    if member == SUBSCRIPTION:
        inner = _read_known_fields(raw, _SUBSCRIPTION)
        return RegisterMessage(
            "subscription",
            op=signed(inner, 1),
            accept=bool(inner.get(2)),
            kind=text(inner, 3),
            error=text(inner, 4),
        )
    inner = _read_known_fields(raw, _TARGET if member == TARGET else _SESSION_02)
    number = signed(inner, 1)
    return RegisterMessage(
        "target" if member == TARGET else "session",
        op=number if member == TARGET else 0,
        tag=number if member == SESSION else 0,
        accept=bool(inner.get(2)),
        target=text(inner, 3),
        kind=text(inner, 4),
        error=text(inner, 5),
    )


def write(wire: WireVersion, message: RegisterMessage) -> bytes:
    """Write a message of Register."""
    if message.member == "capabilities":
        inner = strict_wire.message({1: message.handler})
        return strict_wire.varint(3 << 3 | 2) + strict_wire.varint(len(inner)) + inner
    if message.member == "subscription":
        return strict_wire.op(
            SUBSCRIPTION, {1: message.op, 2: message.accept, 3: message.kind, 4: message.error}
        )
    if wire is WireVersion.V0_1:
        return strict_wire.message({1: message.tag, 2: message.accept, 4: message.target, 5: message.error})
    number = message.op if message.member == "target" else message.tag
    return strict_wire.op(
        TARGET if message.member == "target" else SESSION,
        {1: number, 2: message.accept, 3: message.target, 4: message.kind, 5: message.error},
    )


def read_data(raw: bytes) -> tuple[int, bytes, bool]:
    """Tag, payload and close of a Data message. Raises WireError."""
    fields = _read_known_fields(raw, _DATA)
    return signed(fields, 1), strict_wire.payload(fields, 2), bool(fields.get(3))


def write_data(tag: int = 0, data: bytes = b"", close: bool = False) -> bytes:
    """Write a Data message."""
    return strict_wire.message({1: tag, 2: data, 3: close})
