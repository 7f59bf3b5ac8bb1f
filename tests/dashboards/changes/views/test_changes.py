"""The page of a change: its plan, who may agree to it, and what must be said to do so."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from dashboards.shared import record_reader
from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.engine import ChangeDraft
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import Actor, ActorKind, ChangeKind, ChangeState
from fleet.vocabulary.rollouts import RolloutSettings
from tests.dashboards.changes.views.test_networking import STORED, store_revision
from tests.dashboards.changes.views.test_networking import form_data as sent_form
from tests.dashboards.conftest import MakeUser
from tests.fakes.policy_nodes import FakePolicyBook
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db
PLAN: dict[str, Any] = {
    "question": "Close 3 tunnels of 2 agents?",
    "notes": ["A note."],
    "data_age_seconds": 1.0,
    "agent_count": 5,
    "previous_rule": "no rule",
    "closing": {
        "rule": "rfd", "rule_label": "RFD 226",
        "closing_count": [3, 3], "excess_count": [3, 3], "expired_count": [0, 0],
        "agent_count": [2, 2], "in_use_count": [0, 1], "single_tunnel_agent_count": 2, "opening_count": 0,
        "opening_agent_count": 0,
        "unsupported_agent_count": 0, "unknown_version_agent_count": 0,
        "steps": [{"nth": 1, "tunnel_count": 2, "earliest_seconds": 1800.0, "latest_seconds": 3600.0},
                  {"nth": 2, "tunnel_count": 1, "earliest_seconds": 3600.0, "latest_seconds": 7200.0}],
        "proxies": [{"id": "p", "name": "proxy-1", "tunnels_before": 5, "tunnels_after": [2, 3],
                     "closing_count": [2, 3], "opening_count": [0, 0]}],
        "tunnels_before": 0, "tunnels_after": [0, 0],
        "uncertain_proxies": ["proxy-1"],
    },
}  # fmt: skip
CONFIG = {"spec": {"keep_alive_count_max": 3}}


def make_plan(user: User, agents: int = 2, plan: dict[str, Any] = PLAN) -> Change:
    """Return a planned change, as the editor creates it."""
    ensure_default_cluster()
    draft = ChangeDraft(
        ChangeKind.NETWORKING_CONFIG,
        "Turn on graceful tunnel closing",
        CONFIG,
        {"spec": {"keep_alive_count_max": 3, "graceful_tunnel_closing": True}},
        plan,
        affected_count=agents,
    )
    return engine.create_change(
        "default", draft, RequestActor(Actor(ActorKind.PERSON, user.get_username(), user.pk)), timezone.now()
    )


@pytest.fixture
def task_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """What workers are given."""
    calls: list[tuple[str, tuple[int, ...]]] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, args: calls.append((name, args)))
    return calls


def _proven(client: Client, user: User) -> Client:
    client.force_login(user)
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})
    return client


def test_page_shows_the_plan(client: Client, person: MakeUser) -> None:
    """The number in the question and on the button, the rule by name, the stairs, every proxy."""
    change = make_plan(person("config admin"))
    client.force_login(User.objects.get())
    page = client.get(f"/changes/{change.pk}/").content.decode()
    for text in (
        "Close 3 tunnels of 2 agents?",
        "RFD 226",
        "2nd closing",
        "proxy-1",
        "2 to 3",
        "A note.",
        "not healthy",
    ):
        assert text in page
    assert "Close 3 tunnels</button>" in page
    assert "Agents with 1 tunnel after the closings" in page
    assert "Tunnels that open" not in page
    assert f"/changes/{change.pk}/" in client.get("/changes/").content.decode()


def test_plan_without_closings_shows_tunnels_that_open(client: Client, person: MakeUser) -> None:
    """With the numbers of the question; figures of closing tunnels are left out."""
    closing = {
        **PLAN["closing"], "closing_count": [0, 0], "excess_count": [0, 0], "agent_count": [0, 0], "steps": [],
        "single_tunnel_agent_count": 0, "opening_count": 10, "opening_agent_count": 8,
    }  # fmt: skip
    change = make_plan(person("config admin"), plan={**PLAN, "closing": closing})
    client.force_login(User.objects.get())
    page = client.get(f"/changes/{change.pk}/").content.decode()
    assert (
        '<dt>Tunnels that open</dt><dd id="opens">10 tunnels</dd><dd class="help">from 8 agents</dd>' in page
    )
    assert '<dd id="closes">0 tunnels</dd>' in page
    assert "Agents with 1 tunnel" not in page
    assert "Of these, with user connections" not in page


def test_confirm_requires_a_reason_and_starts_a_task(
    client: Client, person: MakeUser, task_calls: list[tuple[str, tuple[int, ...]]]
) -> None:
    """Without one a sentence at the field and nothing done; with it a task, by name."""
    change = make_plan(person("config admin"))
    _proven(client, User.objects.get())
    answer = client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": ""})
    assert 'id="reason-error"' in answer.content.decode()
    assert not task_calls
    client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "too many tunnels"})
    assert task_calls == [("fleet.tasks.run_change", (change.pk,))]
    change.refresh_from_db()
    assert (change.state, change.reason) == (ChangeState.CONFIRMED, "too many tunnels")


def test_confirm_of_a_large_change_requires_the_cluster_name(
    client: Client, person: MakeUser, task_calls: list[tuple[str, tuple[int, ...]]]
) -> None:
    """Above a hundred agents."""
    change = make_plan(person("config admin"), agents=101)
    _proven(client, User.objects.get())
    answer = client.post(
        f"/changes/{change.pk}/", {"do": "confirm", "reason": "because", "confirmation": "x"}
    )
    assert 'id="confirmation-error"' in answer.content.decode()
    client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "because", "confirmation": "default"})
    assert len(task_calls) == 1


def test_confirm_requires_recent_proof(
    client: Client, person: MakeUser, task_calls: list[tuple[str, tuple[int, ...]]]
) -> None:
    """A session alone is not enough."""
    change = make_plan(person("config admin"))
    client.force_login(User.objects.get())
    answer = client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "because"})
    assert answer.headers["Location"].startswith("/accounts/reauthenticate/")
    assert not task_calls


def test_change_requires_a_second_person(
    client: Client, person: MakeUser, task_calls: list[tuple[str, tuple[int, ...]]]
) -> None:
    """The first person has to wait; the second starts the change."""
    ensure_default_cluster()
    Cluster.objects.update(review_required=True)
    change = make_plan(person("config admin"))
    _proven(client, User.objects.get())
    plan_page = client.get(f"/changes/{change.pk}/").content.decode()
    assert "Request approval</button>" in plan_page
    assert "Close 3 tunnels</button>" not in plan_page
    page = client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "because"}, follow=True)
    assert "Review required" in page.content.decode()
    assert "Approve change" not in page.content.decode()
    forced = client.post(f"/changes/{change.pk}/", {"do": "approve"}).content.decode()
    assert "Review required: neither the author" in forced
    assert not task_calls
    _proven(client, person("admin"))
    assert "Approve change" in client.get(f"/changes/{change.pk}/").content.decode()
    client.post(f"/changes/{change.pk}/", {"do": "approve"})
    assert len(task_calls) == 1


def test_cancel_changes_nothing(client: Client, person: MakeUser) -> None:
    """Before it began."""
    change = make_plan(person("config admin"))
    client.force_login(User.objects.get())
    client.post(f"/changes/{change.pk}/", {"do": "cancel"})
    change.refresh_from_db()
    assert change.state == ChangeState.CANCELLED
    again = client.post(f"/changes/{change.pk}/", {"do": "cancel"}).content.decode()
    assert "is already cancelled" in again


def test_user_without_permission_is_refused(client: Client, person: MakeUser) -> None:
    """An operator sees the plan and no button."""
    change = make_plan(person("operator"))
    client.force_login(User.objects.get())
    assert "Close 3 tunnels</button>" not in client.get(f"/changes/{change.pk}/").content.decode()
    assert client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "x y z"}).status_code == 403
    assert client.get("/changes/999/").status_code == 404


def test_outcome_beside_the_plan(client: Client, person: MakeUser) -> None:
    """What happened so far, and the difference."""
    change = make_plan(person("config admin"))
    engine.update_change(change, state="verified", outcome={
        "closed_count": 2, "missing_agent_count": 1, "difference": -1, "opened_count": 0, "expected_opened_count": 0,
        "expected_closed_count": [3, 3], "closing_curve": [[0.0, 0], [9.0, 2]],
    })  # fmt: skip
    client.force_login(User.objects.get())
    page = client.get(f"/changes/{change.pk}/").content.decode()
    assert "1 fewer closed than expected" in page
    assert "1 of the agents whose tunnels change is no longer in the fleet" in page


def _policy_change(user: User) -> Change:
    ensure_default_cluster()
    draft = ChangeDraft(
        ChangeKind.POLICY,
        "1 policy of auths",
        {},
        {"auth": {"X": "1"}},
        {},
        parameters=asdict(RolloutSettings()),
    )
    return engine.create_change(
        "default", draft, RequestActor(Actor(ActorKind.PERSON, user.get_username(), user.pk)), timezone.now()
    )


def test_change_of_policies_is_taken_back_by_a_plan(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offered once it is over, and while its values are the present ones; a request that comes later is refused."""
    monkeypatch.setattr(record_reader, "policy_report_store", FakePolicyBook)
    change = _policy_change(person("config admin"))
    client.force_login(User.objects.get())
    assert "Undo change" not in client.get(f"/changes/{change.pk}/").content.decode()
    engine.transition(change, ChangeState.CONFIRMED, timezone.now())
    engine.start(change, timezone.now())
    engine.transition(change, ChangeState.CANCELLED, timezone.now())
    desired_policy = DesiredPolicy.objects.create(cluster_id="default", target="auth", name="X", value="1")
    assert "Undo change" in client.get(f"/changes/{change.pk}/").content.decode()
    desired_policy.delete()
    assert "Undo change" not in client.get(f"/changes/{change.pk}/").content.decode()
    assert "changed again since" in client.post(f"/changes/{change.pk}/", {"do": "undo"}).content.decode()
    client.force_login(person("operator"))
    assert client.post(f"/changes/{change.pk}/", {"do": "undo"}).status_code == 403


