"""Notification channels with test and delivery log. docs/reference/alerts.md."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.alerts import channel_cards, delivery_rows, route_tree
from dashboards.alerts.forms.channels import ChannelForm
from dashboards.alerts.forms.route_trial import RouteTrialForm
from dashboards.clusters import setup_steps
from dashboards.shared import recent_proof, record_reader
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import incident_actions, setup_actions
from fleet.alerts.channels.kind import ChannelKind
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.setup.channels import (
    create_channel,
    describe_first_channel_route,
    describe_routing,
    find_first_channel_route,
)
from fleet.models.access import (
    Permission,
    audit_log_clusters_of,
    can_write,
    has_cluster_limit,
    has_permission,
)
from fleet.models.alerting import Channel, Delivery, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER

_MAX_LOG_ROWS = 50


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def channels(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List channels, routes and the latest deliveries; POST with `do=again` resends a failed notification.

    Template `dashboards/channels.html`: `cards` (ChannelCard), `kinds` (ChannelKind), `updating_kinds`: labels of
    those that update a message in place; `tree` (RouteNode), `trial_form`,
    `trial` (RoutePrediction or None), `log`, `is_sending`, `can_change`; `steps` (SetupStep) of the first set-up.
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
    cards = [
        channel_cards.make_channel_card(row, cluster, now, writable_owners, is_limited_user=is_limited_user)
        for row in rows
    ]
    trial_form = RouteTrialForm(request.GET, cluster=cluster, now=now)
    trial = trial_form.predict()
    context = {
        "page": "incidents",
        "tab": "channels",
        "cards": cards,
        "kinds": list(CHANNEL_KINDS.values()),
        "updating_kinds": [kind.label for kind in CHANNEL_KINDS.values() if kind.updates_in_place],
        "tree": route_tree.read_route_tree(
            cluster, writable_owners, set() if trial is None else trial.route_numbers
        ),
        "trial_form": trial_form,
        "trial": trial,
        "log": [
            delivery_rows.delivery_row_of(row, now, is_limited_user=is_limited_user)
            for row in log.select_related("channel")[:_MAX_LOG_ROWS]
        ],
        "is_sending": any(card.outcome.state == "sending" for card in cards),
        "can_change": has_permission(user, Permission.CHANGE_CONFIG, cluster),
        "steps": setup_steps.read_steps(request),
    }
    return render(request, "dashboards/channels.html", context)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def new_channel(request: HttpRequest, channel_kind: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Create a channel of a kind.

    Template `dashboards/new_channel.html`: `form`, `kind` (ChannelKind), `routing_hint`: what happens to the first
    channel, or empty.
    """
    kind = CHANNEL_KINDS.get(channel_kind)
    if kind is None:
        raise Http404(f"Notification channels of kind {channel_kind} do not exist.")
    if not recent_proof.is_recent(request):
        return recent_proof.redirect_to_reauthentication(request)
    row = Channel()
    form = _make_form(request, row, kind, cluster, is_bound=request.method == "POST")
    if form.is_bound and form.is_valid():
        actor = signed_in_actor_of(request)
        route = create_channel(row, lambda: setup_actions.save_setting(row, form.save, actor), actor)
        messages.success(request, f"Channel {row.name} was created. {describe_routing(route)}")
        query = setup_steps.query_of(request)
        return redirect(f"{url_prefix_of(cluster)}/alerts/channels/{query}#channel-{row.pk}")
    context = {"page": "incidents", "tab": "channels", "form": form, "kind": kind}
    can_be_first = can_write(signed_in_user_of(request), Permission.CHANGE_CONFIG, "")
    first_route = find_first_channel_route() if can_be_first else None
    context["routing_hint"] = "" if first_route is None else describe_first_channel_route(first_route)
    return render(request, "dashboards/new_channel.html", context)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def channel(request: HttpRequest, channel_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show and change a channel; `do=test` sends a test notification, `do=delete` deletes the channel.

    Template `dashboards/channel.html`: `form`, `channel`, `kind` (ChannelKind), `card` (ChannelCard), `log`,
    `has_unsent`; `deletion`: the effects of the deletion while it is being confirmed, or None.
    """
    row = get_object_or_404(filter_applicable_to(Channel.objects.all(), cluster), pk=channel_id)
    require_write(request, Permission.CHANGE_CONFIG, row.cluster)
    user, now = signed_in_user_of(request), record_reader.current_time()
    form_action = request.POST.get("do", "")
    list_url = f"{url_prefix_of(cluster)}/alerts/channels/"
    if form_action == "test":
        incident_actions.enqueue_test_notification(
            row, now, signed_in_actor_of(request), settings.REFLOAT_PUBLIC_URL
        )
        is_from_list = request.POST.get("from") == "list"
        return redirect(f"{list_url}#channel-{row.pk}" if is_from_list else f"{list_url}{row.pk}/")
    if not recent_proof.is_recent(request):
        return recent_proof.redirect_to_reauthentication(request)
    if form_action == "delete" and "confirm" in request.POST:
        incident_actions.delete_channel(row, now, signed_in_actor_of(request))
        messages.success(request, f"Channel {row.name} was deleted. The delivery log is kept.")
        return redirect(list_url)
    is_bound = request.method == "POST" and form_action != "delete"
    kind = CHANNEL_KINDS[row.kind]
    form = _make_form(request, row, kind, cluster, is_bound=is_bound)
    if form.is_bound and form.is_valid():
        setup_actions.save_setting(row, form.save, signed_in_actor_of(request))
        messages.success(request, f"Channel {row.name} was saved.")
        return redirect(f"{list_url}{row.pk}/")
    deliveries = Delivery.objects.filter(channel=row).select_related("channel")
    is_limited_user = has_cluster_limit(user)
    context = {
        "page": "incidents",
        "tab": "channels",
        "form": form,
        "channel": row,
        "kind": kind,
        "card": channel_cards.make_channel_card(
            row, cluster, now, {row.cluster}, is_limited_user=is_limited_user
        ),
        "log": [
            delivery_rows.delivery_row_of(delivery, now, is_limited_user=is_limited_user)
            for delivery in deliveries[:_MAX_LOG_ROWS]
        ],
        "has_unsent": deliveries.filter(sent_at=None, failed_at=None).exists(),
        "deletion": channel_cards.describe_deletion(row)
        if form_action == "delete" or "delete" in request.GET
        else None,
    }
    return render(request, "dashboards/channel.html", context)


def _make_form(
    request: HttpRequest, row: Channel, kind: ChannelKind, cluster: str, *, is_bound: bool
) -> ChannelForm:
    user = signed_in_user_of(request)
    return ChannelForm(
        request.POST if is_bound else None,
        instance=row,
        kind=kind,
        owners=writable_owners_for(user, Permission.CHANGE_CONFIG, cluster),
        can_allow_private=can_write(user, Permission.MANAGE_ACCESS, ""),
    )
