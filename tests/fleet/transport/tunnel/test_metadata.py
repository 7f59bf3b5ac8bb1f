"""What peers of our own tell each other, and what strangers may say there."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Peer
from fleet.transport.tunnel import metadata
from fleet.transport.tunnel.metadata import RegisterMetadata


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize(("name", "generation"), [("", 0), ("agent-7", 0), ("agent-7", 2**63)])
def test_greeting_arrives(wire: WireVersion, name: str, generation: int) -> None:
    """The version, the name and how-many-eth connection this is, and that it can half-close."""
    greeting = metadata.read_register_metadata(metadata.register_metadata(wire, name, generation))

    assert greeting == RegisterMetadata(wire, half_close=True, name=name, generation=generation)
    assert greeting.peer(("a.example",)) == Peer(("a.example",), name, generation)


def test_greeting_of_others() -> None:
    """They say nothing of all this, whatever else they say."""
    said = (("user-agent", "grpc-go/1.60"), ("x-refloat-features-bin", b"half-close"))

    assert metadata.read_register_metadata(said) == RegisterMetadata(
        None, half_close=False, name="", generation=0
    )


def test_features_are_a_list() -> None:
    """Those to come do not hide this one, and a longer word is not it."""
    for features, known in (("zip,half-close", True), ("half-closed", False), ("", False)):
        assert metadata.read_register_metadata([("x-refloat-features", features)]).half_close is known


@pytest.mark.parametrize("version", ["0.3", "", "latest", "0.2 "])
def test_greeting_of_an_unknown_version(version: str) -> None:
    """Refused with what there is."""
    with pytest.raises(TunnelError, match=r"is not a supported version"):
        metadata.read_register_metadata([("x-grpctunnel-version", version)])


@pytest.mark.parametrize("generation", ["-1", "1.5", "", "²", "9" * 20, "0x1"])
def test_greeting_of_no_number(generation: str) -> None:
    """A generation is a whole number that fits."""
    with pytest.raises(TunnelError, match="is not a whole number"):
        metadata.read_register_metadata([("x-refloat-generation", generation)])


def test_answer_arrives() -> None:
    """The server's token, which the client's Tunnel streams carry."""
    assert metadata.read_response_metadata(metadata.response_metadata("t0ken")) == (True, "t0ken")
    assert metadata.token_of(metadata.stream_metadata("t0ken")) == "t0ken"


def test_answer_of_others() -> None:
    """No token comes, and none is sent."""
    assert metadata.read_response_metadata((("trailer", "x"),)) == (False, "")
    assert metadata.stream_metadata("") == ()
    assert metadata.token_of((("x-refloat-connection-bin", b"t0ken"),)) == ""


@pytest.mark.parametrize("name", ["köln", "a\nb", "a\x00", "\x7f"])
def test_greeting_with_a_name_that_cannot_travel(name: str) -> None:
    """Metadata is printable ASCII: it is said here, in a sentence, and not by gRPC in the middle of a call."""
    with pytest.raises(TunnelError, match="printable ASCII"):
        metadata.register_metadata(WireVersion.V0_2, name, 0)
