from __future__ import annotations

import time

import pytest
from django.test import Client

from fleet.models.alerting import AgentSet, AlertRule
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.inventory import Agent, Instance
from fleet.protocol.durations import format_exact
from fleet.vocabulary.verdicts import Reason, State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change, create_instance_change
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


_DAY_SECONDS = 86400.0


def _form(rule: AlertRule, **changes: object) -> dict[str, object]:
    names = ("name", "kind", "severity", "min_count", "agent_set", "cluster", "pending_rounds", "runbook")
    seconds = ("pending_seconds", "recover_seconds", "group_wait", "group_interval", "repeat_seconds")
    return (
        {name: getattr(rule, name) for name in names}
        | {name: format_exact(getattr(rule, name)) for name in seconds}
        | {"enabled": "on", "share_percent": "0"}
        | changes
    )


def test_rule_backtest_shows_what_would_have_fired(config_admin: Client) -> None:
    """Two outages last week: with these numbers it would have fired twice, with others once."""
    cluster, now = ensure_default_cluster(), time.time()
    for n in range(6):
        Agent.objects.create(cluster=cluster, agent_id=f"a{n}", name=f"agent-{n}", position=n)
        for day, seconds in ((2, 720), (1, 30)):
            if day == 1 and n > 4:
                continue
            at = now - day * _DAY_SECONDS
            for number, (old, new) in enumerate(
                ((State.HEALTHY, State.STRANDED), (State.STRANDED, State.HEALTHY))
            ):
                create_agent_change(f"a{n}", at + seconds * number, old, new, cause="p1")
    _add_old_outages(now)
    rule = AlertRule.objects.get(name="Agents stranded")
    url = f"/alerts/rules/{rule.pk}/"
    page = config_admin.get(url).content.decode()
    assert "Would have fired 2 times in the last 7 days, longest 12 min." in page
    assert "proxy group or region that failed together are listed as separate causes" in page
    assert 'value="5 min"' in page
    backtest_page = config_admin.post(url, _form(rule, min_count=6, do="try")).content.decode()
    assert "Would have fired once in the last 7 days" in backtest_page
    rule.refresh_from_db()
    assert rule.min_count == 5


def _add_old_outages(now: float) -> None:
    """The history goes back for longer than is played."""
    create_instance_change("p1", now - 9 * _DAY_SECONDS, "unknown", "ok")
    create_agent_change("a0", now - 9 * _DAY_SECONDS, State.UNKNOWN, State.HEALTHY, reason=Reason.NONE)


def test_instance_rule_backtest_uses_instance_history(config_admin: Client) -> None:
    """A proxy silent for two minutes and for half of one: one would have fired, by name; with other numbers two."""
    cluster, now = ensure_default_cluster(), time.time()
    _add_old_outages(now)
    Instance.objects.create(cluster=cluster, instance_id="p1", kind="proxy", name="proxy-1", position=0)
    for hours, seconds in ((50, 120), (20, 30)):
        at, number = now - hours * 3600, 1000 - hours
        for later, old, new in ((0, "ok", "silent"), (seconds, "silent", "ok")):
            create_instance_change("p1", at + later, old, new, number * 100 + later)
    rule = AlertRule.objects.get(name="Auth or proxy failing")
    page = config_admin.get(f"/alerts/rules/{rule.pk}/").content.decode()
    assert "Would have fired once in the last 7 days, longest 2 min." in page
    assert "proxy-1" in page
    backtest_page = config_admin.post(
        f"/alerts/rules/{rule.pk}/", _form(rule, pending_seconds="10 s", do="try")
    )
    assert "Would have fired 2 times in the last 7 days" in backtest_page.content.decode()


def test_rule_without_backtest_explains_why(config_admin: Client) -> None:
    """No history, or none that could answer: one sentence, and no claim that nothing would have been."""
    for name, sentence in (
        ("Policy drift", "the history contains no policies"),
        ("No monitoring data", "nothing is recorded while Refloat is not polling"),
        ("Cluster unreachable", "The history is still empty"),
    ):
        rule = AlertRule.objects.get(name=name)
        page = config_admin.get(f"/alerts/rules/{rule.pk}/").content.decode()
        assert sentence in page
        assert "ould not have fired" not in page
        assert name == "Cluster unreachable" or "The backtest runs this rule alone" not in page


def test_rule_is_changed_and_logged_and_built_in_names_stay(config_admin: Client) -> None:
    """The number changes, the name does not, and the log has both."""
    rule = AlertRule.objects.get(name="Agents stranded")
    config_admin.post(f"/alerts/rules/{rule.pk}/", _form(rule, name="other", min_count=9, share_percent="2"))
    rule.refresh_from_db()
    assert (rule.name, rule.min_count, rule.min_share) == ("Agents stranded", 9, 0.02)
    entry = AuditEntry.objects.get()
    assert (entry.before["min_count"], entry.after["min_count"]) == (5, 9)
    config_admin.post(f"/alerts/rules/{rule.pk}/", {"do": "delete"})
    assert AlertRule.objects.filter(pk=rule.pk).exists()


