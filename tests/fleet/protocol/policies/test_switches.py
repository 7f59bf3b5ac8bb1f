"""Switches in environment variables."""

from __future__ import annotations

import pytest

from fleet.protocol.policies.switches import SwitchError, switch_from


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("1", True), ("T", True), ("False", False), ("0", False)]
)
def test_switch_accepts_gos_spellings(text: str, *, expected: bool) -> None:
    """Go's ParseBool accepts the same."""
    assert switch_from({"X": text}, "X", default=not expected) is expected


@pytest.mark.parametrize("default", [True, False])
def test_unset_or_empty_gives_the_default(*, default: bool) -> None:
    assert switch_from({}, "X", default=default) is default
    assert switch_from({"X": ""}, "X", default=default) is default


def test_other_text_is_refused() -> None:
    """The error names the variable."""
    with pytest.raises(SwitchError, match="X='yes'"):
        switch_from({"X": "yes"}, "X", default=False)
