from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.alerts.wording.failure_clauses import as_sentence, clause_of_backend, clause_of_instance
from fleet.vocabulary.instances import PollAttempt
from tests.fakes.small_fleet import AUTH_1, DEREGISTERED, EXPIRED, NOW, OK, PROXY_1, SILENT, UNHEALTHY
from tests.fleet.alerts.headlines.test_causes import table_of

REFUSING = {
    "attempts": (
        PollAttempt(NOW - 0.2, False, "connection refused"),
        PollAttempt(NOW - 1.2, False, "Connection refused"),
    ),
    "sick_since": NOW - 2,
}
CLOSING = {
    "attempts": tuple(PollAttempt(at, False, "UNAVAILABLE: Socket closed") for at in (NOW - 0.2, NOW - 1.2)),
    "sick_since": NOW - 2,
}
NOT_SERVING = {**UNHEALTHY, "readyz": 200}
RECOVERING = {**UNHEALTHY, "readyz": 400}


@pytest.mark.parametrize(
    ("changes", "auth_clause", "proxy_clause"),
    [
        (SILENT, "auth-1 is not responding", "proxy-1 is not responding"),
        (CLOSING, "auth-1 is not responding", "proxy-1 is not responding"),
        (REFUSING, "auth-1 refuses connections", "proxy-1 refuses connections"),
        (UNHEALTHY, "auth-1 lost its backend", "proxy-1 cannot send heartbeats"),
        (NOT_SERVING, "auth-1 is unhealthy", "proxy-1 is unhealthy"),
        (RECOVERING, "auth-1 is recovering", "proxy-1 is recovering"),
        (EXPIRED, "auth-1 has expired", "proxy-1 has expired"),
        ({**EXPIRED, "readyz": 503}, "auth-1 lost its backend", "proxy-1 cannot send heartbeats"),
        (DEREGISTERED, "auth-1 was deregistered", "proxy-1 was deregistered"),
    ],
)
def test_clause_says_what_polls_tell(changes: Mapping[str, Any], auth_clause: str, proxy_clause: str) -> None:
    """An auth that cannot write its heartbeat lost its backend; a proxy may have lost its auth."""
    views = table_of(auth_1=changes, proxy_1=changes).instances
    clauses = [clause_of_instance(views[index]) for index in (AUTH_1, PROXY_1)]
    assert [clause.present for clause in clauses] == [auth_clause, proxy_clause]


def test_instance_that_is_ok_was_failing() -> None:
    """Its agents may still recover from that."""
    assert clause_of_instance(table_of().instances[PROXY_1]).present == "proxy-1 was failing"


def test_clause_has_its_start() -> None:
    """In the tense that a start needs; without a known start in the present tense."""
    clause = clause_of_instance(table_of(proxy_1=SILENT).instances[PROXY_1])
    assert clause.describe(NOW, NOW) == "proxy-1 has not responded since 13:46 UTC"
    assert clause.describe(None, NOW) == "proxy-1 is not responding"


@pytest.mark.parametrize(
    ("auth_1", "auth_2", "clause"),
    [
        (UNHEALTHY, UNHEALTHY, "both auths lost their backend"),
        (SILENT, SILENT, "both auths are not responding"),
        (SILENT, UNHEALTHY, "both auths failed at the same time"),
    ],
)
def test_clause_of_the_backend_says_no_more_than_is_known(
    auth_1: Mapping[str, Any], auth_2: Mapping[str, Any], clause: str
) -> None:
    """Auths that do not respond may have failed by themselves."""
    assert clause_of_backend(table_of(auth_1=auth_1, auth_2=auth_2, proxy_1=OK)).present == clause


def test_name_at_the_start_of_a_sentence_keeps_its_letters() -> None:
    assert as_sentence("both auths lost their backend") == "Both auths lost their backend."
    assert as_sentence("proxy-1 was not responding") == "proxy-1 was not responding."
