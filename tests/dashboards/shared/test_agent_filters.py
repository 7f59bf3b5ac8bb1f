from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from dashboards.fleet import agent_query
from dashboards.shared.agent_filters import format_label_filter, format_version_filter


@pytest.mark.parametrize("text", ["prod", "", "two words", "it's", '"', "a\\b", "[x]*?", "a:b", "-x", "é"])
def test_filters_match_the_value_itself(text: str) -> None:
    """Whatever an agent reports."""
    query = agent_query.parse(f"{format_label_filter('env', text)} {format_version_filter(text)}")
    ((key, pattern),) = query.labels
    assert key == "env"
    assert all(fnmatchcase(text, candidate) for candidate in (pattern, *query.versions))
    assert not fnmatchcase(f"{text}x", pattern)


def test_plain_filters_are_not_quoted() -> None:
    assert format_label_filter("env", "prod") == "label.env:prod"
    assert format_version_filter("18.2.1") == "version:18.2.1"


def test_key_with_a_colon_has_no_filter() -> None:
    """The first colon ends the key."""
    assert format_label_filter("a:b", "c") == ""
