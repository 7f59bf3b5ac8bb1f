from __future__ import annotations

import time
from datetime import time as time_of_day
from datetime import timedelta
from typing import Any

import pytest

from fleet.alerts.configuration.document import ConfigurationError
from fleet.alerts.configuration.sections import Section, fields_of
from fleet.alerts.defaults import ensure_alert_defaults
from fleet.alerts.setup.configuration import (
    ImportPlan,
    ImportRequest,
    apply_import,
    describe_change,
    plan_import,
)
from fleet.alerts.setup.problems import SetupChangedError
from fleet.alerts.setup.stored_configuration import export_configuration
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import AlertRule, Channel, MaintenanceWindow, Route
from fleet.models.changes import AuditEntry
from fleet.models.sealed_secrets import seal, unseal

pytestmark = pytest.mark.django_db

_OWNERS = ("", "default")
_HOOK_URL = "https://hooks.example.com/s3cret"


def _request(text: str, **values: Any) -> ImportRequest:
    defaults: dict[str, Any] = {
        "cluster": "default", "text": text, "variables": {}, "should_prune": False, "writable_owners": _OWNERS,
        "can_allow_private": True, "actor": CONSOLE_ACTOR, "creator": "ada", "now": time.time(),
    }  # fmt: skip
    return ImportRequest(**defaults | values)


def _apply(text: str, **values: Any) -> ImportPlan:
    request = _request(text, **values)
    return apply_import(request, plan_import(request).fingerprint)


def _describe(plan: ImportPlan) -> list[str]:
    return [describe_change(change) for change in plan.changes]


