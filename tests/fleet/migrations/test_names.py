"""Stored names become those of pages and API: `fleet/migrations/0021_setting_names.py` and the ones after it.

On SQLite here and on PostgreSQL in tests/flow.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time
from typing import Any

import pytest
from django.apps import apps as newest_apps
from django.db import DatabaseError, connection, transaction

from fleet.alerts import notifications
from fleet.alerts.channels import SendRequest, alertmanager, pagerduty
from fleet.alerts.matchers import parse_matchers
from fleet.changes.campaigns import campaigns
from fleet.models.actions import CampaignAgent, RolloutStep
from fleet.models.alerting import AlertRule, Delivery, Silence
from fleet.models.changes import AuditEntry, Change
from fleet.models.incidents import Incident, IncidentEvent
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.campaigns import CampaignAgentState, CampaignCounts, CampaignSettings
from fleet.vocabulary.incidents import TimelineKind
from fleet.vocabulary.rollouts import RolloutSettings, RolloutStepState
from tests.fleet.migrations.rows import Apps, create_row, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

_MOMENT = datetime(2026, 11, 23, 5, 0, tzinfo=UTC)
#: The newest migration of a release with the names of old.
_OLD = "0020_labels"
_CAMPAIGN = {
    "rate": 1, "per_proxy": 2, "canaries": 3, "hold": 4, "jitter": 5, "patience": 6, "max_failed": 7, "max_stranded": 8,
    "window_from": 9, "window_to": 10,
}  # fmt: skip
_ROLLOUT = {"at_once": 1, "drain": 2, "settle": 3, "patience": 40}


def _change(apps: Apps, kind: str, **columns: Any) -> Any:
    cluster, _ = apps.get_model("fleet", "Cluster").objects.get_or_create(id="default")
    required_columns = {"cluster": cluster, "kind": kind, "title": "t", "who": "w", "actor_kind": "person"}
    return create_row(apps, "Change", **required_columns, **columns)


def test_settings_of_changes_keep_their_values(migrate: Callable[[str], Apps]) -> None:
    """Under their new names, beside what else a change stores; and back."""
    apps = migrate(_OLD)
    campaign = {"pace": _CAMPAIGN, "leave": ["p"], "connection": "tunnel", "stopped_by": "alice"}
    stored = {
        _change(apps, kind, parameters=parameters).pk: parameters
        for kind, parameters in (("reconnect", campaign), ("policy", _ROLLOUT), ("networking-config", {"drain": 1}))
    }
    campaign_id, rollout_id, config_id = stored

    migrate(newest_migration())

    change = Change.objects.get(pk=campaign_id)
    assert campaigns.settings_of(change) == CampaignSettings(*range(1, 11))
    assert {name: value for name, value in change.parameters.items() if name != "settings"} == {
        "instances_to_leave": ["p"], "connection": "tunnel", "stopped_by": "alice",
    }  # fmt: skip
    assert RolloutSettings(**Change.objects.get(pk=rollout_id).parameters) == RolloutSettings(1, 2, 3, 40)
    assert Change.objects.get(pk=config_id).parameters == {"drain": 1}

    rows = migrate(_OLD).get_model("fleet", "Change").objects
    assert {row.pk: row.parameters for row in rows.all()} == stored


_AGENT_STATES = ("waiting", "due", "asked", "ok", "failed", "skipped")
_STEP_STATES = ("waiting", "draining", "restarting", "checking", "ok", "failed", "skipped")
_TIMELINE_KINDS = ("firing", "back", "steady", "notice", "let go", "note")
_ACTIONS = (
    *("agent.retire", "agent.unretire", "alert-rule.change", "channel.change", "delivery.again", "instance.restore"),
    *("networking-config.seen", "networking-config.try-closing", "route.change", "token.make", "user.off", "user.on"),
    "window.switch",
)


def _fill_states(apps: Apps) -> None:
    """Write a row for every stored value of old."""
    outcome = {"waiting": 1, "due": 2, "asked": 3, "ok": 4, "failed": 5, "skipped": 6, "ended": "done"}
    campaign = _change(apps, "reconnect", outcome=outcome)
    for position, state in enumerate(_AGENT_STATES):
        create_row(apps, "CampaignAgent", change=campaign, position=position, agent_id=state, name="a", state=state)
    rollout = _change(apps, "policy", outcome={"total": 1, "done": 1})
    for position, state in enumerate(_STEP_STATES):
        create_row(apps, "RolloutStep", change=rollout, position=position, instance_id=state, name="i", state=state)
    incident = create_row(
        apps, "Incident", cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="p",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    for kind in _TIMELINE_KINDS:
        create_row(apps, "IncidentEvent", incident=incident, at=1.0, kind=kind)
    for action in _ACTIONS:
        create_row(apps, "AuditEntry", who="w", actor_kind="person", action=action, outcome="done")
    create_row(apps, "AuditEntry", who="w", actor_kind="person", action="api.confirm", outcome="refused")


def _stored_states(apps: Apps) -> dict[str, list[Any]]:
    columns = {
        "CampaignAgent": "state", "RolloutStep": "state", "IncidentEvent": "kind", "AuditEntry": "action",
        "Change": "outcome",
    }  # fmt: skip
    return {
        name: list(apps.get_model("fleet", name).objects.order_by("pk").values_list(column, flat=True))
        for name, column in columns.items()
    }


def test_states_and_actions_are_those_of_today(migrate: Callable[[str], Apps]) -> None:
    """Each row has a member of today's enumeration; and the way back restores the rows."""
    apps = migrate(_OLD)
    _fill_states(apps)
    stored = _stored_states(apps)

    migrate(newest_migration())

    assert {*CampaignAgent.objects.values_list("state", flat=True)} == {*CampaignAgentState}
    assert {*RolloutStep.objects.values_list("state", flat=True)} == {*RolloutStepState}
    assert {*IncidentEvent.objects.values_list("kind", flat=True)} <= {*TimelineKind}
    entries = AuditEntry.objects.exclude(action="api.confirm")
    assert {*entries.values_list("action", flat=True)} <= {*AuditAction}
    assert {*entries.values_list("outcome", flat=True)} == {AuditOutcome.SUCCEEDED}
    campaign = Change.objects.get(kind="reconnect")
    assert campaigns.counts_of(campaign) == CampaignCounts(1, 1, 1, 1, 1, 1)
    assert campaign.outcome.pop("end_reason") == "done"
    assert CampaignCounts(**campaign.outcome) == CampaignCounts(1, 2, 3, 4, 5, 6)
    assert Change.objects.get(kind="policy").outcome == {"total_count": 1, "finished_count": 1}

    old = migrate(_OLD)

    assert _stored_states(old) == stored
    assert old.get_model("fleet", "AuditEntry").objects.filter(outcome="done").count() == len(_ACTIONS)


