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

    heard: list[str] = field(default_factory=list)

    def add(self, what: str) -> str:
        """Complain, and say it."""
        self.heard.append(what)
        return what


@dataclass(frozen=True)
class Said:
    """A message of Register. `what` is capabilities, target, session, subscription, or empty."""

    what: str
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


def _checked(raw: bytes, known: dict[int, type]) -> Fields:
    fields = strict_wire.read(raw)
    for number, value in fields.items():
        if number not in known:
            raise WireError(f"field {number} is not known")
        if not isinstance(value, known[number]):
            raise WireError(f"field {number} has the wrong wire type")
    return fields


def read(wire: WireVersion, raw: bytes) -> Said:
    """Read a message of Register. Raises WireError."""
    return _read_01(raw) if wire is WireVersion.V0_1 else _read_02(raw)


def _read_01(raw: bytes) -> Said:
    fields = _checked(raw, _SESSION_01)
    if 3 in fields:
        if len(fields) > 1:
            raise WireError("capabilities come alone")
        inner = _checked(strict_wire.payload(fields, 3), {1: int})
        return Said("capabilities", handler=bool(inner.get(1)))
    return Said(
        "session",
        tag=signed(fields, 1),
        accept=bool(fields.get(2)),
        target=text(fields, 4),
        error=text(fields, 5),
    )


def _read_02(raw: bytes) -> Said:
    fields = _checked(raw, {TARGET: bytes, SESSION: bytes, SUBSCRIPTION: bytes})
    if not fields:
        return Said("")
    if len(fields) > 1:
        raise WireError("a RegisterOp has one member")
    (which,) = fields
    raw = strict_wire.payload(fields, which)
    if which == SUBSCRIPTION:
        inner = _checked(raw, _SUBSCRIPTION)
        return Said(
            "subscription",
            op=signed(inner, 1),
            accept=bool(inner.get(2)),
            kind=text(inner, 3),
            error=text(inner, 4),
        )
    inner = _checked(raw, _TARGET if which == TARGET else _SESSION_02)
    number = signed(inner, 1)
    return Said(
        "target" if which == TARGET else "session",
        op=number if which == TARGET else 0,
        tag=number if which == SESSION else 0,
        accept=bool(inner.get(2)),
        target=text(inner, 3),
        kind=text(inner, 4),
        error=text(inner, 5),
    )


def write(wire: WireVersion, said: Said) -> bytes:
    """Write a message of Register."""
    if said.what == "capabilities":
        inner = strict_wire.message({1: said.handler})
        return strict_wire.varint(3 << 3 | 2) + strict_wire.varint(len(inner)) + inner
    if said.what == "subscription":
        return strict_wire.op(SUBSCRIPTION, {1: said.op, 2: said.accept, 3: said.kind, 4: said.error})
    if wire is WireVersion.V0_1:
        return strict_wire.message({1: said.tag, 2: said.accept, 4: said.target, 5: said.error})
    number = said.op if said.what == "target" else said.tag
    return strict_wire.op(
        TARGET if said.what == "target" else SESSION,
        {1: number, 2: said.accept, 3: said.target, 4: said.kind, 5: said.error},
    )


def read_data(raw: bytes) -> tuple[int, bytes, bool]:
    """Tag, payload and close of a Data message. Raises WireError."""
    fields = _checked(raw, _DATA)
    return signed(fields, 1), strict_wire.payload(fields, 2), bool(fields.get(3))


def write_data(tag: int = 0, data: bytes = b"", close: bool = False) -> bytes:
    """Write a Data message."""
    return strict_wire.message({1: tag, 2: data, 3: close})