@pytest.mark.parametrize("states", [(), (ChangeState.CONFIRMED,)])
def test_policy_change_that_never_started_has_no_undo_and_no_progress(
    client: Client,
    person: MakeUser,
    fake_reader: FakeReader,
    monkeypatch: pytest.MonkeyPatch,
    states: tuple[ChangeState, ...],
) -> None:
    """It did nothing: neither its progress nor an undo is offered, and it has not undone another change."""
    monkeypatch.setattr(record_reader, "policy_report_store", FakePolicyBook)
    change = _policy_change(person("config admin"))
    original_change = _policy_change(User.objects.get())
    engine.update_change(change, undoes=original_change)
    client.force_login(User.objects.get())
    assert "Undoes <a" in client.get(f"/changes/{change.pk}/").content.decode()
    for state in (*states, ChangeState.CANCELLED):
        engine.transition(change, state, timezone.now())
    html = client.get(f"/changes/{change.pk}/").content.decode()
    assert "Would have undone <a" in html
    assert "Rollout progress" not in html
    assert '<div id="rollout"></div>' in html  # replaces the progress on open pages
    assert "Undo change" not in html
    answer = client.post(f"/changes/{change.pk}/", {"do": "undo"})
    assert "This change never started, so there is nothing to undo." in answer.content.decode()
    assert Change.objects.count() == 2


