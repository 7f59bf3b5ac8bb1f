"""The page that asks before a change in progress is aborted."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from dashboards.shared import record_reader
from fleet.changes import engine
from fleet.changes.policies import desired_state
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import ChangeState
from tests.dashboards.conftest import MakeUser
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser of a config admin; two auths that report."""
    ensure_default_cluster()
    book = FakePolicyBook(auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2"))
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: book)
    client.force_login(person("config admin"))
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})
    return client


@pytest.fixture
def rollout(page: Client) -> Change:
    """A running rollout, of which the first auth restarts."""
    form = {AUTH_TTL_VARIABLE: "20s", "roll_out": "on"}
    page.post("/policies/auth/", {"revision": desired_state.revision_of({}), **form})
    change = Change.objects.get()
    desired_state.store_desired_values(change)
    engine.transition(change, ChangeState.CONFIRMED, timezone.now())
    engine.start(change, timezone.now())
    change.rollout_steps.filter(name="auth-1").update(state="restarting")
    return change


def test_page_says_what_stays_and_aborts(page: Client, rollout: Change) -> None:
    path = f"/changes/{rollout.pk}/abort/"
    assert f'data-dialog href="{path}"' in page.get(f"/changes/{rollout.pk}/").content.decode()
    html = page.get(path).content.decode()
    assert "The rollout continues until you abort it. If you abort it now:" in html
    assert "auth-1 keeps restarting with auth announce TTL 20 s." in html
    assert (
        "auth-2 keeps 10 min, also after a restart: only a rollout gives it auth announce TTL 20 s." in html
    )
    response = page.post(path)
    assert response.headers["Location"] == f"/changes/{rollout.pk}/"
    rollout.refresh_from_db()
    assert rollout.state_label == "aborted"
    html = page.get(f"/changes/{rollout.pk}/").content.decode()
    assert "Restarted <b>0</b> of 2 instances" in html
    assert "<b>1</b> not restarted (skipped)" in html
    assert '<rect class="part tag-skipped" x="0.0" width="50.0"' in html
    assert "Refloat still follows the restart in progress to its end." in html
    assert 'id="rollout" aria-labelledby="rollout-title" data-refresh' in html
    assert 'value="undo"' in html
    assert 'value="finish"' not in html
    assert page.get(path).status_code == 302


def test_aborted_rollout_can_be_finished(page: Client, rollout: Change) -> None:
    page.post(f"/changes/{rollout.pk}/abort/")
    rollout.rollout_steps.filter(name="auth-1").update(state="failed")
    html = page.get(f"/changes/{rollout.pk}/").content.decode()
    assert 'value="finish"' in html
    response = page.post(f"/changes/{rollout.pk}/", {"do": "finish"})
    plan = Change.objects.get(state="planned")
    assert response.headers["Location"] == f"/changes/{plan.pk}/"
    assert [row.name for row in plan.rollout_steps.all()] == ["auth-1", "auth-2"]


def test_second_abort_is_refused_with_a_sentence(page: Client, rollout: Change) -> None:
    path = f"/changes/{rollout.pk}/abort/"
    page.post(path)
    assert "already cancelled" in page.post(path).content.decode()


def test_abort_needs_the_permission_of_the_change(client: Client, person: MakeUser, rollout: Change) -> None:
    client.force_login(person("operator"))
    assert client.get(f"/changes/{rollout.pk}/abort/").status_code == 302
    assert client.post(f"/changes/{rollout.pk}/abort/").status_code == 403


def test_undo_that_was_cancelled_undid_nothing(page: Client, rollout: Change) -> None:
    """The page names a change that undoes this one only when that has started."""
    page.post(f"/changes/{rollout.pk}/abort/")
    page.post(f"/changes/{rollout.pk}/", {"do": "undo"})
    undo = Change.objects.get(undoes=rollout)
    assert "ndone by" not in page.get(f"/changes/{rollout.pk}/").content.decode()
    engine.transition(undo, ChangeState.CANCELLED, timezone.now())
    assert "ndone by" not in page.get(f"/changes/{rollout.pk}/").content.decode()
    Change.objects.filter(pk=undo.pk).update(started_at=timezone.now(), ended_at=None)
    assert (
        f'Being undone by <a href="/changes/{undo.pk}/">'
        in page.get(f"/changes/{rollout.pk}/").content.decode()
    )


def test_aborted_changes_have_a_filter_of_their_own(page: Client, rollout: Change) -> None:
    """A plan that was cancelled never ran."""
    page.post(f"/changes/{rollout.pk}/abort/")
    page.post(f"/changes/{rollout.pk}/", {"do": "undo"})
    engine.transition(Change.objects.get(undoes=rollout), ChangeState.CANCELLED, timezone.now())
    for state, numbers in (("aborted", [rollout.pk]), ("cancelled", [rollout.pk + 1])):
        response = page.get("/changes/", {"state": state})
        assert [row["change"].pk for row in response.context["rows"]] == numbers
    assert '<option value="aborted">aborted</option>' in page.get("/changes/").content.decode()


def test_aborted_rollout_is_not_compared_with_the_forecast(page: Client, rollout: Change) -> None:
    """That was for all restarts."""
    page.post(f"/changes/{rollout.pk}/abort/")
    Change.objects.filter(pk=rollout.pk).update(
        outcome={"actual_loads": {"auth-1": 3, "auth-2": 0}, "reconnect_count": 7}
    )
    html = page.get(f"/changes/{rollout.pk}/").content.decode()
    assert "<dt>Expected reconnects of the whole rollout</dt>" in html
    assert '<dd id="reconnects">7</dd>' in html
    assert "The forecast was for the whole rollout, which was aborted." in html
    assert "Largest difference" not in html


def test_policies_offer_to_finish_the_last_rollout(page: Client, rollout: Change) -> None:
    """Once no instance of the aborted rollout is in progress; not after the desired values changed."""
    button = 'name="do" value="finish">Finish rollout'
    assert page.get("/policies/").context["aborted_rollout"] is None
    page.post(f"/changes/{rollout.pk}/abort/")
    html = page.get("/policies/").content.decode()
    assert "The last rollout was aborted" in html
    assert "auth-1 is still restarting" in html
    assert button not in html
    rollout.rollout_steps.filter(name="auth-1").update(state="failed")
    html = page.get("/policies/").content.decode()
    assert f'action="/changes/{rollout.pk}/"' in html
    assert button in html
    response = page.post(f"/changes/{rollout.pk}/", {"do": "finish"})
    completion = Change.objects.latest("pk")
    assert response.headers["Location"] == f"/changes/{completion.pk}/"
    assert [row["name"] for row in completion.plan["restarts"]] == ["auth-1", "auth-2"]
    DesiredPolicy.objects.all().delete()
    assert page.get("/policies/").context["aborted_rollout"] is None
