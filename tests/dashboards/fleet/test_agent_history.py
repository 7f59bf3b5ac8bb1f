from __future__ import annotations

import pytest

from dashboards.fleet.agent_history import AgentChangeRow, read_agent_changes
from fleet.models.inventory import Instance
from fleet.monitoring.history.retention import delete_old_history
from fleet.vocabulary.verdicts import Reason, Recovery, State
from tests.fakes.history_rows import create_agent_change

pytestmark = pytest.mark.django_db

DAY = 86400.0
NOW = 1_700_006_400.0 + 5 * DAY


def _move(ago: float, proxies: list[str] | None, auth: str | None = "auth-1-id") -> None:
    create_agent_change(
        "a", NOW - ago, State.HEALTHY, State.HEALTHY, reason=Reason.NONE, auth=auth, proxies=proxies
    )


def _read(limit: int = 50, before: float | None = None) -> list[AgentChangeRow]:
    rows = read_agent_changes("default", "a", NOW, limit, before)
    assert rows is not None
    return rows


def test_change_of_state_has_its_reason_and_recovery() -> None:
    """By name; a change without a cause has none."""
    create_agent_change(
        "a", NOW - 60, State.HEALTHY, State.STRANDED, reason=Reason.PROXY_UNHEALTHY, recovery=Recovery.BY_ITSELF,
        cause="proxy-1-id", recovers_at=NOW, auth="auth-1-id", proxies=[],
    )  # fmt: skip
    create_agent_change("a", NOW - 30, State.STRANDED, State.HEALTHY, reason=Reason.NONE)
    newest, first = _read()
    assert (first.has_new_state, first.reason, first.reason_label) == (
        True,
        "proxy-unhealthy",
        "proxy failing",
    )
    assert (first.cause, first.auth, first.proxies, first.age_ms) == ("proxy-1", "auth-1", (), 60_000)
    assert first.recovers_at is not None
    assert first.recovers_at.timestamp() == NOW
    assert (newest.reason, newest.cause, newest.auth, newest.proxies) == ("", "", None, None)


def test_moves_are_described() -> None:
    """What is new compared to the change before, with names in natural order; the first change has no move."""
    Instance.objects.all().delete()
    for ago, proxies, auth in (
        (90, ["proxy-10-id"], "auth-1-id"),
        (80, ["proxy-2-id"], "auth-1-id"),
        (70, ["proxy-2-id", "proxy-10-id", "proxy-3-id"], "auth-1-id"),
        (60, ["proxy-3-id"], "auth-2-id"),
    ):
        _move(ago, proxies, auth)
    assert [change.moves for change in _read()] == [
        ("tunnels to proxy-2 and proxy-10 ended", "moved from auth-1 to auth-2"),
        ("opened tunnels to proxy-3 and proxy-10",),
        ("moved from proxy-10 to proxy-2",),
        (),
    ]


def test_move_is_described_across_the_limit() -> None:
    """The change before the last one of the list is read too; changes before a time are the next part of the list."""
    _move(90, ["proxy-1-id"])
    _move(80, ["proxy-2-id"])
    (change,) = _read(limit=1)
    assert change.moves == ("moved from proxy-1 to proxy-2",)
    assert [change.age_ms for change in _read(before=NOW - 80)] == [90_000]


def test_change_without_places_says_nothing_of_moves() -> None:
    """Earlier versions recorded none."""
    _move(90, ["proxy-1-id"])
    _move(80, None, None)
    _move(70, ["proxy-2-id"], "auth-2-id")
    assert [change.moves for change in _read()] == [(), (), ()]


def test_backend_and_deleted_instances_have_names() -> None:
    """A cause of all auths, and an instance without a row."""
    create_agent_change("a", NOW - 60, State.HEALTHY, State.STRANDED, cause="backend/default", proxies=["p1"])
    Instance.objects.all().delete()
    (change,) = _read()
    assert (change.cause, change.proxies) == ("backend/default", ("an unknown instance",))


def test_first_and_last_change_outlive_the_history() -> None:
    """After the others, each once."""
    for ago, old, new in (
        (4 * DAY, State.UNKNOWN, State.HEALTHY),
        (4 * DAY - 1, State.HEALTHY, State.OFFLINE),
        (4 * DAY - 2, State.OFFLINE, State.HEALTHY),
        (60, State.HEALTHY, State.STRANDED),
    ):
        create_agent_change("a", NOW - ago, old, new, proxies=["proxy-1-id"])
    delete_old_history(NOW - DAY)
    assert [change.new for change in _read()] == [State.STRANDED, State.HEALTHY, State.HEALTHY]
    assert [change.proxies for change in _read()] == [("proxy-1",)] * 3
    assert len(_read(limit=2)) == 2
    assert [change.age_ms for change in _read(before=NOW - 4 * DAY + 2)] == [4 * DAY * 1000]


def test_unknown_agent_has_no_history() -> None:
    """And no error."""
    assert read_agent_changes("default", "nobody", NOW, 9) is None