def test_rule_durations_are_typed_and_shown_with_units(config_admin: Client) -> None:
    """A day is stored as seconds and shown as hours; a bare number is refused with an example."""
    rule = AlertRule.objects.get(name="Agents stranded")
    url = f"/alerts/rules/{rule.pk}/"
    page = config_admin.post(url, _form(rule, repeat_seconds="86400")).content.decode()
    assert "&#x27;86400&#x27; is not a duration. Enter a number with its unit: 24 h, 10 min" in page
    assert 'value="86400"' in page
    config_admin.post(url, _form(rule, repeat_seconds="24 h", pending_seconds="1 h 30 min"))
    rule.refresh_from_db()
    assert (rule.repeat_seconds, rule.pending_seconds) == (86_400, 5_400)
    page = config_admin.get(url).content.decode()
    assert 'value="24 h"' in page
    assert 'value="1 h 30 min"' in page


def test_rules_are_exported_imported_and_agent_sets_kept(config_admin: Client) -> None:
    """Out as YAML and in again; nonsense changes nothing."""
    document = config_admin.get("/alerts/rules.yaml").content.decode()
    AlertRule.objects.update(min_count=77)
    rules_yaml = "rules: [{name: Agents stranded, kind: excess, severity: info}]"
    config_admin.post("/alerts/rules/", {"do": "import", "document": rules_yaml})
    assert AlertRule.objects.get(name="Agents stranded").kind == "stranded"
    config_admin.post("/alerts/rules/", {"do": "import", "document": "rules: [{name: x}]"})
    assert AlertRule.objects.filter(min_count=77).exists()
    config_admin.post("/alerts/rules/", {"do": "import", "document": document})
    assert not AlertRule.objects.filter(min_count=77).exists()
    config_admin.post("/alerts/rules/", {"do": "add-agent-set", "pattern": "web-*", "name": "critical"})
    agent_set = AgentSet.objects.get()
    assert "web-*" in config_admin.get("/alerts/rules/").content.decode()
    config_admin.post("/alerts/rules/", {"do": "remove-agent-set", "agent_set_id": agent_set.pk})
    assert not AgentSet.objects.exists()


def test_operator_sees_rules_and_may_not_change_them(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """Trying numbers out is reading."""
    client.force_login(person("operator"))
    rule = AlertRule.objects.get(name="Agents stranded")
    assert client.get("/alerts/rules/").status_code == 200
    assert client.post(f"/alerts/rules/{rule.pk}/", _form(rule, do="try")).status_code == 200
    assert client.post(f"/alerts/rules/{rule.pk}/", _form(rule)).status_code == 403
    assert (
        client.post("/alerts/rules/", {"do": "add-agent-set", "pattern": "x", "name": "y"}).status_code == 403
    )


def test_rules_are_listed_as_sentences(config_admin: Client) -> None:
    """What each waits for, and when it is notified."""
    AlertRule.objects.create(name="slow", kind="stranded", severity=1, pending_rounds=0, pending_seconds=90.0)
    page = config_admin.get("/alerts/rules/").content.decode()
    assert "When 1 agent is stranded by one cause for 1 min 30 s." in page
    assert "When 5 agents and 0.5 % of the cluster are at risk by one cause for 2 polls and 1 min." in page
    assert "When Refloat receives no monitoring data." in page
    assert "Notify after 30 s, again every 12 h until acknowledged." in page
    assert "Only digests list it." in page


def test_backtest_links_the_incident_of_that_time(config_admin: Client) -> None:
    """And says which cause explained it; a time without an incident says so."""
    cluster, now = ensure_default_cluster(), time.time()
    _add_old_outages(now)
    Instance.objects.create(cluster=cluster, instance_id="p1", kind="proxy", name="proxy-1", position=0)
    for hours, number in ((50, 100), (20, 200)):
        for later, old, new in ((0, "ok", "silent"), (120, "silent", "ok")):
            create_instance_change("p1", now - hours * 3600 + later, old, new, number + later)
    columns = {"cluster": cluster, "generation": 1, "state": "resolved", "severity": 1}
    Incident.objects.create(
        key="auth/a1", cause_kind="auth", cause_id="a1", cause_name="auth-1", opened_at=now - 50 * 3600,
        resolved_at=now, **columns,
    )  # fmt: skip
    incident = Incident.objects.create(
        key="proxy/p1", cause_kind="proxy", cause_id="p1", cause_name="proxy-1", inhibited_by="auth/a1",
        opened_at=now - 50 * 3600 + 60, resolved_at=now - 49 * 3600, **columns,
    )  # fmt: skip
    rule = AlertRule.objects.get(name="Auth or proxy failing")
    page = config_admin.get(f"/alerts/rules/{rule.pk}/").content.decode()
    assert "Would have fired 2 times" in page
    assert f'<a href="/incidents/{incident.pk}/">{incident.pk}: proxy-1</a>' in page
    assert "explained by auth-1: no notification" in page
    assert "none: this rule did not fire" in page
    assert page.count("<rect") == 2


@pytest.mark.parametrize(
    "document",
    [
        "a0: &a0 {x: 1}\n" + "\n".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)),
        "[" * 100_000,
        "rules: [{name: a, kind: stranded, severity: info, min_count: 2001-99-99}]",
        f"rules: [{{name: a, kind: stranded, severity: info, min_count: {'9' * 5_000}}}]",
        f"rules: [{{name: a, kind: stranded, severity: info, min_count: 0x{'f' * 5_000}}}]",
    ],
)
def test_import_that_is_meant_to_do_harm_takes_nothing(config_admin: Client, document: str) -> None:
    """The page comes back with a sentence, and no rule has changed."""
    before = list(AlertRule.objects.values())
    page = config_admin.post("/alerts/rules/", {"do": "import", "document": document}, follow=True)
    assert page.status_code == 200
    assert "No rules were imported: " in page.content.decode()
    assert list(AlertRule.objects.values()) == before