def test_audit_log_stays_append_only(migrate: Callable[[str], Apps]) -> None:
    """The triggers are there again, on the way forward and on the way back."""
    _fill_states(migrate(_OLD))
    for name in (newest_migration(), _OLD):
        migrate(name)
        for sql in ("UPDATE fleet_auditentry SET detail = 'x'", "DELETE FROM fleet_auditentry"):
            with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
                connection.cursor().execute(sql)


#: Columns that got another name, each with the values of two rows, by model.
_COLUMNS: dict[str, dict[str, tuple[Any, Any, str]]] = {
    "Agent": {"retired": (True, False, "is_retired"), "home": ("p1", "", "home_proxy")},
    "AlertClock": {"looked_at": (5.0, None, "evaluated_at"), "took_ms": (4.5, 0.0, "duration_ms")},
    "AuditEntry": {"who": ("alice", "bo", "actor_name")},
    "CampaignAgent": {
        "leaves": ("p1", "", "from_instance"),
        "held": (["p1", "p2"], [], "initial_proxies"),
        "via": ("p3", "", "via_proxy"),
        "told": (True, False, "request_sent"),
        "asked_at": (7.0, None, "requested_at"),
    },
    "Change": {"needs_second": (True, False, "review_required"), "who": ("alice", "bo", "actor_name")},
    "Cluster": {"second_approver": (True, False, "review_required")},
    "Delivery": {"waits_for": ("quiet hours", "", "delay_reason")},
    "Drain": {
        "drained": (True, False, "is_drained"),
        "who": ("alice", "bo", "actor_name"),
        "asked_at": (_MOMENT, _MOMENT, "requested_at"),
        "told_at": (_MOMENT, None, "applied_at"),
    },
    "Incident": {
        "acked_at": (9.0, None, "acknowledged_at"),
        "acked_by": ("alice", "", "acknowledged_by"),
        "affected": (3, 0, "affected_count"),
        "peak": (207, 0, "peak_count"),
        "names": (["agent-1"], [], "agent_names"),
        "heals_at": (9.0, None, "recovers_at"),
        "stuck": (True, False, "is_stuck"),
        "sentence": ("207 agents stranded.", "", "summary"),
        "worst_sentence": ("207 agents were stranded.", "", "worst_summary"),
        "worst_stranded": (207, 0, "worst_stranded_count"),
        "flips": ([1.0, 2.0], [], "flap_times"),
        "quiet_since": (9.0, None, "recovering_since"),
        "notified_affected": (207, 0, "notified_affected_count"),
        "notices": (2, 0, "notification_count"),
    },
    "IncidentEvent": {"who": ("alice", "", "actor_name")},
    "MaintenanceWindow": {
        "starts": (time(2, 30), time(3), "start_time"),
        "zone": ("Europe/Berlin", "UTC", "time_zone"),
    },
    "NetworkingRevision": {"who": ("alice", "", "author")},
    "RolloutStep": {"wanted": ({"NAME": "value"}, {}, "desired_values")},
    "Route": {"least": (2, 0, "min_severity"), "goes_on": (True, False, "continue_matching")},
    "Silence": {"warned": (True, False, "expiry_notified")},
}


