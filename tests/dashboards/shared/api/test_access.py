"""Who may use an API route: permissions of the user, scopes of the token, the CSRF token of a session."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.tokens import create_token
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db

#: Needs `act_on_fleet`. With a body that lacks a field, the handler is not reached by anybody who is admitted.
PATH = "/api/v1/clusters/default/retirements"


def _post(client: Client, **headers: str) -> HttpResponse:
    return client.post(PATH, {}, content_type="application/json", headers=headers)


def _bearer(user: User, *scopes: Permission) -> str:
    _, secret = create_token(user, "deploy", list(scopes), lifetime=None, now=timezone.now())
    return f"Bearer {secret}"


def test_token_needs_the_scope_of_the_route(record: Writer, person: MakeUser) -> None:
    """Its user may do it; the token was made for less."""
    operator = person("operator")
    refusal = _post(Client(), authorization=_bearer(operator, Permission.VIEW_FLEET))
    assert refusal.status_code == 403
    assert "does not have the scope act_on_fleet" in refusal.content.decode()
    admitted = _post(Client(), authorization=_bearer(operator, Permission.ACT_ON_FLEET))
    assert admitted.status_code == 400


def test_token_has_no_more_rights_than_its_user(record: Writer, person: MakeUser) -> None:
    """The scope was granted when the user had another role, or by somebody else."""
    refusal = _post(Client(), authorization=_bearer(person("viewer"), Permission.ACT_ON_FLEET))
    assert refusal.status_code == 403
    assert "needs the role operator" in refusal.content.decode()


def test_unknown_token_is_no_sign_in(record: Writer, person: MakeUser) -> None:
    """Not even beside a session: a program that sends a wrong token is told so."""
    client = Client()
    client.force_login(person("operator"))
    assert _post(client, authorization="Bearer rfl_nobody_nothing").status_code == 401
    assert _post(Client()).status_code == 401


def test_session_needs_the_csrf_token(record: Writer, person: MakeUser) -> None:
    """A page of another site can send the cookie, but not the token."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(person("operator"))
    refusal = _post(client)
    assert refusal.status_code == 403
    assert "CSRF token" in refusal.content.decode()
    client.get("/")
    token = client.cookies["csrftoken"].value
    assert _post(client, **{"x-csrftoken": token}).status_code == 400


def test_session_needs_the_permission(record: Writer, person: MakeUser) -> None:
    client = Client()
    client.force_login(person("viewer"))
    refusal = _post(client)
    assert refusal.status_code == 403
    assert "needs the role operator" in refusal.content.decode()
