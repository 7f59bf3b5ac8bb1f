"""Metadata between our own peers, and metadata of other implementations."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Peer
from fleet.transport.tunnel import metadata
from fleet.transport.tunnel.metadata import RegisterMetadata


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize(("name", "generation"), [("", 0), ("agent-7", 0), ("agent-7", 2**63)])
def test_register_metadata_round_trips(wire: WireVersion, name: str, generation: int) -> None:
    """It has the version, the name, the generation and the half-close feature."""
    register_metadata = metadata.read_register_metadata(
        metadata.create_register_metadata(wire, name, generation)
    )

    assert register_metadata == RegisterMetadata(wire, can_half_close=True, name=name, generation=generation)
    assert register_metadata.peer(("a.example",)) == Peer(("a.example",), name, generation)


def test_other_register_metadata_is_ignored() -> None:
    entries = (("user-agent", "grpc-go/1.60"), ("x-refloat-features-bin", b"half-close"))

    assert metadata.read_register_metadata(entries) == RegisterMetadata(
        None, can_half_close=False, name="", generation=0
    )


def test_features_are_a_comma_separated_list() -> None:
    """Unknown features are ignored; a longer word is another feature."""
    for features, expected in (("zip,half-close", True), ("half-closed", False), ("", False)):
        assert metadata.read_register_metadata([("x-refloat-features", features)]).can_half_close is expected


@pytest.mark.parametrize("version", ["0.3", "", "latest", "0.2 "])
def test_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(TunnelError, match=r"is not a supported version"):
        metadata.read_register_metadata([("x-grpctunnel-version", version)])


@pytest.mark.parametrize("generation", ["-1", "1.5", "", "²", "9" * 20, "0x1"])
def test_invalid_generation_is_refused(generation: str) -> None:
    """A generation is a whole number within limits."""
    with pytest.raises(TunnelError, match="is not a whole number"):
        metadata.read_register_metadata([("x-refloat-generation", generation)])


def test_response_metadata_round_trips() -> None:
    """It has the token that the client's Tunnel streams repeat."""
    assert metadata.read_response_metadata(metadata.create_response_metadata("t0ken")) == (True, "t0ken")
    assert metadata.token_of(metadata.create_stream_metadata("t0ken")) == "t0ken"


def test_other_response_metadata_is_ignored() -> None:
    """Without a token none is sent."""
    assert metadata.read_response_metadata((("trailer", "x"),)) == (False, "")
    assert metadata.create_stream_metadata("") == ()
    assert metadata.token_of((("x-refloat-connection-bin", b"t0ken"),)) == ""


@pytest.mark.parametrize("name", ["köln", "a\nb", "a\x00", "\x7f"])
def test_unprintable_name_is_refused(name: str) -> None:
    """Metadata is printable ASCII: the error comes before gRPC's own."""
    with pytest.raises(TunnelError, match="printable ASCII"):
        metadata.create_register_metadata(WireVersion.V0_2, name, 0)