def _required_columns(apps: Apps, name: str, number: int) -> dict[str, Any]:
    """Return the other columns of a row."""
    cluster, _ = apps.get_model("fleet", "Cluster").objects.get_or_create(id="default")
    person = {"actor_kind": "person", "outcome": "done", "action": "x"}
    if name in ("CampaignAgent", "RolloutStep"):
        change = _change(apps, "policy")
        key = {"agent_id": "a"} if name == "CampaignAgent" else {"instance_id": "i"}
        return {"change": change, "position": number, "name": "n", **key}
    if name == "IncidentEvent":
        return {"incident": apps.get_model("fleet", "Incident").objects.first(), "at": 1.0, "kind": "note"}
    return {
        "Agent": {"cluster": cluster, "agent_id": f"a{number}", "name": "n", "position": number},
        "AlertClock": {"cluster_id": f"c{number}"},
        "AuditEntry": person,
        "Change": {"cluster": cluster, "kind": "policy", "title": "t", "actor_kind": "person"},
        "Cluster": {"id": f"c{number}"},
        "Delivery": {"key": f"k{number}", "kind": "firing", "payload": {}, "created_at": 1.0, "next_attempt_at": 1.0},
        "Drain": {"cluster": cluster, "instance": f"i{number}", "name": "n"},
        "Incident": {
            "cluster": cluster, "key": f"proxy/{number}", "cause_kind": "proxy", "cause_id": "p", "cause_name": "p",
            "generation": 1, "state": "firing", "severity": 2, "opened_at": 1.0,
        },
        "MaintenanceWindow": {"name": "w", "rule": "FREQ=DAILY", "reason": "r", "creator": "c"},
        "NetworkingRevision": {"cluster": cluster, "revision": f"r{number}", "document": {}},
        "Route": {"name": "r"},
        "Silence": {"reason": "r", "creator": "c", "starts_at": 1.0, "ends_at": 2.0},
    }[name]  # fmt: skip


def test_columns_keep_their_values(migrate: Callable[[str], Apps]) -> None:
    """Under their new names; and back."""
    apps = migrate(_OLD)
    names = sorted(_COLUMNS, key=lambda name: (name != "Cluster", name))
    keys = {
        (name, number): create_row(
            apps,
            name,
            **_required_columns(apps, name, number),
            **{old: columns[number] for old, columns in _COLUMNS[name].items()},
        ).pk
        for name in names
        for number in (0, 1)
    }

    migrate(newest_migration())

    for (name, number), key in keys.items():
        row = newest_apps.get_model("fleet", name).objects.get(pk=key)
        for columns in _COLUMNS[name].values():
            assert getattr(row, columns[2]) == columns[number], (name, columns[2])

    apps = migrate(_OLD)

    for (name, number), key in keys.items():
        row = apps.get_model("fleet", name).objects.get(pk=key)
        for old, columns in _COLUMNS[name].items():
            assert getattr(row, old) == columns[number], (name, old)


def _incident(apps: Apps, **columns: Any) -> Any:
    return create_row(apps, "Incident", **_required_columns(apps, "Incident", 7), **columns)


def _delivery(apps: Apps, key: str, payload: dict[str, Any], **columns: Any) -> Any:
    return create_row(apps, "Delivery", **{**_required_columns(apps, "Delivery", 0), "key": key, "payload": payload}, **columns)


