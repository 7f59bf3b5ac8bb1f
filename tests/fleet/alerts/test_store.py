from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from fleet.alerts import store
from fleet.alerts.defaults import ensure_alert_defaults
from fleet.alerts.matchers import Matcher
from fleet.alerts.rules import DEFAULT_RULES
from fleet.models import Cluster
from fleet.models.alerting import AgentSet, AlertRule, Channel, Delivery, Route
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import IncidentState, NotificationKind, Severity
from tests.fakes.alerting import PROXY, AlertSimulation, healthy_facts, stranded_facts

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cluster() -> Cluster:
    """The cluster of the rows."""
    return Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})[0]


def test_saved_incident_is_loaded_unchanged() -> None:
    """Every field, through the database."""
    simulation = AlertSimulation()
    simulation.run(90, stranded_facts(207, critical=2))
    incident = replace(simulation.incidents[PROXY.key], began_at=simulation.started_at - 5.0)
    rows: dict[str, Incident] = {}
    store.save_outcome(rows, [incident], [], [])
    assert store.incident_of(store.load_incident_rows("default")[PROXY.key]) == incident


def test_every_plain_field_of_an_incident_is_saved() -> None:
    """Also fields that are added later."""
    simulation = AlertSimulation()
    simulation.run(90, stranded_facts(207))
    samples = {
        "float | None": 7.5,
        "int": 7,
        "bool": True,
        "str": "text",
        "Severity | None": Severity.CRITICAL,
    }
    plain: dict[str, Any] = {
        field.name: samples[str(field.type)]
        for field in fields(incident_values.Incident)
        if field.type in samples and field.name != "cluster"
    }
    incident = replace(simulation.incidents[PROXY.key], **plain)
    store.save_outcome({}, [incident], [], [])
    assert len(plain) >= 20
    assert store.incident_of(Incident.objects.get()) == incident


def test_evaluation_does_not_overwrite_an_acknowledgement() -> None:
    """The incident is acknowledged between reading and writing."""
    simulation = AlertSimulation()
    simulation.run(90, stranded_facts(207))
    rows: dict[str, Incident] = {}
    store.save_outcome(rows, simulation.incidents.values(), [], [])
    Incident.objects.update(acknowledged_at=5.0, acknowledged_by="ada")
    simulation.run(5, stranded_facts(300))
    store.save_outcome(rows, simulation.incidents.values(), [], [])
    row = Incident.objects.get(key=PROXY.key)
    assert (row.affected_count, row.acknowledged_at, row.acknowledged_by) == (300, 5.0, "ada")


def test_previous_incident_is_read_and_resolved_incident_is_not_open() -> None:
    """Only causes that fired have a previous incident."""
    simulation = AlertSimulation()
    simulation.run(90, stranded_facts(207))
    rows: dict[str, Incident] = {}
    store.save_outcome(rows, simulation.incidents.values(), [], [])
    assert store.read_previous_incident("default", PROXY.key) is not None
    assert store.read_previous_incident("default", "proxy/other") is None
    simulation.run(400, healthy_facts(), step=5)
    (resolved_incident,) = [
        incident
        for incident in simulation.fired_incidents.values()
        if incident.state is IncidentState.RESOLVED
    ]
    store.save_outcome(rows, [resolved_incident], [], [])
    assert PROXY.key not in store.load_incident_rows("default")


def test_routes_are_read_as_a_tree() -> None:
    """Disabled channels are left out."""
    on, off = (
        Channel.objects.create(name=name, kind="webhook", enabled=name == "on") for name in ("on", "off")
    )
    root = Route.objects.get(name="Everything")
    below = Route.objects.create(name="proxies", parent=root, matchers="kind=proxy", min_severity=2)
    below.channels.set([on, off])
    (tree,) = store.read_routes("default")
    (child,) = tree.children
    assert (child.channel_ids, child.min_severity, child.matchers) == (
        (on.pk,),
        Severity.CRITICAL,
        (Matcher("kind", "proxy"),),
    )


def test_enqueue_creates_one_delivery_per_key_and_channel() -> None:
    """A repeated evaluation after a crash creates no second delivery."""
    channel = Channel.objects.create(name="ops", kind="webhook", send_resolved=False)
    row = Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", generation=1, state="firing",
        severity=2, opened_at=1.0,
    )  # fmt: skip
    for _ in range(2):
        store.enqueue_deliveries(
            row, NotificationKind.FIRING, "k/1", {"kind": "firing"}, {channel.pk: (5.0, "quiet hours")}, 1.0
        )
    assert Delivery.objects.count() == 1
    assert store.sends_resolved_by_channel(row) == {channel.pk: False}
    assert store.find_incidents_with_resolved_receivers("default", [row]) == frozenset()
    Channel.objects.update(send_resolved=True)
    assert store.find_incidents_with_resolved_receivers("default", [row]) == {row.pk}
    Channel.objects.update(cluster="other")
    assert store.find_incidents_with_resolved_receivers("default", [row]) == frozenset()
    assert not IncidentEvent.objects.exists()


def test_agent_sets_are_patterns_by_name() -> None:
    """Patterns are sorted."""
    for pattern in ("web-*", "db-1"):
        AgentSet.objects.create(cluster_id="default", pattern=pattern, name="critical")
    assert store.read_agent_set_patterns("default") == {"critical": ("db-1", "web-*")}


