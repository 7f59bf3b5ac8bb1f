"""Metadata that only peers of Refloat exchange; other peers neither send nor need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Peer

#: Wire version of a client; a server of another version refuses it.
_VERSION = "x-grpctunnel-version"
_FEATURES = "x-refloat-features"
_HALF_CLOSE = "half-close"
_NAME = "x-refloat-name"
_GENERATION = "x-refloat-generation"
#: The server's token of a Register stream. Tunnel streams carry it, and can be assigned on any connection.
_CONNECTION = "x-refloat-connection"

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RegisterMetadata:
    """Metadata of a client's Register stream."""

    #: None if not given.
    wire: WireVersion | None
    can_half_close: bool
    name: str
    generation: int

    def peer(self, identity: tuple[str, ...]) -> Peer:
        """Return the peer with this metadata and with the names that its certificate proves."""
        return Peer(identity, self.name, self.generation)


def create_register_metadata(wire: WireVersion, name: str, generation: int) -> Metadata:
    """Return the metadata of a client's Register. Raises TunnelError for a name that metadata cannot carry."""
    if not (name.isascii() and name.isprintable()):
        raise TunnelError(f"the client name {name!r} cannot be sent. Use printable ASCII")
    name_pairs = ((_NAME, name), (_GENERATION, str(generation))) if name else ()
    return ((_VERSION, wire.value), (_FEATURES, _HALF_CLOSE), *name_pairs)


def read_register_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> RegisterMetadata:
    """Return what a client's metadata says. Raises TunnelError."""
    texts = _texts(metadata)
    version, generation = texts.get(_VERSION), texts.get(_GENERATION, "0")
    if version is not None and version not in {wire.value for wire in WireVersion}:
        raise TunnelError(f"{_VERSION} {version!r} is not a supported version. Use 0.1 or 0.2")
    if not (generation.isascii() and generation.isdigit() and len(generation) < 20):
        raise TunnelError(f"{_GENERATION} is not a whole number")
    wire = None if version is None else WireVersion(version)
    return RegisterMetadata(wire, _can_half_close(texts), texts.get(_NAME, ""), int(generation))


def create_response_metadata(token: str) -> Metadata:
    """Return the metadata of a server's response to Register."""
    return ((_FEATURES, _HALF_CLOSE), (_CONNECTION, token))


def read_response_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[bool, str]:
    """Return whether the server can half-close, and its token (empty if it is not Refloat's)."""
    texts = _texts(metadata)
    return _can_half_close(texts), texts.get(_CONNECTION, "")


def create_stream_metadata(token: str) -> Metadata:
    """Return the metadata of a client's Tunnel stream."""
    return ((_CONNECTION, token),) if token else ()


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the token of a Tunnel stream; empty without one."""
    return _texts(metadata).get(_CONNECTION, "")


def _can_half_close(texts: Mapping[str, str]) -> bool:
    return _HALF_CLOSE in texts.get(_FEATURES, "").split(",")


def _texts(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    return {key: value for key, value in metadata if isinstance(value, str)}
