from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from fleet.models.alerting import AgentSet, Channel, Route
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from tests.dashboards.alerts.api.conftest import get, post

pytestmark = pytest.mark.django_db


@pytest.fixture
def channels() -> tuple[int, int]:
    """The numbers of two channels: ops and pager. The root route notifies ops."""
    rows = [
        Channel.objects.create(name=name, kind="email", config={"to": "a@example.com"})
        for name in ("ops", "pager")
    ]
    Route.objects.get().channels.add(rows[0])
    return rows[0].pk, rows[1].pk


def _root() -> int:
    return Route.objects.get(parent=None).pk


def test_route_is_created_listed_changed_and_deleted(
    client: Client, config_admin: dict[str, str], channels: tuple[int, int]
) -> None:
    """Below the only root route, with a name from its incidents and its sentence."""
    pager = channels[1]
    body = {"matchers": "kind=proxy", "channels": [pager], "includes_parent_channels": True}
    response = post(client, "routes", body, config_admin)
    assert response.status_code == 201, response.content
    route = response.json()
    assert (route["parent"], route["depth"], route["min_severity"]) == (_root(), 1, "critical")
    assert route["name"] == "Critical incidents caused by a proxy"
    assert route["sentence"] == "Critical incidents caused by a proxy notify pager and ops immediately."
    route_items = get(client, "routes", config_admin).json()["routes"]
    assert [entry["number"] for entry in route_items] == [_root(), route["number"]]
    assert route_items[1] == route == get(client, f"routes/{route['number']}", config_admin).json()
    path = f"routes/{route['number']}"
    new_route = post(
        client,
        path,
        {
            "channels": [], "escalate_to": [pager], "escalate_after_seconds": 900, "quiet_from": "22:00",
            "quiet_until": "06:00", "quiet_zone": "Europe/Berlin", "continues": True, "version": route["version"],
        },
        config_admin,
    ).json()  # fmt: skip
    assert "pager after 15 min without acknowledgement" in new_route["sentence"]
    assert (new_route["channels"], new_route["quiet_from"], new_route["matchers"]) == (
        [],
        "22:00:00",
        "kind=proxy",
    )
    assert post(client, path, {"name": "x", "version": route["version"]}, config_admin).status_code == 409
    new_route = post(client, path, {"escalate_to": [], "has_quiet_hours": False}, config_admin).json()
    assert (new_route["escalate_after_seconds"], new_route["quiet_from"]) == (None, None)
    child = post(client, "routes", {"name": "child", "parent": route["number"]}, config_admin).json()
    assert child["depth"] == 2
    assert post(client, f"{path}/delete", {}, config_admin).json() == {
        "number": route["number"], "name": route["name"], "deleted_child_routes": ["child"],
    }  # fmt: skip
    assert Route.objects.count() == 1
    assert set(AuditEntry.objects.filter(outcome="succeeded").values_list("action", flat=True)) == {
        "route.create", "route.update", "route.delete",
    }  # fmt: skip


def test_route_is_moved_with_its_child_routes(client: Client, config_admin: dict[str, str]) -> None:
    """But not below itself."""
    parent = post(client, "routes", {"name": "a"}, config_admin).json()["number"]
    child = post(client, "routes", {"name": "b", "parent": parent}, config_admin).json()["number"]
    refusal = post(client, f"routes/{parent}", {"parent": child}, config_admin)
    assert refusal.status_code == 400
    assert "cannot be its own parent" in refusal.json()["problems"]["parent"]
    moved_route = post(client, f"routes/{parent}", {"is_root": True, "position": 3}, config_admin).json()
    assert (moved_route["parent"], moved_route["position"], moved_route["depth"]) == (None, 3, 0)
    route_items = get(client, "routes", config_admin).json()["routes"]
    assert [entry["name"] for entry in route_items] == ["Everything", "a", "b"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"matchers": "colour=red"}, "matchers"),
        ({"matchers": "kind=proxy\0"}, "matchers"),
        ({"escalate_after_seconds": 900}, "escalate_to"),
        ({"escalate_to": ["ops"]}, "escalate_after"),
        ({"channels": ["ops"], "escalate_to": ["ops"], "escalate_after_seconds": 900}, "escalate_to"),
        ({"quiet_from": "22:00"}, "quiet_until"),
        ({"quiet_zone": "Mars/Base"}, "quiet_zone"),
        ({"channels": [77]}, "channels"),
        ({"parent": 77}, "parent"),
        ({"parent": 1, "is_root": True}, ""),
        ({"quiet_from": "22:00Z", "quiet_until": "06:00Z"}, ""),
        ({"min_severity": "loud"}, ""),
        ({"escalate_after_seconds": 5}, ""),
        ({"colour": "red"}, ""),
    ],
)
def test_invalid_route_is_refused(
    client: Client, config_admin: dict[str, str], channels: tuple[int, int], wrong: dict[str, Any], field: str
) -> None:
    """With a sentence for the field, as on the page."""
    body = {
        key: [channels[0] if channel == "ops" else channel for channel in value]
        if isinstance(value, list)
        else value
        for key, value in wrong.items()
    }
    response = post(client, "routes", {"name": "x", **body}, config_admin)
    assert response.status_code == 400
    assert list(response.json().get("problems", {})) == ([field] if field else [])
    assert Route.objects.count() == 1


