"""Channels with their test and log, and the tree of routes. docs/alerts.md, "Channels" and "Routes"."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards import alert_presenters, reading
from dashboards.forms.alerts import ChannelForm, RouteForm
from dashboards.permissions import requires
from dashboards.views.alert_audit import logged, signed_in
from dashboards.views.pages import prefix_of
from fleet.alerts import acting
from fleet.alerts.values import Severity
from fleet.models.access import Permission, may
from fleet.models.alerting import Channel, Delivery, Route
from fleet.models.clusters import DEFAULT_CLUSTER

_LOG = 50


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def channels(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List channels, routes and the newest messages; POST with `do=again` sends a failed message again.

    Template `dashboards/channels.html`: `channels`, `routes` (depth, Route, words), `log`, `may_change`.
    """
    now = reading.current_time()
    if request.method == "POST":
        user = _may_change(request, cluster)
        row = get_object_or_404(Delivery, pk=_number(request.POST.get("id", "")))
        acting.send_again(row, now)
        logged(request, user, cluster, "delivery.again", row.key)
        return redirect(f"{prefix_of(cluster)}/alerts/channels/")
    log = Delivery.objects.select_related("channel")[:_LOG]
    context = {
        "page": "incidents",
        "tab": "channels",
        "channels": [_channel(row) for row in Channel.objects.prefetch_related("routes", "escalations")],
        "routes": _tree(),
        "log": [alert_presenters.delivery_row(row, now) for row in log],
        "may_change": may(request.user, Permission.CHANGE_CONFIG, cluster),
    }
    return render(request, "dashboards/channels.html", context)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def channel(request: HttpRequest, channel_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Change a channel (0: a new one); `do=test` sends a message, `do=delete` ends it.

    Template `dashboards/channel.html`: `form`, `channel`, `log`.
    """
    row = get_object_or_404(Channel, pk=channel_id) if channel_id else Channel()
    user, now = signed_in(request), reading.current_time()
    do = request.POST.get("do", "")
    here = f"{prefix_of(cluster)}/alerts/channels/"
    form = ChannelForm(
        request.POST if request.method == "POST" and do not in ("test", "delete") else None,
        instance=row,
        may_allow_private=may(user, Permission.MANAGE_ACCESS),
    )
    if do == "test" and row.pk:
        acting.try_out(row, now)
        logged(request, user, cluster, "channel.test", row.name)
        messages.success(request, "A test is on its way: the log below says what comes of it.")
        return redirect(f"{here}{row.pk}/")
    if do == "delete" and row.pk:
        logged(request, user, cluster, "channel.delete", row.name)
        row.delete()
        return redirect(here)
    if form.is_bound and form.is_valid():
        saved = form.save()
        after = {
            "kind": saved.kind,
            "target": alert_presenters.target_of(saved),
            "enabled": saved.enabled,
            "private": saved.allow_private,
        }
        logged(
            request,
            user,
            cluster,
            "channel.change" if channel_id else "channel.create",
            saved.name,
            after=after,
        )
        if not channel_id:
            _first_route(saved)
        messages.success(request, f"The channel {saved.name} is kept.")
        return redirect(f"{here}{saved.pk}/")
    log = Delivery.objects.filter(channel=row).select_related("channel")[:_LOG] if row.pk else []
    context = {
        "page": "incidents",
        "tab": "channels",
        "form": form,
        "channel": row,
        "log": [alert_presenters.delivery_row(one, now) for one in log],
    }
    return render(request, "dashboards/channel.html", context)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def route(request: HttpRequest, route_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Change a route (0: a new one), or end it with all below it. Template `dashboards/route.html`: `form`, `route`."""
    row = get_object_or_404(Route, pk=route_id) if route_id else Route()
    user = signed_in(request)
    here = f"{prefix_of(cluster)}/alerts/channels/"
    if request.method == "POST" and request.POST.get("do") == "delete" and row.pk:
        logged(request, user, cluster, "route.delete", row.name)
        row.delete()
        return redirect(here)
    form = RouteForm(request.POST if request.method == "POST" else None, instance=row)
    if form.is_bound and form.is_valid():
        saved = form.save()
        logged(request, user, cluster, "route.change" if route_id else "route.create", saved.name)
        return redirect(here)
    return render(
        request, "dashboards/route.html", {"page": "incidents", "tab": "channels", "form": form, "route": row}
    )


def _first_route(made: Channel) -> None:
    """The first channel hears of everything, or it would hear of nothing."""
    roots = Route.objects.filter(parent=None)
    if roots.count() == 1 and not roots[0].channels.exists() and Channel.objects.count() == 1:
        roots[0].channels.add(made)


def _hears(row: Channel) -> list[str]:
    found = [one.name for one in row.routes.all()]
    found += [f"second level of {one.name}" for one in row.escalations.all()]
    return [*found, f"{row.digest} digest"] if row.digest else found


def _channel(row: Channel) -> dict[str, Any]:
    lately = Delivery.objects.filter(channel=row)
    failed = lately.exclude(last_error="").filter(sent_at=None).first()
    return {
        "row": row,
        "target": alert_presenters.target_of(row),
        "routes": "; ".join(_hears(row)),
        "error": failed.last_error if failed else "",
        "waiting": lately.filter(sent_at=None, failed_at=None).count(),
    }


def _tree() -> list[dict[str, Any]]:
    rows = list(Route.objects.prefetch_related("channels", "escalate_to"))
    found: list[dict[str, Any]] = []

    def walk(parent: int | None, depth: int) -> None:
        for row in rows:
            if row.parent_id == parent:
                found.append({"depth": depth, "row": row, "words": _words(row)})
                walk(row.pk, depth + 1)

    walk(None, 0)
    return found


def _words(row: Route) -> dict[str, str]:
    takes = [f"from {Severity(row.least).slug}"]
    takes += [row.matchers] if row.matchers else []
    takes += [f"of {row.cluster}"] if row.cluster else []
    extra = []
    if row.escalate_after and row.escalate_to.all():
        chiefs = ", ".join(one.name for one in row.escalate_to.all())
        extra.append(f"after {row.escalate_after / 60:g} min without acknowledgement also {chiefs}")
    if row.quiet_from is not None and row.quiet_until is not None:
        extra.append(
            f"quiet {row.quiet_from:%H:%M} to {row.quiet_until:%H:%M} {row.quiet_zone}, critical passes"
        )
    if row.goes_on:
        extra.append("those after it hear, too")
    names = ", ".join(one.name for one in row.channels.all())
    return {"takes": ", ".join(takes), "channels": names, "extra": "; ".join(extra)}


def _may_change(request: HttpRequest, cluster: str) -> User:
    user = signed_in(request)
    if not may(user, Permission.CHANGE_CONFIG, cluster):
        raise PermissionDenied(f"This needs the permission: {Permission.CHANGE_CONFIG.label}.")
    return user


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 18 else 0
