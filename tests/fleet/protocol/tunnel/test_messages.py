"""Message types that both ends of a tunnel use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.tunnel.messages import HIGHEST_TAG, Op, Tags, Target, TunnelError, WireVersion


@given(st.sampled_from((1, -1)), st.integers(1, 300))
def test_tags_count_away_from_zero(step: int, count: int) -> None:
    """A server uses +1, +2, …, a client -1, -2, …; no tag occurs twice, and 0 never."""
    tags = Tags(step)

    assert [tags.take() for _ in range(count)] == [step * number for number in range(1, count + 1)]


@pytest.mark.parametrize("step", [1, -1])
def test_tags_end_at_int32(step: int) -> None:
    """After the last int32 there is an error, instead of tags that are in use."""
    tags = Tags(step)
    tags._last = step * (HIGHEST_TAG - 1)

    assert tags.take() == step * HIGHEST_TAG
    for _ in range(2):
        with pytest.raises(TunnelError, match="used up its tags"):
            tags.take()


@pytest.mark.parametrize("step", [0, 2, -2])
def test_tags_refuse_other_steps(step: int) -> None:
    with pytest.raises(AssertionError):
        Tags(step)


def test_target_as_text() -> None:
    """The type follows in brackets if there is one."""
    assert str(Target("router-7", "SSH")) == "router-7 (SSH)"
    assert str(Target("router-7")) == "router-7"


def test_target_is_a_pair() -> None:
    """The same name with another type is another target; targets are ordered."""
    targets = {Target("b", "SSH"), Target("b", "GNMI"), Target("a", "SSH"), Target("b", "SSH")}

    assert sorted(targets) == [Target("a", "SSH"), Target("b", "GNMI"), Target("b", "SSH")]


def test_numbers_and_versions_match_the_wire() -> None:
    """They are sent over the network, and must not be renumbered."""
    assert [(op.name, op.value) for op in Op] == [("UNKNOWN", 0), ("ADD", 1), ("REMOVE", 2)]
    assert [wire.value for wire in WireVersion] == ["0.1", "0.2"]