def test_outdated_policy_plan_is_refused(client: Client, person: MakeUser) -> None:
    """The page offers no confirmation, and a confirmation from an older page is refused with the reason."""
    change = _policy_change(person("config admin"))
    _proven(client, User.objects.get())
    assert 'name="reason"' in client.get(f"/changes/{change.pk}/").content.decode()
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="5m")
    page = client.get(f"/changes/{change.pk}/").content.decode()
    assert "current desired values</a>" in page
    assert 'name="reason"' not in page
    form = {"do": "confirm", "reason": "of a page from before"}
    assert (
        "Out of date: the desired values were changed"
        in client.post(f"/changes/{change.pk}/", form).content.decode()
    )
    change.refresh_from_db()
    assert change.state == "planned"


def test_change_of_the_config_is_taken_back_by_a_plan(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """Offered once it was written, not of what was called off; what somebody else wrote since stays."""
    store_revision(STORED, "r1")
    client.force_login(person("config admin"))
    client.post("/networking/", sent_form(keep_alive_count_max="7"))
    change = Change.objects.get()
    engine.transition(change, ChangeState.CONFIRMED, timezone.now())
    engine.start(change, timezone.now())
    engine.transition(change, ChangeState.VERIFIED, timezone.now())
    store_revision(replace(STORED, keep_alive_count_max=7, web_idle_timeout=60.0), "r2")
    assert "Undo change" in client.get(f"/changes/{change.pk}/").content.decode()
    page = client.post(f"/changes/{change.pk}/", {"do": "undo"}, follow=True)
    back = Change.objects.get(undoes=change)
    assert [(row.key, row.before, row.after) for row in page.context["diff"]] == [
        ("keep_alive_count_max", "7", "3")
    ]
    engine.transition(back, ChangeState.CANCELLED, timezone.now())
    assert "Undo change" not in client.get(f"/changes/{back.pk}/").content.decode()


def test_outdated_plan_shows_three_versions(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """Two plans on one revision: the second cannot be confirmed, only rebased."""
    store_revision(STORED, "r1")
    client.force_login(person("config admin"))
    client.post("/networking/", sent_form(keep_alive_count_max="7"))
    change = Change.objects.get()
    store_revision(replace(STORED, web_idle_timeout=60.0), "r2")
    page = client.get(f"/changes/{change.pk}/")
    assert {row.key for row in page.context["conflict"]["rows"]} == {
        "keep_alive_count_max",
        "web_idle_timeout",
    }
    html = page.content.decode()
    assert "Plan again with current values" in html
    assert 'name="reason"' not in html
    _proven(client, User.objects.get())
    confirm_form = {"do": "confirm", "reason": "of a page from before"}
    assert (
        "wrote revision r2 in the meantime"
        in client.post(f"/changes/{change.pk}/", confirm_form).content.decode()
    )
    change.refresh_from_db()
    assert change.state == "planned"
    stale = page.context["conflict"]
    form = client.post(
        "/networking/", {"tab": "yaml", "yaml": stale["yaml"], "revision": stale["revision"], "rebase": "1"}
    ).context["tab"]
    assert "keep_alive_count_max: 7" in form.yaml
    assert "web_idle_timeout: 1m0s" in form.yaml


def test_missing_reason_leaves_no_audit_entry(client: Client, person: MakeUser) -> None:
    """The form comes back with its error; a reason that is too short is an attempt."""
    user = person("config admin")
    client.force_login(user)
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})
    change = make_plan(user)
    entry_count = AuditEntry.objects.count()
    assert 'id="reason-error"' in client.post(f"/changes/{change.pk}/", {"do": "confirm"}).content.decode()
    assert AuditEntry.objects.count() == entry_count
    client.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "x"})
    assert AuditEntry.objects.count() == entry_count + 1


