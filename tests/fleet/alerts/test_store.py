from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from fleet.alerts import store
from fleet.alerts.matchers import Matcher
from fleet.alerts.rules import DEFAULT_RULES
from fleet.models import Cluster
from fleet.models.alerting import AgentLabel, AlertRule, Channel, Delivery, Route
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import IncidentState, NotificationKind, Severity
from tests.fakes.alerting import PROXY, Watch, sound, stranded

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cluster() -> Cluster:
    """The cluster of the rows."""
    return Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})[0]


def test_incident_comes_back_as_it_was_written() -> None:
    """Every field of the value, through the database."""
    watch = Watch()
    watch.run(90, stranded(207, critical=2))
    value = replace(watch.incidents[PROXY.key], began_at=watch.began - 5.0)
    rows: dict[str, Incident] = {}
    store.save_outcome(rows, [value], [], [])
    assert store.incident_of(store.load_incidents("default")[PROXY.key]) == value


def test_every_plain_field_of_an_incident_is_kept() -> None:
    """Columns come from the fields: one that is added to the value needs no line here."""
    watch = Watch()
    watch.run(90, stranded(207))
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
    value = replace(watch.incidents[PROXY.key], **plain)
    store.save_outcome({}, [value], [], [])
    assert len(plain) >= 20
    assert store.incident_of(Incident.objects.get()) == value


def test_look_never_undoes_an_acknowledgement() -> None:
    """Somebody acknowledges between reading and writing."""
    watch = Watch()
    watch.run(90, stranded(207))
    rows: dict[str, Incident] = {}
    store.save_outcome(rows, watch.incidents.values(), [], [])
    Incident.objects.update(acked_at=5.0, acked_by="ada")
    watch.run(5, stranded(300))
    store.save_outcome(rows, watch.incidents.values(), [], [])
    row = Incident.objects.get(key=PROXY.key)
    assert (row.affected, row.acked_at, row.acked_by) == (300, 5.0, "ada")


def test_dropped_is_deleted_and_past_is_known() -> None:
    """What never fired leaves nothing; the next incident of a cause has the next number."""
    watch = Watch()
    watch.run(90, stranded(207))
    rows: dict[str, Incident] = {}
    store.save_outcome(rows, watch.incidents.values(), [], [])
    assert store.read_previous("default", PROXY.key) is not None
    assert store.read_previous("default", "proxy/other") is None
    watch.run(400, sound(), step=5)
    (ended,) = [one for one in watch.fired.values() if one.state is IncidentState.RESOLVED]
    store.save_outcome(rows, [ended], [], [])
    assert PROXY.key not in store.load_incidents("default")


def test_installation_begins_with_rules_and_a_route() -> None:
    """As migrations leave it, and again without doubling anything."""
    store.ensure_defaults()
    assert set(store.read_rules("default")) == set(DEFAULT_RULES)
    AlertRule.objects.filter(name="Agents stranded").update(enabled=False)
    store.ensure_defaults()
    assert AlertRule.objects.count() == len(DEFAULT_RULES)
    assert not AlertRule.objects.get(name="Agents stranded").enabled
    assert [route.name for route in store.read_routes("default")] == ["Everything"]


def test_routes_are_read_as_a_tree() -> None:
    """With channels that are on."""
    on, off = (
        Channel.objects.create(name=name, kind="webhook", enabled=name == "on") for name in ("on", "off")
    )
    root = Route.objects.get(name="Everything")
    below = Route.objects.create(name="proxies", parent=root, matchers="kind=proxy", least=2)
    below.channels.set([on, off])
    (tree,) = store.read_routes("default")
    (child,) = tree.children
    assert (child.channels, child.min_severity, child.matchers) == (
        (on.pk,),
        Severity.CRITICAL,
        (Matcher("kind", "proxy"),),
    )


def test_enqueue_keeps_one_message_per_key_and_channel() -> None:
    """A look that is repeated after a crash doubles nothing."""
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
    assert store.read_notified_channels(row) == {channel.pk: False}
    assert not IncidentEvent.objects.exists()


def test_labels_are_patterns_by_label() -> None:
    """As alerting reads them."""
    for pattern in ("web-*", "db-1"):
        AgentLabel.objects.create(cluster_id="default", pattern=pattern, label="critical")
    assert store.read_labels("default") == {"critical": ("db-1", "web-*")}


def test_versions_are_kept_when_they_change() -> None:
    """The first sight, a change, and nothing in between."""
    for at, version in ((1.0, "17.1"), (2.0, "17.1"), (3.0, "17.2")):
        store.record_versions("default", {"p": ("proxy-1", version)}, at)
    assert list(VersionChange.objects.values_list("at", "old", "new")) == [
        (1.0, "", "17.1"),
        (3.0, "17.1", "17.2"),
    ]


def test_rule_of_a_cluster_overrides_the_installations() -> None:
    """By name, in that cluster alone; switched off there, nothing holds there."""
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
    store.ensure_defaults()
    assert AlertRule.objects.filter(name="Agents stranded").count() == 2


def test_routes_lead_to_no_other_cluster() -> None:
    """Neither a route of another cluster nor a channel of one, whatever the rows say."""
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
    assert set(tree.channels) == set(tree.escalate_to) == {channels[""].pk, channels["eu"].pk}
    assert [child.name for child in tree.children] == ["eu"]
    (bare,) = store.read_routes("default")
    assert (bare.channels, bare.children) == ((channels[""].pk,), ())


def test_end_goes_to_no_channel_of_another_cluster() -> None:
    """Also when a message about the incident once did."""
    row = Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", generation=1, state="firing",
        severity=2, opened_at=1.0,
    )  # fmt: skip
    for owner in ("", "eu"):
        channel = Channel.objects.create(name="ops", kind="webhook", cluster=owner)
        store.enqueue_deliveries(row, NotificationKind.FIRING, "k/1", {}, {channel.pk: (1.0, "")}, 1.0)
    ours = Channel.objects.get(cluster="")
    assert store.plan_end_receivers(row, {ours.pk: (9.0, "quiet hours")}, 5.0) == {
        ours.pk: (9.0, "quiet hours")
    }
    assert set(Delivery.objects.values_list("cluster", flat=True)) == {"default"}
