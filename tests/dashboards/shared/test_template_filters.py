"""Filters of all templates."""

from __future__ import annotations

import pytest
from django.template import engines


@pytest.mark.parametrize(
    ("seconds", "text"), [(600, "10 min"), (7.26, "7.3 s"), (0.04, "0 s"), (90, "1 min 30 s"), (None, "")]
)
def test_durations_have_units(seconds: float | None, text: str) -> None:
    assert engines["django"].from_string("{{ seconds|duration }}").render({"seconds": seconds}) == text