def test_change_that_cannot_be_undone_says_why(client: Client, person: MakeUser) -> None:
    """In the list and on its page."""
    client.force_login(person("config admin"))
    ensure_default_cluster()
    change = Change.objects.create(
        cluster_id="default",
        kind="retire",
        title="Retire agent-1",
        actor_name="a",
        actor_kind="person",
        state="verified",
        started_at=timezone.now(),
        after={"is_retired": True},
        before={},
        parameters={"agents": {"id-1": ["agent-1", 0]}},
    )
    for path in ("/changes/", f"/changes/{change.pk}/"):
        html = client.get(path).content.decode().lower()
        assert "superseded: later requests reversed it for all its agents" in html


def test_instance_back_in_service_offers_to_spread_agents(client: Client, person: MakeUser) -> None:
    client.force_login(person("operator"))
    ensure_default_cluster()
    change = Change.objects.create(
        cluster_id="default",
        kind="service",
        title="Bring auth-1 back into service",
        actor_name="a",
        actor_kind="person",
        state="verifying",
        started_at=timezone.now(),
        before={},
        after={"instance": "1", "name": "auth-1", "kind": "auth", "is_drained": False},
        plan={"notes": ["Agents move there only when they reconnect."]},
    )
    html = client.get(f"/changes/{change.pk}/").content.decode()
    assert 'href="/reconnect/?connection=auth&amp;spread=1">Spread agents…' in html


def test_list_says_how_many_changes_were_carried_out(client: Client, person: MakeUser) -> None:
    """What charts count; plans that never started are counted apart."""
    user = person("config admin")
    client.force_login(user)
    assert "All time:" not in client.get("/changes/").content.decode()
    for _ in range(3):
        make_plan(user)
    engine.transition(Change.objects.all()[0], ChangeState.CANCELLED, timezone.now())
    carried_out = Change.objects.all()[1]
    engine.transition(carried_out, ChangeState.CONFIRMED, timezone.now())
    engine.start(carried_out, timezone.now())
    page = client.get("/changes/").content.decode()
    assert "All time: 1 carried out, 2 planned or cancelled before the start." in page