def test_limited_user_overrides_a_rule_in_one_cluster(limited_admin: Client) -> None:
    """The installation's stays as it is for the others; the copy is switched off, or deleted again."""
    rule = AlertRule.objects.get(name="Agents stranded")
    url = f"/c/other/alerts/rules/{rule.pk}/"
    page = limited_admin.get(url).content.decode()
    assert "Override rule in cluster other" in page
    assert 'value="save"' not in page
    for form in (_form(rule, min_count=9), {"do": "delete", "confirm": "yes"}):
        assert limited_admin.post(url, form).status_code == 403
    limited_admin.post(url, {"do": "override"})
    own = AlertRule.objects.get(name="Agents stranded", cluster="other")
    assert (own.min_count, own.builtin, own.kind) == (rule.min_count, False, rule.kind)
    assert limited_admin.post(url, {"do": "override"})["Location"] == f"/c/other/alerts/rules/{own.pk}/"
    form = _form(own, name="another name", min_count=9)
    del form["enabled"]
    limited_admin.post(f"/c/other/alerts/rules/{own.pk}/", form)
    own.refresh_from_db()
    rule.refresh_from_db()
    assert (own.name, own.enabled, own.min_count) == ("Agents stranded", False, 9)
    assert (rule.enabled, rule.min_count) == (True, 5)
    assert "overridden in this cluster" in limited_admin.get("/c/other/alerts/rules/").content.decode()
    limited_admin.post(f"/c/other/alerts/rules/{own.pk}/", {"do": "delete"})
    assert AlertRule.objects.filter(pk=own.pk).exists(), "it asks before"
    limited_admin.post(f"/c/other/alerts/rules/{own.pk}/", {"do": "delete", "confirm": "yes"})
    assert not AlertRule.objects.filter(pk=own.pk).exists()


def test_limited_user_makes_and_imports_rules_of_the_cluster_only(limited_admin: Client) -> None:
    """A form makes one of the cluster whatever it says; a document that names another owner changes nothing."""
    rule = AlertRule.objects.get(name="Agents stranded")
    limited_admin.post("/c/other/alerts/rules/0/", _form(rule, name="mine", cluster=""))
    assert AlertRule.objects.get(name="mine").cluster == "other"
    before = list(AlertRule.objects.values())
    for owner in ("''", "default", "mars"):
        document = f"rules: [{{name: x, kind: stranded, severity: info, cluster: {owner}}}]"
        page = limited_admin.post(
            "/c/other/alerts/rules/", {"do": "import", "document": document}, follow=True
        )
        assert "x cannot be changed" in page.content.decode()
    assert list(AlertRule.objects.values()) == before
    document = "rules: [{name: x, kind: stranded, severity: info, cluster: other}]"
    limited_admin.post("/c/other/alerts/rules/", {"do": "import", "document": document})
    assert AlertRule.objects.get(name="x").cluster == "other"


def test_rules_of_another_cluster_are_hidden(config_admin: Client) -> None:
    """On no page, in no file, whoever looks; a document for a cluster that does not exist is refused."""
    foreign = AlertRule.objects.create(name="of-asia", cluster="asia", kind="stranded", severity=1)
    for path in ("", "rules.yaml", "runbooks/", "runbooks/auth/"):
        url = f"/alerts/{path}" if path else "/alerts/rules/"
        assert "of-asia" not in config_admin.get(url).content.decode()
    assert config_admin.get(f"/alerts/rules/{foreign.pk}/").status_code == 404
    document = "rules: [{name: x, kind: stranded, severity: info, cluster: mars}]"
    page = config_admin.post("/alerts/rules/", {"do": "import", "document": document}, follow=True)
    assert "belongs to cluster mars, which was not found" in page.content.decode()


def test_first_page_about_alerts_is_the_list_of_rules(config_admin: Client) -> None:
    assert config_admin.get("/alerts/").headers["Location"] == "/alerts/rules/"
    assert config_admin.get("/c/default/alerts/").headers["Location"] == "/c/default/alerts/rules/"