#: Fields of newer notifications, without which `cards.card_of` works: tests/fleet/alerts/channels/test_cards.py.
_LATER_FIELDS = {"recovery", "acknowledged_by", "silenced_by", "silenced_until", "silence", "moved_agents"}


def test_stored_notifications_have_the_fields_of_today(migrate: Callable[[str], Apps]) -> None:
    """A pending delivery is sent as it is stored, to a channel of any kind; and back."""
    apps = migrate(_OLD)
    cause = {"kind": "proxy", "id": "p", "name": "proxy-1"}
    incident = {
        "id": "default/proxy/p/1", "cluster": "default", "cause": cause, "state": "firing", "severity": "critical",
        "summary": "s", "rules": ["Agents stranded", "Auth or proxy sick"], "affected": 3, "peak": 207,
        "agents": ["agent-1"], "opened_at": "2026-11-23T05:00:00+00:00", "resolved_at": None, "duration_seconds": 1.0,
        "heals_at": None, "flapping": False,
    }  # fmt: skip
    payload = {"version": 1, "kind": "firing", "subject": "s", "text": "t", "at": "a", "links": {}, "incident": incident}
    stored = {_delivery(apps, "k", payload).pk: payload, _delivery(apps, "other", {"subject": "x"}).pk: {"subject": "x"}}

    migrate(newest_migration())

    delivery, other_row = Delivery.objects.order_by("pk")
    assert other_row.payload == {"subject": "x"}
    today = notifications.payload_of(notifications.make_test_notification("c", 1.0), notifications.NotificationLinks())
    assert delivery.payload["incident"].keys() == today["incident"].keys() - _LATER_FIELDS
    assert delivery.payload["incident"]["rules"] == ["Agents stranded", "Auth or proxy failing"]
    assert delivery.payload["incident"]["affected_count"] == 3
    request = SendRequest(delivery.payload, "k", 1.0, {}, {})
    assert alertmanager.alert_of(request)["annotations"]["peak_count"] == "207"
    assert pagerduty.event_of(request)["payload"]["custom_details"]["affected_count"] == 3

    rows = migrate(_OLD).get_model("fleet", "Delivery").objects
    assert {row.pk: row.payload for row in rows.all()} == stored


def test_rules_keep_their_settings(migrate: Callable[[str], Apps]) -> None:
    """Under their new names, with the rules that override them, marks and matchers; and back and forward again."""
    apps = migrate(_OLD)
    rules = apps.get_model("fleet", "AlertRule").objects
    rules.all().delete()
    columns = {"kind": "blind", "severity": 2}
    old_rule = rules.create(name="Console blind", min_count=77, builtin=True, **columns)
    override = rules.create(name="Console blind", cluster="lab", enabled=False, **columns)
    other_row = rules.create(name="No monitoring data", cluster="lab", **columns)
    mark = [1.0, 2.0, 3, 2, 0, "s"]
    incident = _incident(apps, marks={"Console blind": mark, "Agents stranded": mark})
    matchers = {
        create_row(apps, "Silence", **_required_columns(apps, "Silence", 0), matchers=text).pk: (text, migrated)
        for text, migrated in (
            ('cause="Console blind"', 'cause="Console blind"'),
            ('rule="Console blind" cause=x', "'rule=No monitoring data' cause=x"),
            ("rule!='Agents lost fast'", "'rule!=High agent loss rate'"),
            ("rule=Agents*", "rule=Agents*"),
        )
    }

    for _ in range(2):
        migrate(newest_migration())
        names = dict(AlertRule.objects.filter(pk__in=(old_rule.pk, override.pk, other_row.pk)).values_list("pk", "name"))
        assert names == {
            old_rule.pk: "No monitoring data", override.pk: "No monitoring data",
            other_row.pk: "No monitoring data (custom)",
        }  # fmt: skip
        assert AlertRule.objects.get(name="No monitoring data", cluster="").min_count == 77
        assert {*Incident.objects.get(pk=incident.pk).marks} == {"No monitoring data", "Agents stranded"}
        stored = dict(Silence.objects.values_list("pk", "matchers"))
        assert stored == {key: migrated for key, (_, migrated) in matchers.items()}
        assert all(parse_matchers(text) for text in stored.values())
        apps = migrate(_OLD)
        assert apps.get_model("fleet", "AlertRule").objects.get(pk=old_rule.pk).name == "Console blind"
        assert {*apps.get_model("fleet", "Incident").objects.get(pk=incident.pk).marks} == {
            "Console blind", "Agents stranded",
        }  # fmt: skip
