"""API routes of notification channels. Secrets are only written, never read. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.alerts.api.setup_fields import (
    CHANGE,
    VIEW,
    Name,
    Scope,
    Version,
    require_new_owner,
    require_writable,
)
from dashboards.alerts.api.writable_rows import require_owner, require_row
from dashboards.alerts.channel_cards import make_channel_card
from dashboards.shared import record_reader
from dashboards.shared.api.access import describe_missing_scope
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_cluster,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.permissions import describe_missing_permission, find_write_refusal
from fleet.alerts import incident_actions
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.setup import channels as channel_setup
from fleet.alerts.setup.versions import version_of
from fleet.models.access import Permission, can_write, has_cluster_limit
from fleet.models.alerting import Channel, filter_applicable_to
from fleet.models.tokens import ApiToken

router = Router()
per_cluster = PerCluster(router)
#: Maximum length of a value of a channel, characters: a list of e-mail addresses.
_MAX_VALUE_LENGTH = 4_000

_Values = Annotated[
    dict[str, Annotated[str, Field(max_length=_MAX_VALUE_LENGTH)]], Field(max_length=len(CHANNEL_KINDS))
]
_Digest = Annotated[str, Field(max_length=8)]
_PerMinute = Annotated[int, Field(ge=channel_setup.MIN_PER_MINUTE, le=channel_setup.MAX_PER_MINUTE)]


class ChannelAttempt(Schema):
    """How the newest attempt to send to a channel ended."""

    state: str
    """`untested` (there was none), `sending`, `sent` or `failed`."""
    is_test: bool
    """Whether it was a test notification."""
    detail: str
    """The error, or the response of the receiver; while it is being sent, why it waits."""
    at: datetime | None
    """End of the attempt; while it is being sent, when it was requested."""


class ChannelItem(Schema):
    """A notification channel, without its secrets."""

    number: int
    """Number of the channel."""
    cluster: str
    """Cluster that the channel belongs to; empty: the whole installation."""
    name: str
    """Name of the channel."""
    kind: str
    """Kind of the channel: `slack`, `slack-webhook`, `teams`, `email`, `pagerduty`, `webhook`, `alertmanager` or
    `apprise`.
    """
    destination: str
    """Where notifications go, without secrets."""
    values: dict[str, str]
    """Values of the kind that are not secret, by field; empty for those who may not change the channel."""
    has_secrets: dict[str, bool]
    """Secret fields of the kind, each with whether a value is stored."""
    is_enabled: bool
    """Whether notifications are sent."""
    send_resolved: bool
    """Whether resolved notifications are sent, too."""
    digest: str
    """Period of digests: `daily`, `weekly` or empty for none."""
    per_minute: int
    """Rate limit, notifications per minute."""
    allow_private: bool
    """Whether private and loopback addresses are allowed."""
    usages: list[str]
    """Routes, escalations and digest that use the channel."""
    unsent_count: int
    """Number of notifications that are still to be sent."""
    last_attempt: ChannelAttempt
    """How the newest attempt ended."""
    version: str
    """Version of the values: a change may name the version that it is based on."""


class CreatedChannel(ChannelItem):
    """A notification channel that was created."""

    route: int | None
    """Number of the route to which Refloat added it; null for every channel but the first."""
    routing: str
    """Which incidents notify it, and how to change that, in words."""


class ChannelsResponse(Schema):
    """A list of notification channels."""

    cluster: str
    """Id of the cluster."""
    channels: list[ChannelItem]
    """Channels of the cluster and of the whole installation."""


class CreateChannelRequest(RequestBody):
    """A new notification channel."""

    name: Name
    """Name of the channel."""
    kind: Annotated[str, Field(json_schema_extra={"enum": list(CHANNEL_KINDS)})]
    """Kind of the channel."""
    scope: Scope = Scope.INSTALLATION
    """`installation`, or `cluster` for a channel of the cluster of the path."""
    values: _Values
    """Values of the kind by field, also secret ones: `{"url": "https://hooks.example.com/x", "signing_key": "..."}`."""
    is_enabled: bool = True
    """Whether notifications are sent."""
    send_resolved: bool = True
    """Whether resolved notifications are sent, too."""
    digest: _Digest | None = None
    """Period of digests: `daily`, `weekly` or empty for none. Left out: weekly for kinds that people read."""
    per_minute: _PerMinute = 10
    """Rate limit, notifications per minute."""
    allow_private: bool = False
    """Whether private and loopback addresses are allowed. Requires `manage_access`."""


class ChangeChannelRequest(RequestBody):
    """New values of a notification channel. What is left out does not change; the kind never changes."""

    name: Name | None = None
    """Name of the channel."""
    values: Annotated[_Values, Field(default_factory=dict)]
    """New values by field. A secret that is left out or empty keeps its stored value, for the same origin. For another
    origin, it must be given again; an empty text removes an optional one."""
    is_enabled: bool | None = None
    """Whether notifications are sent."""
    send_resolved: bool | None = None
    """Whether resolved notifications are sent, too."""
    digest: _Digest | None = None
    """Period of digests: `daily`, `weekly` or empty for none."""
    per_minute: _PerMinute | None = None
    """Rate limit, notifications per minute."""
    allow_private: bool | None = None
    """Whether private and loopback addresses are allowed. Requires `manage_access`."""
    version: Version = ""
    """Version that the change is based on: 409 if somebody changed the channel since. Empty: any."""


class DeletedChannel(Schema):
    """A channel that was deleted."""

    number: int
    """Number that the channel had."""
    name: str
    """Name of the channel."""
    unsent_count: int
    """Number of notifications that were not sent to it."""


@per_cluster.get("/channels", auth=VIEW, response={200: ChannelsResponse, **REFUSAL_RESPONSES})
def list_channels(request: HttpRequest, cluster: str) -> Any:
    """List notification channels.

    The list has the channels of the cluster and of the whole installation. Secrets are never in it.
    """
    rows = filter_applicable_to(
        Channel.objects.prefetch_related("routes", "escalations"), require_cluster(cluster)
    )
    return ChannelsResponse(
        cluster=cluster, channels=[_channel_item_of(request, row, cluster) for row in rows]
    )


@per_cluster.post("/channels", auth=CHANGE, response={201: CreatedChannel, **REFUSAL_RESPONSES})
def create_channel(request: HttpRequest, cluster: str, body: CreateChannelRequest) -> Any:
    """Create a notification channel.

    The first channel of the installation is added to the root route, so that it receives all notifications. `routing`
    says so.
    """
    kind = CHANNEL_KINDS.get(body.kind)
    if kind is None:
        raise HttpError(400, f"{body.kind[:50]!r} is not a kind of channel. Use {', '.join(CHANNEL_KINDS)}.")
    row = Channel(cluster=require_new_owner(request, cluster, body.scope), kind=kind.slug)
    row.digest = channel_setup.default_digest_of(kind)
    route = channel_setup.create_channel(row, lambda: _save(request, row, body), request_actor_of(request))
    created_channel = CreatedChannel(
        **_channel_item_of(request, row, cluster).model_dump(),
        route=None if route is None else route.pk,
        routing=channel_setup.describe_routing(route),
    )
    return Status(201, created_channel)


@per_cluster.get("/channels/{int:number}", auth=VIEW, response={200: ChannelItem, **REFUSAL_RESPONSES})
def get_channel(request: HttpRequest, cluster: str, number: int) -> Any:
    """Get a notification channel.

    `last_attempt` is the outcome of the newest notification or test.
    """
    return _channel_item_of(request, _require_channel(cluster, number), cluster)


@per_cluster.post("/channels/{int:number}", auth=CHANGE, response={200: ChannelItem, **REFUSAL_RESPONSES})
def change_channel(request: HttpRequest, cluster: str, number: int, body: ChangeChannelRequest) -> Any:
    """Change a notification channel.

    Fields that are left out keep their values. With another origin of the address, each secret
    must be given again, or be removed with an empty text if the kind does not need it.
    """
    row = _require_channel(cluster, number)
    require_writable(request, row)
    _save(request, row, body, body.version)
    return _channel_item_of(request, row, cluster)


@per_cluster.post(
    "/channels/{int:number}/test", auth=CHANGE, response={200: ChannelItem, **REFUSAL_RESPONSES}
)
def test_channel(request: HttpRequest, cluster: str, number: int) -> Any:
    """Send a test notification to a channel.

    It is sent within seconds: read the channel until the state of `last_attempt` is not `sending`. `detail` is then the
    response of the receiver, or the error.
    """
    row = _require_channel(cluster, number)
    require_owner(request, Permission.CHANGE_CONFIG, row.cluster)
    if not row.enabled:
        raise HttpError(409, "The channel is disabled. Enable it first.")
    incident_actions.enqueue_test_notification(
        row, record_reader.current_time(), request_actor_of(request), settings.REFLOAT_PUBLIC_URL
    )
    return _channel_item_of(request, row, cluster)


@per_cluster.post(
    "/channels/{int:number}/delete", auth=CHANGE, response={200: DeletedChannel, **REFUSAL_RESPONSES}
)
def delete_channel(request: HttpRequest, cluster: str, number: int) -> Any:
    """Delete a notification channel.

    Routes lose it, and its unsent notifications are not sent. The delivery log is kept.
    """
    row = _require_channel(cluster, number)
    require_writable(request, row)
    name = row.name
    unsent_count = incident_actions.delete_channel(
        row, record_reader.current_time(), request_actor_of(request)
    )
    return DeletedChannel(number=number, name=name, unsent_count=unsent_count)


def _require_channel(cluster: str, number: int) -> Channel:
    return require_row(Channel.objects.prefetch_related("routes", "escalations"), cluster, number, "channel")


def _save(
    request: HttpRequest,
    row: Channel,
    body: CreateChannelRequest | ChangeChannelRequest,
    seen_version: str = "",
) -> None:
    """Write the values of a request to a channel. Raises HttpError 403, SetupError, SetupChangedError."""
    if body.allow_private and not row.allow_private:
        _require_access_manager(request)
    columns = body.model_dump(
        exclude_none=True, include={"name", "send_resolved", "digest", "per_minute", "allow_private"}
    )
    for name, value in columns.items():
        setattr(row, name, value)
    if body.is_enabled is not None:
        row.enabled = body.is_enabled
    channel_setup.save_channel(
        row,
        body.values,
        request_actor_of(request),
        can_allow_private=find_access_refusal(request) == "",
        seen_version=seen_version,
    )


def find_access_refusal(request: HttpRequest) -> str:
    """Return why the caller may not allow private addresses; empty if they may."""
    token: ApiToken | None = getattr(request, "refloat_token", None)
    if token is not None and not token.allows(Permission.MANAGE_ACCESS):
        return describe_missing_scope(token, Permission.MANAGE_ACCESS)
    user = caller_of(request)
    is_allowed = can_write(user, Permission.MANAGE_ACCESS, "")
    return "" if is_allowed else describe_missing_permission(user, Permission.MANAGE_ACCESS, None)


def find_change_refusal(request: HttpRequest, owner: str) -> str:
    """Return why the caller may not change the config of an owner, nor see all of its values; empty if they may."""
    token: ApiToken | None = getattr(request, "refloat_token", None)
    if token is not None and not token.allows(Permission.CHANGE_CONFIG):
        return describe_missing_scope(token, Permission.CHANGE_CONFIG)
    return find_write_refusal(caller_of(request), Permission.CHANGE_CONFIG, owner)


def _require_access_manager(request: HttpRequest) -> None:
    if sentence := find_access_refusal(request):
        raise HttpError(
            403, f"{sentence} Private addresses need it, because they could be internal services."
        )


def _channel_item_of(request: HttpRequest, row: Channel, cluster: str) -> ChannelItem:
    is_limited_user = has_cluster_limit(caller_of(request))
    card = make_channel_card(row, cluster, record_reader.current_time(), (), is_limited_user=is_limited_user)
    kind = CHANNEL_KINDS.get(row.kind)
    fields = () if kind is None else kind.fields
    stored_keys = set(channel_setup.unseal_or_empty(row.secrets))
    is_hidden = is_limited_user and not row.cluster
    return ChannelItem(
        number=row.pk,
        cluster=row.cluster,
        name=row.name,
        kind=row.kind,
        destination=card.destination,
        values={}
        if find_change_refusal(request, row.cluster)
        else {
            field.key: row.config[field.key]
            for field in fields
            if not field.is_secret and field.key in row.config
        },
        has_secrets={}
        if is_hidden
        else {field.key: field.key in stored_keys for field in fields if field.is_secret},
        is_enabled=row.enabled,
        send_resolved=row.send_resolved,
        digest=row.digest,
        per_minute=row.per_minute,
        allow_private=row.allow_private,
        usages=card.usages,
        unsent_count=card.unsent_count,
        last_attempt=ChannelAttempt(
            state=card.outcome.state,
            is_test=card.outcome.is_test,
            detail=card.outcome.detail,
            at=card.outcome.at,
        ),
        version=version_of(row),
    )
