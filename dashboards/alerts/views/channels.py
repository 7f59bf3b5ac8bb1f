"""Notification channels with test and delivery log. docs/reference/alerts.md."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.alerts import delivery_rows
from dashboards.alerts.forms.channels import ChannelForm
from dashboards.alerts.views import routes
from dashboards.shared import recent_proof, record_reader
from dashboards.shared.owners import format_owner
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import incident_actions, setup_actions
from fleet.models.access import (
    Permission,
    audit_log_clusters_of,
    can_write,
    has_cluster_limit,
    has_permission,
)
from fleet.models.alerting import Channel, Delivery, Route, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER

_MAX_LOG_ROWS = 50


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def channels(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List channels, routes and the latest deliveries; POST with `do=again` resends a failed notification.

    Template `dashboards/channels.html`: `channels`, `routes` (depth, row, texts), `log`, `can_change`.
    """
    now, user = record_reader.current_time(), signed_in_user_of(request)
    is_limited_user = has_cluster_limit(user)
    log = Delivery.objects.filter(cluster__in=audit_log_clusters_of(cluster, is_limited_user=is_limited_user))
    if request.method == "POST":
        require_write(request, Permission.CHANGE_CONFIG, cluster)
        sendable = log.exclude(channel=None)
        row = get_object_or_404(sendable, pk=parse_row_id(request.POST.get("id", "")))
        incident_actions.retry_delivery(row, now, signed_in_actor_of(request))
        return redirect(f"{url_prefix_of(cluster)}/alerts/channels/")
    writable_owners = writable_owners_for(user, Permission.CHANGE_CONFIG, cluster)
    rows = filter_applicable_to(Channel.objects.prefetch_related("routes", "escalations"), cluster)
    context = {
        "page": "incidents",
        "tab": "channels",
        "channels": [
            _channel_context_of(row, cluster, writable_owners, is_limited_user=is_limited_user)
            for row in rows
        ],
        "routes": routes.route_lines_of(cluster, writable_owners),
        "log": [
            delivery_rows.delivery_row_of(row, now, is_limited_user=is_limited_user)
            for row in log.select_related("channel")[:_MAX_LOG_ROWS]
        ],
        "can_change": has_permission(user, Permission.CHANGE_CONFIG, cluster),
    }
    return render(request, "dashboards/channels.html", context)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def channel(request: HttpRequest, channel_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show and change a channel (0: a new one); `do=test` sends a test notification, `do=delete` deletes the channel.

    Template `dashboards/channel.html`: `form`, `channel`, `log`, `has_unsent`; `deletion`: the effects of the deletion
    while it is being confirmed, or None.
    """
    row = (
        get_object_or_404(filter_applicable_to(Channel.objects.all(), cluster), pk=channel_id)
        if channel_id
        else Channel()
    )
    if channel_id:
        require_write(request, Permission.CHANGE_CONFIG, row.cluster)
    user, now = signed_in_user_of(request), record_reader.current_time()
    form_action = request.POST.get("do", "")
    list_url = f"{url_prefix_of(cluster)}/alerts/channels/"
    if form_action != "test" and not recent_proof.is_recent(request):
        return recent_proof.redirect_to_reauthentication(request)
    form = ChannelForm(
        request.POST if request.method == "POST" and form_action not in ("test", "delete") else None,
        instance=row,
        owners=writable_owners_for(user, Permission.CHANGE_CONFIG, cluster),
        can_allow_private=can_write(user, Permission.MANAGE_ACCESS, ""),
    )
    if form_action == "test" and row.pk:
        incident_actions.enqueue_test_notification(row, now, signed_in_actor_of(request))
        messages.success(request, "Test notification queued. The delivery log below shows the result.")
        return redirect(f"{list_url}{row.pk}/")
    if form_action == "delete" and row.pk and "confirm" in request.POST:
        incident_actions.delete_channel(row, now, signed_in_actor_of(request))
        return redirect(list_url)
    if form.is_bound and form.is_valid():
        setup_actions.save_setting(row, form.save, signed_in_actor_of(request))
        if not channel_id and not row.cluster:
            _attach_first_channel(row)
        messages.success(request, f"Channel {row.name} was saved.")
        return redirect(f"{list_url}{row.pk}/")
    deliveries = (
        Delivery.objects.filter(channel=row).select_related("channel") if row.pk else Delivery.objects.none()
    )
    context = {
        "page": "incidents",
        "tab": "channels",
        "form": form,
        "channel": row,
        "log": [
            delivery_rows.delivery_row_of(delivery, now, is_limited_user=has_cluster_limit(user))
            for delivery in deliveries[:_MAX_LOG_ROWS]
        ],
        "has_unsent": deliveries.filter(sent_at=None, failed_at=None).exists(),
        "deletion": _describe_deletion(row)
        if row.pk and (form_action == "delete" or "delete" in request.GET)
        else None,
    }
    return render(request, "dashboards/channel.html", context)


def _attach_first_channel(channel_row: Channel) -> None:
    """Add the first channel to the root route, so that it receives all notifications."""
    roots = Route.objects.filter(parent=None)
    if roots.count() == 1 and not roots[0].channels.exists() and Channel.objects.count() == 1:
        roots[0].channels.add(channel_row)


def _describe_channel_usage(row: Channel, cluster: str | None = None) -> list[str]:
    """Return the routes, escalations and digest that use a channel: in one cluster, or in all without `cluster`."""
    owners = None if cluster is None else ("", cluster)
    usages = [
        route_row.name for route_row in row.routes.all() if owners is None or route_row.cluster in owners
    ]
    usages += [
        f"escalation of {route_row.name}"
        for route_row in row.escalations.all()
        if owners is None or route_row.cluster in owners
    ]
    return [*usages, f"{row.digest} digest"] if row.digest else usages


def _describe_deletion(row: Channel) -> dict[str, Any]:
    """Return the effects of deleting a channel: routes that use it, and the number of unsent notifications."""
    unsent = Delivery.objects.filter(channel=row, sent_at=None, failed_at=None)
    return {"routes": _describe_channel_usage(row), "unsent": unsent.count()}


def _channel_context_of(
    row: Channel, cluster: str, writable_owners: Collection[str], *, is_limited_user: bool
) -> dict[str, Any]:
    """Present a channel; users limited to some clusters see no address and no error of the installation's channels."""
    deliveries = Delivery.objects.filter(channel=row)
    newest_delivery = deliveries.exclude(attempted_at=None).order_by("-attempted_at", "-pk").first()
    is_failing = newest_delivery is not None and newest_delivery.sent_at is None
    is_hidden = is_limited_user and not row.cluster
    visible_deliveries = deliveries.filter(
        cluster__in=audit_log_clusters_of(cluster, is_limited_user=is_limited_user)
    )
    return {
        "row": row,
        "owner": format_owner(row.cluster),
        "can_change": row.cluster in writable_owners,
        "destination": delivery_rows.HIDDEN_CHANNEL_TEXT
        if is_hidden
        else setup_actions.describe_destination(row),
        "routes": "; ".join(_describe_channel_usage(row, cluster)),
        "is_tested": newest_delivery is not None,
        "is_failing": is_failing,
        "error": newest_delivery.last_error
        if newest_delivery is not None and is_failing and not is_hidden
        else "",
        "unsent_count": visible_deliveries.filter(sent_at=None, failed_at=None).count(),
    }
