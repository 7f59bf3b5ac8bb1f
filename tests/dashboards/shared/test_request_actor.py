from __future__ import annotations

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.utils import timezone
from kombu.exceptions import OperationalError

from dashboards.shared.request_actor import actor_of, enqueue, request_id_of
from fleet.models.tokens import create_token
from fleet.vocabulary.changes import ActorKind


def test_request_id_is_taken_from_the_header_or_generated() -> None:
    """One id for the whole request; an invalid header is ignored."""
    request = RequestFactory().get("/", headers={"X-Request-Id": "abc-1"})
    assert request_id_of(request) == "abc-1"
    strange = RequestFactory().get("/", headers={"X-Request-Id": "a b\n"})
    assert request_id_of(strange) == request_id_of(strange) != "a b\n"


@pytest.mark.django_db
def test_actor_name_is_a_person_or_their_token() -> None:
    """The name that the audit log stores."""
    user = User.objects.create_user("alice")
    token, _ = create_token(user, "probe", [], lifetime=None, now=timezone.now())
    request = RequestFactory().get("/", headers={"Idempotency-Key": "k"})
    assert (actor_of(request, user).identity.name, actor_of(request, user).idempotency_key) == ("alice", "k")
    actor = actor_of(request, user, token).identity
    assert (actor.kind, actor.name) == (ActorKind.TOKEN, f"API token probe ({token.prefix}) of user alice")


def test_enqueue_without_a_broker_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beat looks for what was lost: the page must not fail."""

    def refuse(name: str, args: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(current_app, "send_task", refuse)
    enqueue("fleet.tasks.x", 1)
    assert "was not sent, because the broker is unavailable" in caplog.text
