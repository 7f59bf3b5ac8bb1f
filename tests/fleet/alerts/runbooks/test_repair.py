from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.alerts.runbooks.repair import repair_steps_of
from fleet.vocabulary.instances import PollAttempt
from tests.fakes.headline_fleets import table_with
from tests.fakes.small_fleet import AUTH_1, DEREGISTERED, EXPIRED, NOW, PROXY_1, SILENT, UNHEALTHY

REFUSING = {
    **SILENT,
    "attempts": (
        PollAttempt(NOW - 0.2, False, "connection refused"),
        PollAttempt(NOW - 1.2, False, "connection refused"),
    ),
}


@pytest.mark.parametrize(
    ("changes", "first_step"),
    [
        (
            REFUSING,
            "Start proxy-1 again: its host responds, but nothing listens at 127.0.0.1:1. Read its log first.",
        ),
        (
            SILENT,
            (
                "Check the host of proxy-1, the network to 127.0.0.1:1, and whether its process runs. "
                "Start it again if it has ended or hangs."
            ),
        ),
        (UNHEALTHY, "Check auth-1, and the network from proxy-1 to it. proxy-1 itself responds."),
        (
            {**UNHEALTHY, "readyz": 500, "diag_address": "10.0.0.1:80"},
            (
                "Read the log of proxy-1 and http://10.0.0.1:80/readyz. "
                "If it does not recover, drain and restart it."
            ),
        ),
        (EXPIRED, "Read the log of proxy-1. If it does not recover, drain and restart it."),
        (DEREGISTERED, "proxy-1 ended and deregistered itself. Start it again if that was not intended."),
    ],
)
def test_repair_begins_with_what_the_polls_found(changes: Mapping[str, Any], first_step: str) -> None:
    """Then what happens when the instance is back, and when it no longer exists."""
    first, second, last = repair_steps_of(table_with(proxy_1=changes).instances[PROXY_1], NOW, "auth-1")
    assert first == first_step
    assert second == (
        "Refloat notices by itself, in the next round, that proxy-1 is back. Its incident then recovers at once, "
        "and resolves after its quiet time (5 min by default)."
    )
    assert last.startswith(
        "Otherwise there is nothing to do" if changes is DEREGISTERED else "If proxy-1 no longer exists"
    )


def test_repair_of_an_auth_is_about_its_backend() -> None:
    """And an instance that is OK needs none."""
    first, *_ = repair_steps_of(table_with(auth_1=UNHEALTHY).instances[AUTH_1], NOW)
    assert first == "Check the auth backend, and the network from auth-1 to it. auth-1 itself responds."
    assert repair_steps_of(table_with().instances[AUTH_1], NOW) == (
        "auth-1 is not failing: there is nothing to repair.",
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"auth_1": UNHEALTHY},
            "Its agents look for other auths when their connections to it end, or when you reconnect them.",
        ),
        (
            {"proxy_1": {**SILENT, "expires_at": NOW + 5}},
            "Its agents look for other instances when its heartbeat has expired.",
        ),
        (
            {"proxy_1": {**SILENT, "expires_at": NOW - 5}},
            "Its heartbeat has expired, so its agents look for other instances now.",
        ),
    ],
)
def test_removal_says_when_the_agents_leave(changes: Mapping[str, Any], sentence: str) -> None:
    """The end of a heartbeat moves the agents of a proxy, not those of an auth."""
    instance = AUTH_1 if "auth_1" in changes else PROXY_1
    assert sentence in repair_steps_of(table_with(**changes).instances[instance], NOW)[-1]
