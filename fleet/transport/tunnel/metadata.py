"""What peers of our own tell each other in metadata; others neither send it nor mind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Peer

#: Which version of the wire a client speaks; servers of one version refuse the other by it.
_VERSION = "x-grpctunnel-version"
_FEATURES = "x-refloat-features"
_HALF_CLOSE = "half-close"
_NAME = "x-refloat-name"
_GENERATION = "x-refloat-generation"
#: The server's word for a Register stream. Its Tunnel streams carry it, and are found though they ride elsewhere.
_CONNECTION = "x-refloat-connection"

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RegisterMetadata:
    """What a client's Register stream says of it."""

    #: None when it did not say.
    wire: WireVersion | None
    half_close: bool
    name: str
    generation: int

    def peer(self, identity: tuple[str, ...]) -> Peer:
        """The peer this makes, with the names its certificate proves."""
        return Peer(identity, self.name, self.generation)


def register_metadata(wire: WireVersion, name: str, generation: int) -> Metadata:
    """Metadata of a client's Register. Raises TunnelError for a name that metadata cannot carry."""
    if not (name.isascii() and name.isprintable()):
        raise TunnelError(f"the name {name!r} is not printable ASCII, so it cannot travel")
    name_pairs = ((_NAME, name), (_GENERATION, str(generation))) if name else ()
    return ((_VERSION, wire.value), (_FEATURES, _HALF_CLOSE), *name_pairs)


def read_register_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> RegisterMetadata:
    """Read a client's. Raises TunnelError."""
    texts = _texts(metadata)
    version, generation = texts.get(_VERSION), texts.get(_GENERATION, "0")
    if version is not None and version not in {wire.value for wire in WireVersion}:
        raise TunnelError(f"{_VERSION} {version!r} is no version: 0.1 or 0.2")
    if not (generation.isascii() and generation.isdigit() and len(generation) < 20):
        raise TunnelError(f"{_GENERATION} is no whole number")
    wire = None if version is None else WireVersion(version)
    return RegisterMetadata(wire, _can_half_close(texts), texts.get(_NAME, ""), int(generation))


def response_metadata(token: str) -> Metadata:
    """Metadata of a server's answer to Register."""
    return ((_FEATURES, _HALF_CLOSE), (_CONNECTION, token))


def read_response_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[bool, str]:
    """Whether the server can half-close, and its token; empty when it is not one of ours."""
    texts = _texts(metadata)
    return _can_half_close(texts), texts.get(_CONNECTION, "")


def stream_metadata(token: str) -> Metadata:
    """Metadata of a client's Tunnel stream."""
    return ((_CONNECTION, token),) if token else ()


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The token of a Tunnel stream; empty when it has none."""
    return _texts(metadata).get(_CONNECTION, "")


def _can_half_close(texts: Mapping[str, str]) -> bool:
    return _HALF_CLOSE in texts.get(_FEATURES, "").split(",")


def _texts(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    return {key: value for key, value in metadata if isinstance(value, str)}