def test_route_of_the_installation_uses_no_channel_of_a_cluster(
    client: Client, config_admin: dict[str, str]
) -> None:
    """A route of the cluster may use both."""
    own = Channel.objects.create(name="own", kind="email", cluster="default")
    body = {"name": "x", "channels": [own.pk]}
    response = post(client, "routes", body, config_admin)
    assert "only use channels of the whole installation" in response.json()["problems"]["channels"]
    assert post(client, "routes", body | {"scope": "cluster"}, config_admin).json()["cluster"] == "default"


def test_trial_says_whom_an_incident_notifies(
    client: Client, config_admin: dict[str, str], channels: tuple[int, int]
) -> None:
    """As the page does; nothing is sent."""
    body = {"channels": [channels[0]], "escalate_to": [channels[1]], "escalate_after_seconds": 900}
    post(client, f"routes/{_root()}", body, config_admin)
    trial = get(client, "routes/try?cause=backend&severity=critical", config_admin).json()
    assert trial["subject"] == "A critical incident caused by the auth backend"
    assert trial["notifications"] == [
        {"channel": "ops", "after_seconds": 0, "time_text": "immediately"},
        {
            "channel": "pager",
            "after_seconds": 900,
            "time_text": "after 15 min, unless somebody acknowledges the incident",
        },
    ]
    assert trial["paths"] == ["Everything"]
    AgentSet.objects.create(cluster=ensure_default_cluster(), pattern="a-*", name="50% lab")
    for query, field, sentence_start in (
        ("cause=moon", "cause", "“moon” is not one of the choices: backend, agents, fleet, cluster, console"),
        ("rule=x", "rule", "“x” is not one of the choices: "),
        ("agent_set=x", "agent_set", "“x” is not one of the choices: 50% lab."),
        ("severity=info", "severity", "Use critical or warning."),
        ("severity=banana", "severity", "Use critical or warning."),
    ):
        response = get(client, f"routes/try?{query}", config_admin)
        assert (response.status_code, list(response.json()["problems"])) == (400, [field])
        assert response.json()["problems"][field].startswith(sentence_start)
    assert "Agents stranded" in get(client, "routes/try?rule=x", config_admin).json()["problems"]["rule"]


def test_unknown_route_is_not_found(client: Client, config_admin: dict[str, str]) -> None:
    """Whatever is asked of it."""
    for path in ("routes/77", "routes/77/delete"):
        assert post(client, path, {}, config_admin).status_code == 404


def test_trial_takes_the_name_of_an_instance(client: Client, config_admin: dict[str, str]) -> None:
    """If only one has it."""
    trial = get(client, "routes/try?cause=proxy-2", config_admin).json()
    assert trial["subject"] == "A critical incident caused by proxy-2"
    problems = get(client, "routes/try?cause=proxy-", config_admin).json()["problems"]
    assert list(problems) == ["cause"]


def test_trial_of_a_rule_of_severity_info_notifies_nobody(
    client: Client, config_admin: dict[str, str], channels: tuple[int, int]
) -> None:
    """Its incidents are sent in digests only, whatever the routes say."""
    post(client, f"routes/{_root()}", {"channels": [channels[0]], "min_severity": "info"}, config_admin)
    trial = get(client, "routes/try?cause=fleet&rule=Excess+tunnels", config_admin).json()
    assert (trial["notifications"], trial["note"]) == (
        [],
        "Incidents of severity info are sent in digests only.",
    )
    assert get(client, "routes/try?cause=fleet", config_admin).json()["note"] == ""


def test_trial_says_that_the_escalation_notifies_a_channel_again(
    client: Client, config_admin: dict[str, str], channels: tuple[int, int]
) -> None:
    body = {"channels": [channels[0]], "escalate_to": list(channels), "escalate_after_seconds": 900}
    post(client, f"routes/{_root()}", body, config_admin)
    steps = get(client, "routes/try?cause=backend", config_admin).json()["notifications"]
    assert [(step["channel"], step["time_text"].partition(",")[0]) for step in steps] == [
        ("ops", "immediately"),
        ("ops", "again after 15 min"),
        ("pager", "after 15 min"),
    ]
