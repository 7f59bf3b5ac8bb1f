from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.models.access import Permission
from fleet.models.alerting import Channel, Delivery, Route
from fleet.models.changes import AuditEntry
from fleet.models.sealed_secrets import unseal
from fleet.models.tokens import create_token
from tests.dashboards.alerts.api.conftest import get, post
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db

_HOOK: dict[str, Any] = {
    "name": "ops", "kind": "webhook",
    "values": {"url": "https://hooks.example.com/T0/s3cret", "signing_key": "s3cret-key"},
}  # fmt: skip


def _secrets_of(number: int) -> dict[str, str]:
    return unseal(Channel.objects.get(pk=number).secrets)


def test_channel_is_created_listed_changed_and_deleted(client: Client, config_admin: dict[str, str]) -> None:
    """Secrets are stored, kept by a change, and in no response and no audit entry."""
    response = post(client, "channels", _HOOK, config_admin)
    assert response.status_code == 201, response.content
    channel = response.json()
    assert channel["has_secrets"] == {"url": True, "signing_key": True}
    assert (channel["destination"], channel["values"]) == ("https://hooks.example.com/…", {})
    assert (channel["digest"], channel["cluster"], channel["usages"][0]) == ("weekly", "", "Everything")
    path = f"channels/{channel['number']}"
    root = Route.objects.get()
    assert channel.pop("route") == root.pk
    assert channel.pop("routing") == (
        "As the first channel, it was added to the route Everything: critical incidents and warnings notify it. Change "
        "that route to notify it of other incidents."
    )
    assert get(client, "channels", config_admin).json()["channels"] == [channel]
    assert get(client, path, config_admin).json() == channel
    changed_channel = post(
        client, path, {"name": "ops 2", "is_enabled": False, "version": channel["version"]}, config_admin
    ).json()
    assert (changed_channel["name"], changed_channel["is_enabled"], changed_channel["has_secrets"]) == (
        "ops 2",
        False,
        channel["has_secrets"],
    )
    assert _secrets_of(channel["number"]) == _HOOK["values"]
    assert post(client, path, {"name": "x", "version": channel["version"]}, config_admin).status_code == 409
    assert post(client, f"{path}/test", {}, config_admin).status_code == 409
    assert post(client, f"{path}/delete", {}, config_admin).json() == {
        "number": channel["number"], "name": "ops 2", "unsent_count": 0,
    }  # fmt: skip
    assert not Channel.objects.exists()
    entries = list(AuditEntry.objects.order_by("pk").values())
    assert [entry["action"] for entry in entries if entry["outcome"] == "succeeded"] == [
        "channel.create", "route.update", "channel.update", "channel.delete",
    ]  # fmt: skip
    assert [entry["after"]["channels"] for entry in entries if entry["action"] == "route.update"] == [["ops"]]
    second_channel = post(client, "channels", _HOOK | {"name": "second"}, config_admin).json()
    assert second_channel["routing"].startswith("As the first channel")  # the only one again
    third_channel = post(client, "channels", _HOOK | {"name": "third"}, config_admin).json()
    assert (third_channel["route"], third_channel["routing"]) == (
        None,
        "No route uses it yet: add a route to notify it.",
    )
    assert "s3cret" not in str(entries)


def test_another_origin_needs_the_secrets_again(client: Client, config_admin: dict[str, str]) -> None:
    """As on the page; another path keeps them, and an empty text removes them."""
    number = post(client, "channels", _HOOK, config_admin).json()["number"]
    path = f"channels/{number}"
    post(client, path, {"values": {"url": "https://hooks.example.com/other"}}, config_admin)
    assert _secrets_of(number)["signing_key"] == "s3cret-key"
    values = {"url": "https://evil.example.com/other"}
    answer = post(client, path, {"values": values}, config_admin)
    assert (answer.status_code, "enter the signing key again, or remove it" in answer.content.decode()) == (
        400,
        True,
    )
    assert _secrets_of(number)["signing_key"] == "s3cret-key"
    post(client, path, {"values": values | {"signing_key": ""}}, config_admin)
    assert _secrets_of(number) == {"url": "https://evil.example.com/other"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"values": {}}, "url"),
        ({"values": {"url": "file:///etc/passwd"}}, "url"),
        ({"values": {"url": "https://x.example.com", "colour": "red"}}, "values"),
        ({"kind": "email", "values": {"to": "nobody"}}, "to"),
        ({"kind": "pagerduty", "values": {"routing_key": ""}}, "routing_key"),
        ({"digest": "hourly"}, "digest"),
        ({"kind": "pagerduty", "values": {"routing_key": "k"}, "digest": "weekly"}, "digest"),
        ({"name": " "}, "name"),
        ({"name": "a\0"}, "name"),
        ({"values": {"url": "https://hooks.example.com/x", "signing_key": "a\nb"}}, "signing_key"),
        ({"name": "taken"}, "name"),
        ({"kind": "pigeon"}, ""),
        ({"per_minute": 0}, ""),
        ({"secret": "x"}, ""),
    ],
)
def test_channel_that_cannot_work_is_refused(
    client: Client, config_admin: dict[str, str], wrong: dict[str, Any], field: str
) -> None:
    """With a sentence for the field."""
    Channel.objects.create(name="taken", kind="email", config={"to": "a@example.com"})
    response = post(client, "channels", _HOOK | wrong, config_admin)
    assert response.status_code == 400
    assert list(response.json().get("problems", {})) == ([field] if field else [])
    assert Channel.objects.count() == 1


