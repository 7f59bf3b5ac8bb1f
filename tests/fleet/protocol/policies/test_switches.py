"""Switches in the environment."""

from __future__ import annotations

import pytest

from fleet.protocol.policies.switches import SwitchError, switch_from


@pytest.mark.parametrize(
    ("text", "on"), [("true", True), ("1", True), ("T", True), ("False", False), ("0", False)]
)
def test_words_of_go(text: str, *, on: bool) -> None:
    """What Go's ParseBool takes."""
    assert switch_from({"X": text}, "X", default=not on) is on


@pytest.mark.parametrize("default", [True, False])
def test_not_said(*, default: bool) -> None:
    """Unset and empty are the default."""
    assert switch_from({}, "X", default=default) is default
    assert switch_from({"X": ""}, "X", default=default) is default


def test_neither() -> None:
    """Anything else is an error that names the variable."""
    with pytest.raises(SwitchError, match="X='yes'"):
        switch_from({"X": "yes"}, "X", default=False)
