"""Every attempt leaves one row in the log, however it ends."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import HttpResponse, HttpResponseRedirect
from django.test import AsyncClient, Client, RequestFactory
from django.utils import timezone

from dashboards.shared import refusals, request_log
from fleet.models.access import Permission, create_roles, set_role
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.models.tokens import create_token

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _cluster() -> None:
    create_roles()
    Cluster.objects.create(id="default", name="Default")


def _user(role: str) -> User:
    user = User.objects.create_user(f"the-{role}".replace(" ", "-"), password="x")
    set_role(user, role)
    return user


def _only_entry() -> AuditEntry:
    return AuditEntry.objects.get()


@pytest.mark.parametrize("path", ["/reconnect/", "/c/default/reconnect/", "/alerts/channels/1/"])
def test_refused_at_the_door_of_a_page(client: Client, path: str) -> None:
    """Who, what, and which permission was missing; looking at it leaves none."""
    client.force_login(_user("viewer"))
    assert client.get(path).status_code == 403
    assert not AuditEntry.objects.exists()
    assert client.post(path, {}, headers={"X-Request-Id": "req-7"}).status_code == 403
    row = _only_entry()
    assert (row.actor_name, row.outcome, row.request_id, row.subject) == (
        "the-viewer",
        "refused",
        "req-7",
        path,
    )
    assert row.detail.startswith("Not allowed: this action needs the role ")
    assert row.action in ("page.reconnect", "page.channel")


def test_refused_at_the_door_of_a_change(client: Client) -> None:
    """The row names the change, so that its page shows the attempt; a page or the API, it is the same."""
    row = Change.objects.create(
        cluster_id="default", kind="policy", title="x", actor_name="a", actor_kind="person", state="running"
    )
    viewer = _user("viewer")
    client.force_login(viewer)
    assert client.post(f"/changes/{row.pk}/", {"do": "pause"}).status_code == 403
    _, secret = create_token(viewer, "t", list(Permission), lifetime=None, now=timezone.now())
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.post(f"/api/v1/changes/{row.pk}/cancel", headers=bearer).status_code == 403
    client.post(f"/api/v1/changes/{10**20}/cancel", headers=bearer)
    entries = AuditEntry.objects.order_by("pk").values_list("action", "change_id", "outcome")
    assert list(entries) == [
        ("page.change.pause", row.pk, "refused"),
        ("api.cancel_change", row.pk, "refused"),
        ("api.cancel_change", None, "refused"),
    ]


def test_refused_api_requests_are_logged(client: Client) -> None:
    """A role that may not, a token without the scope, a body that cannot be read: a row each, with the sentence."""
    viewer, admin = _user("viewer"), _user("admin")
    for user, scope in (
        (viewer, Permission.VIEW_FLEET),
        (admin, Permission.VIEW_FLEET),
        (admin, Permission.ACT_ON_FLEET),
    ):
        _, secret = create_token(user, "t", [scope], lifetime=None, now=timezone.now())
        client.post(
            "/api/v1/reconnect/plan",
            "nonsense",
            "application/json",
            headers={"Authorization": f"Bearer {secret}"},
        )
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [(row.action, row.outcome, row.actor_kind) for row in rows] == [
        ("api.plan_reconnect_campaign", "refused", "token")
    ] * 3
    assert ["scope" in row.detail for row in rows] == [True, True, False]
    assert rows[0].actor_name.endswith("of user the-viewer")
    assert rows[2].detail == "The request body is not valid JSON."


def test_anonymous_requests_are_not_logged(client: Client) -> None:
    """Requests without a user have no row, neither sign-ins nor unknown addresses."""
    client.post("/reconnect/", {})
    client.post(
        "/api/v1/reconnect/plan", "{}", "application/json", headers={"Authorization": "Bearer rfl_no"}
    )
    user = _user("viewer")
    client.post("/accounts/login/", {"login": user.username, "password": "wrong"})
    client.force_login(user)
    client.post("/no/such/page/", {})
    assert not AuditEntry.objects.exists()


def test_refusal_that_the_view_logs_is_logged_once(client: Client) -> None:
    """An action with a row of its own gets no second one, done or refused."""
    client.force_login(_user("admin"))
    client.post("/changes/9999/", {"do": "pause"})
    assert not AuditEntry.objects.exists()
    _, secret = create_token(User.objects.get(), "t", list(Permission), lifetime=None, now=timezone.now())
    bearer = {"Authorization": f"Bearer {secret}"}
    answer = client.post(
        "/api/v1/networking-config/plan", "{}", "application/json", headers={**bearer, "If-Match": '"7"'}
    )
    assert answer.status_code in (400, 409, 412)
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize(("body", "rows"), [({"show": "yaml"}, 0), ({"do": "try"}, 0), ({"name": ""}, 1)])
def test_looking_is_no_attempt(client: Client, body: dict[str, str], rows: int) -> None:
    """Previews are not attempts; a form that is shown again with errors is one."""
    request = RequestFactory().post("/networking/", body)
    request.user = _user("admin")
    request_log.record_attempt(request, HttpResponse("the form"), 0)
    assert AuditEntry.objects.count() == rows


@pytest.mark.parametrize("reason", ["", "The note is empty."])
def test_logged_outcome_does_not_depend_on_the_redirect(client: Client, reason: str) -> None:
    """The log keeps what was decided with the request; where people are led, and what they read there, is no sign."""
    request = RequestFactory().post("/incidents/1/", {"do": "note"})
    request.user = _user("admin")
    if reason:
        refusals.record(request, reason)
    request_log.record_attempt(request, HttpResponseRedirect("/incidents/1/?about=reauthenticate"), 0)
    assert (_only_entry().outcome, _only_entry().detail) == ("refused" if reason else "succeeded", reason)


def test_old_proof_is_logged(client: Client) -> None:
    """The attempt is in the log, although the request was redirected to the password form."""
    client.force_login(_user("viewer"))
    answer = client.post("/tokens/", {"name": "t", "scopes": ["view_metrics"], "days": "30"})
    assert answer["Location"].startswith("/accounts/reauthenticate/")
    assert (_only_entry().outcome, _only_entry().detail) == ("refused", "the password must be entered again")


def test_version_that_is_missing_or_wrong_is_logged(client: Client) -> None:
    """428: the log has the user of the request without If-Match."""
    _, secret = create_token(_user("admin"), "t", list(Permission), lifetime=None, now=timezone.now())
    answer = client.post(
        "/api/v1/policies/plan",
        '{"desired_values": {}}',
        "application/json",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert answer.status_code == 428
    assert (_only_entry().outcome, _only_entry().action) == ("refused", "api.plan_policy_change")
    assert "If-Match" in _only_entry().detail


@pytest.mark.parametrize("prefix", ["/api/v1", "/api/v1/clusters/default"])
def test_operations_of_one_path_are_logged_by_their_own_names(client: Client, prefix: str) -> None:
    """GET /silences lists, POST /silences creates."""
    _, secret = create_token(_user("viewer"), "t", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now())
    answer = client.post(
        f"{prefix}/silences", "{}", "application/json", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status_code == 403
    assert (_only_entry().outcome, _only_entry().action) == ("refused", "api.create_silence")


def test_under_asgi(async_client: AsyncClient) -> None:
    """Where the console really runs, views work in another thread than what counts their rows."""
    async_client.force_login(_user("viewer"))
    answer = async_to_sync(async_client.post)("/reconnect/", {})
    assert answer.status_code == 403
    assert _only_entry().detail.startswith("Not allowed: this action needs the role ")
    async_client.force_login(_user("admin"))
    async_to_sync(async_client.post)("/reconnect/", {"q": "nobody"})
    assert AuditEntry.objects.count() == 2