def _problems_of(text: str, **values: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as error_info:
        plan_import(_request(text, **values))
    return [problem.sentence for problem in error_info.value.problems]


@pytest.fixture
def estate() -> None:
    """Channels, a tree of routes, a rule that overrides another, and windows of the same name."""
    hook = Channel.objects.create(
        name="ops", kind="webhook", config={"host": "https://hooks.example.com"},
        secrets=seal({"url": _HOOK_URL, "signing_key": "s3cret-key"}), digest="daily", allow_private=True,
    )  # fmt: skip
    own = Channel.objects.create(
        name="ops",
        kind="email",
        cluster="default",
        config={"to": "a@example.com, b@example.com"},
        enabled=False,
    )
    root = Route.objects.get()
    root.channels.add(hook)
    night = Route.objects.create(
        name="night", parent=root, matchers="kind=proxy", escalate_after=900, quiet_from=time_of_day(22),
        quiet_until=time_of_day(6), quiet_zone="Europe/Berlin", continue_matching=True, position=4,
    )  # fmt: skip
    night.escalate_to.add(hook)
    for name in ("twin", "twin"):
        twin = Route.objects.create(name=name, parent=night, cluster="default", min_severity=0)
        twin.channels.add(own, hook)
    AlertRule.objects.filter(name="Agents stranded").update(min_count=7, enabled=False)
    AlertRule.objects.create(
        name="Agents stranded", cluster="default", kind="stranded", severity=2, min_share=0.07
    )
    for hours in (1, 2):
        MaintenanceWindow.objects.create(
            name="backups", matchers="cause=proxy-1", rule="FREQ=WEEKLY;BYDAY=SU", start_time=time_of_day(hours),
            length=timedelta(hours=hours), reason="weekly backup", creator="bob",
        )  # fmt: skip


def _clear() -> None:
    for model in (Route, Channel, AlertRule, MaintenanceWindow):
        model._default_manager.all().delete()
    ensure_alert_defaults()


def test_export_is_imported_into_an_empty_database(estate: None) -> None:
    """The export of that is the same, and a second import changes nothing."""
    text = export_configuration("default", _OWNERS)
    assert "s3cret" not in text
    assert _describe(plan_import(_request(text, should_prune=True))) == []
    _clear()
    variables = {"REFLOAT_CHANNEL_OPS_URL": _HOOK_URL, "REFLOAT_CHANNEL_OPS_SIGNING_KEY": "s3cret-key"}
    assert "no secret is stored for channel 'ops'" in _problems_of(text)[0]
    plan = _apply(text, variables=variables)
    assert "add route Everything > night > twin" in "\n".join(_describe(plan))
    assert export_configuration("default", _OWNERS) == text
    assert unseal(Channel.objects.get(cluster="").secrets)["signing_key"] == "s3cret-key"
    assert set(MaintenanceWindow.objects.values_list("creator", flat=True)) == {"ada"}
    for should_prune in (False, True):
        assert _describe(_apply(text, variables=variables, should_prune=should_prune)) == []
    assert _describe(_apply(text)) == []


def test_changes_are_applied_and_logged_without_secrets(estate: None) -> None:
    """One entry for the import, and one for each object."""
    text = export_configuration("default", _OWNERS).replace("min_count: 7", "min_count: 8")
    text = text.replace("${REFLOAT_CHANNEL_OPS_SIGNING_KEY}", "new-s3cret")
    text = text.replace("escalate_after: 15 min", "escalate_after: 20m")
    head, tail = text.rsplit("name: twin", 1)
    plan = _apply(f"{head}name: triplet{tail}")
    assert _describe(plan) == [
        "change channel ops: signing_key",
        "change route Everything > night: escalate_after",
        f"add route Everything > night > triplet: {', '.join(fields_of(Section.ROUTES))}",
        "change rule Agents stranded: min_count",
    ]
    assert unseal(Channel.objects.get(cluster="").secrets) == {"url": _HOOK_URL, "signing_key": "new-s3cret"}
    assert Route.objects.get(name="night").escalate_after == 1200
    entries = list(AuditEntry.objects.order_by("pk").values())
    assert [entry["action"] for entry in entries] == [
        "channel.update", "route.update", "route.create", "alert-rule.update", "alerting.import",
    ]  # fmt: skip
    assert entries[-1]["after"] == _describe(plan)
    assert "s3cret" not in str(entries)


def test_pruning_removes_what_the_document_lacks(estate: None) -> None:
    """In its sections; built-in rules stay."""
    plan = _apply("rules: []\nroutes: [{name: Everything, channels: []}]\nchannels: []", should_prune=True)
    assert [text.partition(":")[0] for text in _describe(plan)] == [
        "change route Everything",
        "remove route Everything > night > twin",
        "remove route Everything > night > twin",
        "remove route Everything > night",
        "remove channel ops",
        "remove channel ops",
        "remove rule Agents stranded",
    ]
    assert list(Route.objects.values_list("name", flat=True)) == ["Everything"]
    assert AlertRule.objects.filter(builtin=True).exists()
    assert MaintenanceWindow.objects.count() == 2


def test_nothing_is_applied_if_one_object_is_wrong(estate: None) -> None:
    """Neither by the preview nor by the import; the error has the line, also of what only the database knows."""
    text = (
        "channels:\n- name: mail\n  kind: email\n  to: ops@example.com\n"
        "routes:\n- name: x\n  channels: [mail]\n  escalate_after: 20 s\n  escalate_to: [ops]\n"
        "rules:\n- name: Agents stranded\n  kind: rate\n"
        "maintenance_windows:\n- {name: w, matchers: kind=proxy, rule: FREQ=NEVER, start_time: '22:00', reason: abc}\n"
    )
    before = export_configuration("default", _OWNERS)
    problems = _problems_of(text)
    assert [problem.partition(": ")[0] for problem in problems] == ["line 8", "line 12", "line 14"]
    assert "must be between 1 min and 30 d" in problems[0]
    assert "The kind of a built-in rule cannot be changed" in problems[1]
    assert "recurrence rule is not valid" in problems[2]
    with pytest.raises(SetupChangedError):
        apply_import(_request(text), "any")
    assert export_configuration("default", _OWNERS) == before
    assert not AuditEntry.objects.filter(outcome="succeeded").exists()


def test_all_mistakes_are_named_at_once(estate: None) -> None:
    """Those of the text, those of references, and those that only storing finds; what depends on one is left out."""
    text = (
        "channels:\n- {name: mail, kind: email, to: no address}\n- {name: chat, kind: carrier-pigeon}\n"
        "routes:\n- name: Everything\n  channels: [nowhere]\n  colour: red\n  routes:\n"
        "  - {name: below, matchers: 'colour=red'}\n"
        "- {name: by mail, channels: [mail], matchers: 'colour=red'}\n- {name: other, matchers: 'colour=red'}\n"
        "rules:\n- {name: new, severity: loud}\n- {name: Agents stranded, min_count: 9, cluster: eu}\n"
    )
    problems = _problems_of(text, should_prune=True)
    expected_starts = [
        "line 2: channel 'mail': to: 'no' is not an e-mail address",
        "line 3: kind: 'carrier-pigeon' is not one of ",
        "line 6: channels: unknown channel 'nowhere'. Known channels: ",
        "line 7: unknown key 'colour' of a route. ",
        "line 11: route 'other': matchers: ",
        "line 13: severity: 'loud' is not one of ",
        "line 13: the kind of a new rule is missing",
        "line 14: cluster: the rule belongs to cluster eu: import it there",
    ]
    assert [
        problem[: len(start)] for problem, start in zip(problems, expected_starts, strict=True)
    ] == expected_starts


def test_place_among_routes_of_one_name_is_refused_if_it_is_ambiguous(estate: None) -> None:
    """Which of two routes of one name moved is not known."""
    text = export_configuration("default", _OWNERS).replace("name: twin", "name: triplet", 1)
    (problem,) = _problems_of(text)
    assert "a route beside it has the same name. Rename one of them" in problem


def test_preview_stores_nothing(estate: None) -> None:
    """Not even an audit log entry."""
    before = export_configuration("default", _OWNERS)
    plan = plan_import(_request("channels: [{name: mail, kind: email, to: a@example.com}]"))
    assert _describe(plan) == ["add channel mail: kind, to"]
    assert export_configuration("default", _OWNERS) == before
    assert not AuditEntry.objects.exists()


def test_import_after_another_change_is_refused(estate: None) -> None:
    """By the fingerprint: of what is stored, also of a secret, and of the document."""
    request = _request("rules: [{name: Agents stranded, min_count: 9}]")
    fingerprint = plan_import(request).fingerprint
    with pytest.raises(SetupChangedError, match="out of date"):
        apply_import(_request(f"{request.text} "), fingerprint)
    Channel.objects.filter(cluster="").update(secrets=seal({"url": _HOOK_URL, "signing_key": "other"}))
    with pytest.raises(SetupChangedError, match="nothing was applied"):
        apply_import(request, fingerprint)
    assert AlertRule.objects.get(name="Agents stranded", cluster="").min_count == 7
    assert (
        AuditEntry.objects.filter(action="alerting.import").values_list("outcome", flat=True)[0] == "refused"
    )


def test_new_address_needs_its_secrets_again(estate: None) -> None:
    """The stored key belongs to the old one: the preview says so instead of dropping it."""
    text = (
        "channels:\n- name: ops\n  kind: webhook\n  url: https://evil.example.com/x\n"
        "  signing_key: ${REFLOAT_CHANNEL_OPS_SIGNING_KEY}\n"
    )
    (problem,) = _problems_of(text)
    assert (
        "line 5: channel 'ops': signing_key: The address changed: enter the signing key again, or remove it"
        in problem
    )
    _apply(text, variables={"REFLOAT_CHANNEL_OPS_SIGNING_KEY": "new"})
    assert unseal(Channel.objects.get(cluster="").secrets) == {
        "url": "https://evil.example.com/x", "signing_key": "new",
    }  # fmt: skip


def test_window_of_everything_requires_the_word() -> None:
    """The preview says so; the import refuses without it."""
    text = "maintenance_windows: [{name: w, rule: FREQ=DAILY, start_time: '22:00', reason: abc}]"
    plan = plan_import(_request(text))
    assert plan.is_confirmation_required
    with pytest.raises(ConfigurationError, match="Enter the word “everything”"):
        apply_import(_request(text), plan.fingerprint)
    apply_import(_request(text, typed_word="everything"), plan.fingerprint)
    changed_text = text.replace("reason: abc", "reason: other, is_enabled: false")
    assert _describe(_apply(changed_text)) == ["change maintenance window w: reason, is_enabled"]
    assert not MaintenanceWindow.objects.get().enabled


def test_limited_user_imports_only_what_belongs_to_the_cluster(estate: None) -> None:
    """And sees no address of the installation, neither in an export nor as a difference."""
    limits: dict[str, Any] = {"writable_owners": ("default",), "can_allow_private": False}
    text = export_configuration("default", ("default",))
    assert "kind: webhook" not in text
    assert _describe(plan_import(_request(text, should_prune=True, **limits))) == []
    assert _describe(_apply(text.replace("a@example.com", "c@example.com"), **limits)) == [
        "change channel ops: to"
    ]
    for wrong in (
        "channels: [{name: ops, kind: webhook, url: https://hooks.example.com/guess}]",
        "rules:\n- name: Agents stranded\n  min_count: 1",
        "routes: [{name: new}]",
    ):
        assert (
            "belongs to the whole installation, and you cannot change it" in _problems_of(wrong, **limits)[0]
        )
    private = "channels: [{name: x, cluster: default, kind: email, to: a@b.c, allow_private: true}]"
    assert "only users who may manage access" in _problems_of(private, **limits)[0]


def test_objects_of_another_cluster_stay(estate: None) -> None:
    """They are in no export of this one, and a route above them is not removed."""
    assert _problems_of("rules: [{name: x, cluster: eu, kind: rate, severity: info}]") == [
        "line 1: cluster: the rule belongs to cluster eu: import it there"
    ]
    foreign = Channel.objects.create(
        name="eu-ops", kind="email", cluster="eu", config={"to": "a@example.com"}
    )
    night = Route.objects.get(name="night")
    below = Route.objects.create(name="below", cluster="eu", parent=night)
    below.channels.add(foreign)
    assert "eu" not in export_configuration("default", _OWNERS).replace("Europe", "")
    (problem,) = _problems_of("routes: [{name: Everything, channels: []}]", should_prune=True)
    assert "other routes are below it: below (cluster eu)" in problem
    assert Route.objects.filter(pk=below.pk).exists()
