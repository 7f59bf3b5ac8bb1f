from __future__ import annotations

import pytest

from dashboards.fleet.agent_history import read_agent_changes
from dashboards.fleet.api.history import agent_history_response_of
from fleet.vocabulary.verdicts import Recovery, State
from tests.fakes.history_rows import create_agent_change

pytestmark = pytest.mark.django_db

NOW = 1_700_006_400.0


def test_response_has_moves_and_the_next_page() -> None:
    """Names, slugs and null for what was not recorded; the last page has no next one."""
    create_agent_change("a", NOW - 90, State.HEALTHY, State.HEALTHY, auth="auth-1-id", proxies=["proxy-1-id"])
    create_agent_change(
        "a", NOW - 80, State.HEALTHY, State.AT_RISK, recovery=Recovery.BY_ITSELF, recovers_at=NOW, cause="proxy-2-id",
        auth="auth-1-id", proxies=["proxy-2-id"],
    )  # fmt: skip
    create_agent_change("a", NOW - 70, State.AT_RISK, State.HEALTHY)
    rows = read_agent_changes("default", "a", NOW, 3) or []
    newest, move, first = agent_history_response_of("default", "a", rows, 4).model_dump(mode="json")[
        "changes"
    ]
    assert move == {
        "at": "2023-11-14T23:58:40Z",
        "old": "healthy",
        "new": "at_risk",
        "reason": "no-tunnel",
        "cause": "proxy-2",
        "recovery": "by-itself",
        "recovers_at": "2023-11-15T00:00:00Z",
        "auth": "auth-1",
        "proxies": ["proxy-2"],
        "moves": ["moved from proxy-1 to proxy-2"],
    }
    assert (newest["auth"], newest["proxies"], first["moves"]) == (None, None, [])
    assert agent_history_response_of("default", "a", rows, 4).next is None
    assert agent_history_response_of("default", "a", rows, 3).next == rows[-1].at
