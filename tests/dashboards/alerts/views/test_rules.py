from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.alerting import AgentLabel, AlertRule
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.inventory import Agent, Instance
from fleet.models.transitions import InstanceTransition, Transition
from tests.dashboards.conftest import MakeUser, prove
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def keeper(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which a config admin is signed in."""
    ensure_default_cluster()
    client.force_login(person("config admin"))
    prove(client)
    return client


def _form(rule: AlertRule, **changed: object) -> dict[str, object]:
    names = (
        "name", "kind", "severity", "min_count", "label", "cluster", "pending_rounds", "pending_seconds",
        "recover_seconds", "group_wait", "group_interval", "repeat_seconds", "runbook",
    )  # fmt: skip
    return {name: getattr(rule, name) for name in names} | {"enabled": "on", "share_percent": "0"} | changed


def test_rule_is_played_over_the_history(keeper: Client) -> None:
    """Two outages last week: with these numbers it would have fired twice, with others once."""
    cluster, now = ensure_default_cluster(), timezone.now()
    for n in range(6):
        Agent.objects.create(cluster=cluster, agent_id=f"a{n}", name=f"agent-{n}", position=n)
        for day, seconds in ((2, 720), (1, 30)):
            if day == 1 and n > 4:
                continue
            at = now - timedelta(days=day)
            for number, (old, new) in enumerate((("healthy", "stranded"), ("stranded", "healthy"))):
                Transition.objects.create(
                    cluster=cluster, agent=f"a{n}", old=old, new=new, reason="no-tunnel", recovery="unclear",
                    cause="p1", at=at + timedelta(seconds=seconds * number), round=day * 1000 + 6 * number,
                )  # fmt: skip
    _long_ago(cluster, now)
    rule = AlertRule.objects.get(name="Agents stranded")
    url = f"/alerts/rules/{rule.pk}/"
    page = keeper.get(url).content.decode()
    assert "Would have fired 2 times in 7 days, longest 12 min." in page
    assert "proxy group or region that failed together as separate causes" in page
    assert 'value="300"' in page, "seconds without a fraction that nobody wrote"
    tried = keeper.post(url, _form(rule, min_count=6, do="try")).content.decode()
    assert "Would have fired once in 7 days" in tried
    rule.refresh_from_db()
    assert rule.min_count == 5


def _long_ago(cluster: Cluster, now: datetime) -> None:
    """The history goes back for longer than is played."""
    InstanceTransition.objects.create(
        cluster=cluster, instance="p1", old="unknown", new="ok", at=now - timedelta(days=9), round=1
    )
    Transition.objects.create(
        cluster=cluster, agent="a0", old="unknown", new="healthy", reason="none", recovery="unclear",
        at=now - timedelta(days=9), round=1,
    )  # fmt: skip


def test_rule_about_instances_is_played_over_theirs(keeper: Client) -> None:
    """A proxy silent for two minutes and for half of one: one would have fired, by name; with other numbers two."""
    cluster, now = ensure_default_cluster(), timezone.now()
    _long_ago(cluster, now)
    Instance.objects.create(cluster=cluster, instance_id="p1", kind="proxy", name="proxy-1", position=0)
    for hours, seconds in ((50, 120), (20, 30)):
        at, number = now - timedelta(hours=hours), 1000 - hours
        for later, new in ((0, "silent"), (seconds, "ok")):
            InstanceTransition.objects.create(
                cluster=cluster, instance="p1", old="ok", new=new, at=at + timedelta(seconds=later),
                round=number * 100 + later,
            )  # fmt: skip
    rule = AlertRule.objects.get(name="Auth or proxy sick")
    page = keeper.get(f"/alerts/rules/{rule.pk}/").content.decode()
    assert "Would have fired once in 7 days, longest 2 min." in page
    assert "proxy-1" in page
    tried = keeper.post(f"/alerts/rules/{rule.pk}/", _form(rule, pending_seconds=10, do="try"))
    assert "Would have fired 2 times in 7 days" in tried.content.decode()


def test_rule_that_cannot_be_played_says_why(keeper: Client) -> None:
    """No history, or none that could answer: one sentence, and no claim that nothing would have been."""
    for name, says in (
        ("Policy drift", "the history contains no policies"),
        ("Console blind", "nothing is recorded while Refloat is not polling"),
        ("Cluster unreachable", "The history is still empty"),
    ):
        rule = AlertRule.objects.get(name=name)
        page = keeper.get(f"/alerts/rules/{rule.pk}/").content.decode()
        assert says in page
        assert "ould not have fired" not in page
        assert name == "Cluster unreachable" or "The backtest runs this rule alone" not in page


def test_rule_is_changed_and_logged_and_built_in_names_stay(keeper: Client) -> None:
    """The number changes, the name does not, and the log has both."""
    rule = AlertRule.objects.get(name="Agents stranded")
    keeper.post(f"/alerts/rules/{rule.pk}/", _form(rule, name="other", min_count=9, share_percent="2"))
    rule.refresh_from_db()
    assert (rule.name, rule.min_count, rule.min_share) == ("Agents stranded", 9, 0.02)
    entry = AuditEntry.objects.get()
    assert (entry.before["min_count"], entry.after["min_count"]) == (5, 9)
    keeper.post(f"/alerts/rules/{rule.pk}/", {"do": "delete"})
    assert AlertRule.objects.filter(pk=rule.pk).exists()


def test_rules_are_exported_imported_and_labels_kept(keeper: Client) -> None:
    """Out as YAML and in again; nonsense changes nothing."""
    document = keeper.get("/alerts/rules.yaml").content.decode()
    AlertRule.objects.update(min_count=77)
    other = "rules: [{name: Agents stranded, kind: excess, severity: info}]"
    keeper.post("/alerts/rules/", {"do": "import", "document": other})
    assert AlertRule.objects.get(name="Agents stranded").kind == "stranded"
    keeper.post("/alerts/rules/", {"do": "import", "document": "rules: [{name: x}]"})
    assert AlertRule.objects.filter(min_count=77).exists()
    keeper.post("/alerts/rules/", {"do": "import", "document": document})
    assert not AlertRule.objects.filter(min_count=77).exists()
    keeper.post("/alerts/rules/", {"do": "label", "pattern": "web-*", "label": "critical"})
    label = AgentLabel.objects.get()
    assert "web-*" in keeper.get("/alerts/rules/").content.decode()
    keeper.post("/alerts/rules/", {"do": "unlabel", "label_id": label.pk})
    assert not AgentLabel.objects.exists()


def test_operator_sees_rules_and_may_not_change_them(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """Trying numbers out is reading."""
    client.force_login(person("operator"))
    rule = AlertRule.objects.get(name="Agents stranded")
    assert client.get("/alerts/rules/").status_code == 200
    assert client.post(f"/alerts/rules/{rule.pk}/", _form(rule, do="try")).status_code == 200
    assert client.post(f"/alerts/rules/{rule.pk}/", _form(rule)).status_code == 403
    assert client.post("/alerts/rules/", {"do": "label", "pattern": "x", "label": "y"}).status_code == 403


def test_runbook_stands_behind_every_kind_of_rule(client: Client, person: MakeUser) -> None:
    """With the rules it is for; another kind is not found."""
    client.force_login(person("viewer"))
    page = client.get("/alerts/runbooks/backend/").content.decode()
    assert "Restore the backend" in page
    assert "Auth backend down" in page
    assert client.get("/alerts/runbooks/none/").status_code == 404


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
def test_import_that_is_meant_to_do_harm_takes_nothing(keeper: Client, document: str) -> None:
    """The page comes back with a sentence, and no rule has changed."""
    before = list(AlertRule.objects.values())
    page = keeper.post("/alerts/rules/", {"do": "import", "document": document}, follow=True)
    assert page.status_code == 200
    assert "No rules were imported: " in page.content.decode()
    assert list(AlertRule.objects.values()) == before


@pytest.fixture
def stranger(client: Client, limited: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which a config admin is signed in who is limited to the cluster `other`."""
    client.force_login(limited("config admin"))
    prove(client)
    return client


def test_limited_user_overrides_a_rule_in_one_cluster(stranger: Client) -> None:
    """The installation's stays as it is for the others; the copy is switched off, or deleted again."""
    rule = AlertRule.objects.get(name="Agents stranded")
    url = f"/c/other/alerts/rules/{rule.pk}/"
    page = stranger.get(url).content.decode()
    assert "Override rule in cluster other" in page
    assert 'value="save"' not in page
    for form in (_form(rule, min_count=9), {"do": "delete", "confirm": "yes"}):
        assert stranger.post(url, form).status_code == 403
    stranger.post(url, {"do": "override"})
    own = AlertRule.objects.get(name="Agents stranded", cluster="other")
    assert (own.min_count, own.builtin, own.kind) == (rule.min_count, False, rule.kind)
    assert stranger.post(url, {"do": "override"})["Location"] == f"/c/other/alerts/rules/{own.pk}/"
    form = _form(own, name="another name", min_count=9)
    del form["enabled"]
    stranger.post(f"/c/other/alerts/rules/{own.pk}/", form)
    own.refresh_from_db()
    rule.refresh_from_db()
    assert (own.name, own.enabled, own.min_count) == ("Agents stranded", False, 9)
    assert (rule.enabled, rule.min_count) == (True, 5)
    assert "overridden in this cluster" in stranger.get("/c/other/alerts/rules/").content.decode()
    stranger.post(f"/c/other/alerts/rules/{own.pk}/", {"do": "delete"})
    assert AlertRule.objects.filter(pk=own.pk).exists(), "it asks before"
    stranger.post(f"/c/other/alerts/rules/{own.pk}/", {"do": "delete", "confirm": "yes"})
    assert not AlertRule.objects.filter(pk=own.pk).exists()


def test_limited_user_makes_and_imports_rules_of_the_cluster_only(stranger: Client) -> None:
    """A form makes one of the cluster whatever it says; a document that names another owner changes nothing."""
    rule = AlertRule.objects.get(name="Agents stranded")
    stranger.post("/c/other/alerts/rules/0/", _form(rule, name="mine", cluster=""))
    assert AlertRule.objects.get(name="mine").cluster == "other"
    before = list(AlertRule.objects.values())
    for owner in ("''", "default", "mars"):
        document = f"rules: [{{name: x, kind: stranded, severity: info, cluster: {owner}}}]"
        page = stranger.post("/c/other/alerts/rules/", {"do": "import", "document": document}, follow=True)
        assert "x cannot be changed" in page.content.decode()
    assert list(AlertRule.objects.values()) == before
    document = "rules: [{name: x, kind: stranded, severity: info, cluster: other}]"
    stranger.post("/c/other/alerts/rules/", {"do": "import", "document": document})
    assert AlertRule.objects.get(name="x").cluster == "other"


def test_rules_of_another_cluster_are_not_there(keeper: Client) -> None:
    """On no page, in no file, whoever looks; a document for a cluster that does not exist is refused."""
    foreign = AlertRule.objects.create(name="of-asia", cluster="asia", kind="stranded", severity=1)
    for path in ("", "rules.yaml", "runbooks/stranded/"):
        where = f"/alerts/{path}" if path else "/alerts/rules/"
        assert "of-asia" not in keeper.get(where).content.decode()
    assert keeper.get(f"/alerts/rules/{foreign.pk}/").status_code == 404
    document = "rules: [{name: x, kind: stranded, severity: info, cluster: mars}]"
    page = keeper.post("/alerts/rules/", {"do": "import", "document": document}, follow=True)
    assert "belongs to cluster mars, which was not found" in page.content.decode()