def test_version_changes_are_recorded() -> None:
    """The first version and each change."""
    for at, version in ((1.0, "17.1"), (2.0, "17.1"), (3.0, "17.2")):
        store.record_version_changes("default", {"p": ("proxy-1", version)}, at)
    assert list(VersionChange.objects.values_list("at", "old", "new")) == [
        (1.0, "", "17.1"),
        (3.0, "17.1", "17.2"),
    ]


def test_rule_of_a_cluster_overrides_the_installations() -> None:
    """By name and only in that cluster; a disabled override disables the rule there."""
    AlertRule.objects.filter(name="Agents stranded").update(min_count=5)
    columns = {"kind": "stranded", "severity": 1, "min_count": 9}
    AlertRule.objects.create(name="Agents stranded", cluster="eu", **columns)
    AlertRule.objects.create(name="Only in the EU", cluster="eu", **columns)
    counts = {
        cluster: {rule.name: rule.min_count for rule in store.read_rules(cluster) if rule.enabled}
        for cluster in ("default", "eu")
    }
    assert counts["default"]["Agents stranded"] == 5
    assert (counts["eu"]["Agents stranded"], counts["eu"]["Only in the EU"]) == (9, 9)
    assert len(counts["default"]) == len(DEFAULT_RULES)
    AlertRule.objects.filter(name="Agents stranded", cluster="eu").update(enabled=False)
    assert "Agents stranded" not in {rule.name for rule in store.read_rules("eu") if rule.enabled}
    ensure_alert_defaults()
    assert AlertRule.objects.filter(name="Agents stranded").count() == 2


def test_routes_exclude_other_clusters() -> None:
    """Neither routes nor channels of another cluster are read."""
    root = Route.objects.get(name="Everything")
    channels = {
        owner: Channel.objects.create(name="ops", kind="webhook", cluster=owner)
        for owner in ("", "eu", "asia")
    }
    root.channels.set(channels.values())
    root.escalate_to.set(channels.values())
    for cluster in ("eu", "asia"):
        Route.objects.create(name=cluster, cluster=cluster, parent=root).channels.add(channels[cluster])
    (tree,) = store.read_routes("eu")
    assert set(tree.channel_ids) == set(tree.escalate_to) == {channels[""].pk, channels["eu"].pk}
    assert [child.name for child in tree.children] == ["eu"]
    (default_tree,) = store.read_routes("default")
    assert (default_tree.channel_ids, default_tree.children) == ((channels[""].pk,), ())


def test_resolved_notification_is_not_sent_to_another_cluster() -> None:
    """Even if an earlier notification was sent there."""
    row = Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", generation=1, state="firing",
        severity=2, opened_at=1.0,
    )  # fmt: skip
    for owner in ("", "eu"):
        channel = Channel.objects.create(name="ops", kind="webhook", cluster=owner)
        store.enqueue_deliveries(row, NotificationKind.FIRING, "k/1", {}, {channel.pk: (1.0, "")}, 1.0)
    own_channel = Channel.objects.get(cluster="")
    assert store.plan_resolved_receivers(row, {own_channel.pk: (9.0, "quiet hours")}, 5.0) == {
        own_channel.pk: (9.0, "quiet hours")
    }
    assert set(Delivery.objects.values_list("cluster", flat=True)) == {"default"}


def test_update_goes_to_channels_of_its_kinds_that_have_a_notification() -> None:
    """Not to disabled channels, to those of another cluster, or where all notifications of the incident failed."""
    row = Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", generation=1, state="firing",
        severity=2, opened_at=1.0,
    )  # fmt: skip
    for name, columns in (
        ("ops", {}), ("quiet", {}), ("off", {"enabled": False}), ("eu", {"cluster": "eu"}), ("failed", {}),
        ("hook", {"kind": "webhook"}),
    ):  # fmt: skip
        channel = Channel.objects.create(**{"name": name, "kind": "slack"} | columns)
        for number in (1, 2):
            store.enqueue_deliveries(
                row, NotificationKind.FIRING, f"k/{number}", {"number": number}, {channel.pk: (1.0, "")}, 1.0
            )
    Channel.objects.create(name="new", kind="slack")
    Delivery.objects.filter(channel__name="failed").update(failed_at=2.0)
    Delivery.objects.filter(channel__name="ops").update(sent_at=2.0)
    ops, quiet = Channel.objects.get(name="ops"), Channel.objects.get(name="quiet")
    assert store.plan_update_receivers(row, {"slack"}, {quiet.pk: (9.0, "quiet hours")}, 5.0) == {
        ops.pk: (5.0, ""),
        quiet.pk: (9.0, "quiet hours"),
    }
    assert store.read_newest_payload(row) == {"number": 2}
    row.deliveries.all().delete()
    assert store.read_newest_payload(row) is None


def test_route_without_an_escalation_has_that_of_its_parent() -> None:
    """Otherwise the incidents of a new route below would never escalate."""
    chief, boss = (Channel.objects.create(name=name, kind="webhook") for name in ("chief", "boss"))
    root = Route.objects.get()
    root.escalate_after = 900.0
    root.save()
    root.escalate_to.add(chief)
    Route.objects.create(name="inherits", parent=root)
    own = Route.objects.create(name="own", parent=root, escalate_after=60.0)
    own.escalate_to.add(boss)
    (tree,) = store.read_routes("default")
    assert [(route.escalate_after, route.escalate_to) for route in tree.children] == [
        (900.0, (chief.pk,)),
        (60.0, (boss.pk,)),
    ]
