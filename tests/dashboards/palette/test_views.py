"""What the palette finds, over a real record, by the rights of the user."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models.changes import Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.drains import Drain
from fleet.models.incidents import Incident
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.changes import ActorKind, ChangeKind
from fleet.vocabulary.incidents import IncidentState, Severity
from tests.dashboards.conftest import MakeUser
from tests.dashboards.instances.edge_scene import name_edge_instances, store_edge_instances
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

Groups = dict[str, dict[str, Any]]


def find_groups(client: Client, user: User, query: str = "", prefix: str = "") -> Groups:
    """Return the groups of an answer by kind, in its order."""
    client.force_login(user)
    answer = client.get(f"{prefix}/palette.json", {"q": query})
    assert answer.status_code == 200, answer.content
    return {group["kind"]: group for group in answer.json()["groups"]}


def labels_of(groups: Groups, kind: str) -> list[str]:
    """Return the labels of a group; empty if there is none."""
    return [entry["label"] for entry in groups.get(kind, {"entries": []})["entries"]]


def make_incident(cluster: str, summary: str, state: IncidentState) -> Incident:
    """Create an incident that proxy-1 causes."""
    return Incident.objects.create(
        cluster_id=cluster,
        key=f"proxy/{summary[:20]}",
        cause_kind="proxy",
        cause_id="p",
        cause_name="proxy-1",
        generation=1,
        state=state.value,
        severity=int(Severity.CRITICAL),
        opened_at=1_700_000_000.0,
        summary=summary,
    )


def test_agents_and_instances(client: Client, person: MakeUser, record: Writer) -> None:
    """By name, with state, count and address."""
    viewer = person("viewer")
    agents = find_groups(client, viewer, "agent-3")["agent"]
    assert agents["count"] == 1
    assert agents["entries"][0]["url"] == "/agents/agent-3-id/"
    assert agents["entries"][0]["state"] == "stranded"
    groups = find_groups(client, viewer, "PROXY-1")
    assert next(iter(groups)) == "instance"
    assert groups["instance"]["entries"][0]["url"].startswith("/instances/")
    assert find_groups(client, viewer, "agent")["agent"]["all_url"] == ""


def test_more_matches_than_a_group_shows(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """The count is that of all, with a link to the list."""
    fake_reader.states = fake_reader.states * 5
    agents = find_groups(client, person("viewer"), "agent")["agent"]
    assert (len(agents["entries"]), agents["count"]) == (6, 20)
    assert agents["all_url"] == "/agents/?q=agent"


def test_start_shows_pages_and_actions_by_rights(client: Client, person: MakeUser, record: Writer) -> None:
    """A viewer sees neither the audit log nor actions; everybody chooses a theme."""
    viewer_groups = find_groups(client, person("viewer"))
    assert labels_of(viewer_groups, "action") == ["Theme: light", "Theme: dark", "Theme: system"]
    assert "Map" in labels_of(viewer_groups, "page")
    assert "Audit log" not in labels_of(viewer_groups, "page")
    operator_groups = find_groups(client, person("operator"))
    assert "New silence…" in labels_of(operator_groups, "action")
    assert "Add cluster…" not in labels_of(operator_groups, "action")
    assert "Audit log" in labels_of(operator_groups, "page")
    assert "Add cluster…" in labels_of(find_groups(client, person("admin")), "action")


def test_taking_instances_out_of_service(client: Client, person: MakeUser, record: Writer) -> None:
    """Operators find it by the name of the instance; a drained instance is brought back."""
    operator = person("operator")
    proxy = find_groups(client, operator, "out of service proxy-1")["action"]["entries"][0]
    assert proxy["label"] == "Take out of service proxy-1…"
    assert proxy["is_dialog"] is True
    proxy_id = proxy["url"].split("/")[2]
    Drain.objects.create(cluster=ensure_default_cluster(), instance=proxy_id, name="proxy-1", is_drained=True)
    assert labels_of(find_groups(client, operator, "proxy-1"), "action") == ["Bring back proxy-1…"]
    assert labels_of(find_groups(client, person("viewer"), "proxy-1"), "action") == []


def test_incidents_and_changes(client: Client, person: MakeUser, record: Writer) -> None:
    """By number, cause and title; open incidents first; only those of the cluster."""
    cluster, other_cluster = ensure_default_cluster(), Cluster.objects.create(id="other", name="Other")
    resolved_incident = make_incident(cluster.pk, "2 agents stranded", IncidentState.RESOLVED)
    firing = make_incident(cluster.pk, "3 agents stranded", IncidentState.FIRING)
    other_incident = make_incident(other_cluster.pk, "9 agents stranded", IncidentState.FIRING)
    change = Change.objects.create(
        cluster=cluster,
        kind=ChangeKind.RETIRE.value,
        title="Retire <b>agent-9</b>",
        actor_name="a",
        actor_kind=ActorKind.PERSON.value,
    )
    viewer = person("viewer")
    urls = [entry["url"] for entry in find_groups(client, viewer, "agents stranded")["incident"]["entries"]]
    assert urls == [f"/incidents/{firing.pk}/", f"/incidents/{resolved_incident.pk}/"]
    assert labels_of(find_groups(client, viewer, f"#{firing.pk}"), "incident")[0].startswith(
        f"Incident {firing.pk}:"
    )
    urls = [
        entry["url"]
        for entry in find_groups(client, viewer, f"incident {other_incident.pk}")["incident"]["entries"]
    ]
    assert f"/incidents/{other_incident.pk}/" not in urls
    assert labels_of(find_groups(client, viewer, "agent-9"), "change") == [
        f"Change {change.pk}: Retire <b>agent-9</b>"
    ]


def test_clusters_by_limits(
    client: Client, person: MakeUser, make_limited_user: MakeUser, record: Writer
) -> None:
    """A user who is limited to one cluster finds no other, and gets no answer about it."""
    limited_user = make_limited_user("viewer")
    viewer = person("viewer")
    assert labels_of(find_groups(client, viewer, "other"), "cluster") == ["Switch to cluster Other"]
    assert labels_of(find_groups(client, viewer, "default", "/c/other"), "cluster") == [
        "Switch to cluster default"
    ]
    assert "cluster" not in find_groups(client, limited_user, "cluster", "/c/other")
    client.force_login(limited_user)
    assert client.get("/palette.json?q=agent").status_code == 403


def test_record_that_cannot_be_read(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """Pages are still found, and the answer says what is missing."""
    fake_reader.down = True
    client.force_login(person("viewer"))
    content = client.get("/palette.json?q=map").json()
    assert content["notice"].startswith("Agents and instances cannot be searched: ")
    assert content["groups"][0]["entries"][0]["label"] == "Map"


def test_gateways_and_tunnel_servers(client: Client, person: MakeUser, record: Writer) -> None:
    """By name, kind or address, also while no auth or proxy was polled."""
    store_edge_instances(record)
    viewer = person("viewer")
    group = find_groups(client, viewer, "gateway gw")["instance"]
    assert [(entry["label"], entry["url"]) for entry in group["entries"]] == [
        ("gw-1", "/edge-instances/gw-1/")
    ]
    assert group["entries"][0]["note"].startswith("gateway · ")
    assert labels_of(find_groups(client, viewer, "10.0.0.7"), "instance") == ["new"]
    Cluster.objects.create(id="eu", name="EU")
    name_edge_instances("eu")
    assert "tunnel-1" in labels_of(find_groups(client, viewer, "tunnel", "/c/eu"), "instance")


def test_hostile_queries(client: Client, person: MakeUser, record: Writer) -> None:
    """Any text is an answer without an error."""
    viewer = person("viewer")
    for query in ("(", "[a", "\\", "<b>", "\u202eabc", "x" * 5_000, "%00", "99999999999999999999"):
        find_groups(client, viewer, query)