def test_private_addresses_require_the_permission_and_the_scope(
    client: Client, config_admin: dict[str, str], person: MakeUser
) -> None:
    """403 for others, also for an admin whose token lacks the scope."""
    body = _HOOK | {"allow_private": True}
    assert post(client, "channels", body, config_admin).status_code == 403
    admin = person("admin")
    statuses = []
    for scopes in ([Permission.CHANGE_CONFIG], [Permission.CHANGE_CONFIG, Permission.MANAGE_ACCESS]):
        _, secret = create_token(
            admin, f"t{len(scopes)}", scopes, lifetime=timedelta(days=1), now=timezone.now()
        )
        statuses.append(post(client, "channels", body, {"Authorization": f"Bearer {secret}"}).status_code)
    assert statuses == [403, 201]


def test_test_is_queued_and_its_outcome_is_that_of_the_card(
    client: Client, config_admin: dict[str, str]
) -> None:
    """The response of the receiver, or the error."""
    number = post(client, "channels", _HOOK, config_admin).json()["number"]
    assert (
        post(client, f"channels/{number}/test", {}, config_admin).json()["last_attempt"]["state"] == "sending"
    )
    for columns, state, detail in (
        ({"sent_at": 5.0, "receipt": {"response": "ok"}}, "sent", "ok"),
        ({"sent_at": None, "failed_at": 5.0, "last_error": "refused"}, "failed", "refused"),
    ):
        Delivery.objects.update(attempts=1, attempted_at=5.0, **columns)
        attempt = get(client, f"channels/{number}", config_admin).json()["last_attempt"]
        assert (attempt["state"], attempt["is_test"], attempt["detail"]) == (state, True, detail)


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_every_kind_is_created_by_its_fields(client: Client, config_admin: dict[str, str], kind: str) -> None:
    """A plain value is in the response, a secret one is not."""
    values = {
        "slack": {"token": "xoxb-s3cret", "channel": "#ops"},
        "email": {"to": "a@example.com"},
        "pagerduty": {"routing_key": "s3cret"},
        "apprise": {"url": "tgram://123456789:abcdefg_hijklmnop/12345"},
    }.get(kind, {"url": "https://hooks.example.com/s3cret"})
    response = post(client, "channels", {"name": kind, "kind": kind, "values": values}, config_admin)
    assert response.status_code == 201, response.content
    secret_keys = {field.key for field in CHANNEL_KINDS[kind].fields if field.is_secret}
    channel = response.json()
    assert channel["values"] == {key: value for key, value in values.items() if key not in secret_keys}
    assert {key for key, is_stored in channel["has_secrets"].items() if is_stored} == secret_keys & set(
        values
    )


def test_limited_user_sees_no_address_of_the_installation(
    client: Client, config_admin: dict[str, str], make_limited_user: MakeUser
) -> None:
    """And changes only channels of its cluster."""
    body = {"name": "mail", "kind": "email", "values": {"to": "boss@example.com"}}
    number = post(client, "channels", body, config_admin).json()["number"]
    user = make_limited_user("config admin")
    _, secret = create_token(
        user, "t", [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG], lifetime=timedelta(days=1),
        now=timezone.now(),
    )  # fmt: skip
    headers = {"Authorization": f"Bearer {secret}"}
    response = get(client, "clusters/other/channels", headers)
    assert response.json()["channels"][0]["number"] == number
    assert "boss@" not in response.content.decode()
    assert post(client, f"clusters/other/channels/{number}", {"name": "x"}, headers).status_code == 403
    assert post(client, "clusters/other/channels", body, headers).status_code == 403
    assert post(client, "clusters/other/channels", body | {"scope": "cluster"}, headers).status_code == 201


def test_token_that_only_reads_sees_no_path_of_an_address(
    client: Client, config_admin: dict[str, str], person: MakeUser
) -> None:
    """The path of a URL often is a secret."""
    values = {"url": "https://alerts.example.com/s3cret"}
    post(client, "channels", {"name": "am", "kind": "alertmanager", "values": values}, config_admin)
    (channel,) = get(client, "channels", config_admin).json()["channels"]
    assert channel["values"] == values
    _, secret = create_token(
        person("viewer"), "t", [Permission.VIEW_FLEET], lifetime=timedelta(days=1), now=timezone.now()
    )
    response = get(client, "channels", {"Authorization": f"Bearer {secret}"})
    assert response.json()["channels"][0]["destination"] == "https://alerts.example.com/…"
    assert "s3cret" not in response.content.decode()


def test_unknown_channel_is_not_found(client: Client, config_admin: dict[str, str]) -> None:
    """Whatever is asked of it."""
    for path in ("channels/77", "channels/77/test", "channels/77/delete"):
        assert post(client, path, {}, config_admin).status_code == 404
    assert Route.objects.count() == 1
