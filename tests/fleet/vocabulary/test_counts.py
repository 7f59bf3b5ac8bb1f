"""Numbers of things, as people read them."""

from __future__ import annotations

import pytest

from fleet.vocabulary.counts import format_agent_count


@pytest.mark.parametrize(("count", "text"), [(0, "0 agents"), (1, "1 agent"), (1234, "1,234 agents")])
def test_noun_agrees_with_the_number(count: int, text: str) -> None:
    """Thousands have a comma."""
    assert format_agent_count(count) == text
