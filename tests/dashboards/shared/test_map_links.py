from __future__ import annotations

import pytest

from dashboards.shared.map_links import cause_query_of, map_url_of
from fleet.vocabulary.incidents import Cause, CauseKind


def test_url_has_the_moment_or_the_filter() -> None:
    """In the cluster of the prefix; neither: the whole map, live."""
    assert map_url_of("") == "/map/"
    assert map_url_of("/c/eu", at=1_800_000_000.0) == "/c/eu/map/?at=2027-01-15T08:00:00.000Z"
    assert map_url_of("", query="cause:proxy-1") == "/map/?q=cause:proxy-1"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause(CauseKind.PROXY, "id", "proxy-1"), "cause:proxy-1"),
        (Cause(CauseKind.AUTH, "id", "auth 1"), "'cause:auth 1'"),
        (Cause(CauseKind.BACKEND, "default", "auth backend of cluster default"), "cause:backend"),
        (Cause(CauseKind.FLEET, "rate", "agents lost within one minute"), ""),
    ],
)
def test_query_selects_the_agents_of_a_cause(cause: Cause, expected: str) -> None:
    """Where an agent query selects them; a name with a space is quoted."""
    assert cause_query_of(cause) == expected
