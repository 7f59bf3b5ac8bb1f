"""Drain one auth or proxy, or have it take connections again. docs/destination-health.md."""

from __future__ import annotations

import contextlib

from celery import current_app
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from kombu.exceptions import OperationalError

from dashboards import alert_history, presenters, proof, reading
from dashboards.forms.drain import DrainForm
from dashboards.permissions import requires
from dashboards.views.pages import needs_record, prefix_of
from fleet.control import drains
from fleet.control.drains import Wanted
from fleet.domain.changes import Actor, ActorKind
from fleet.domain.instances import CUT_OFF, InstanceKind, InstanceState
from fleet.domain.views import InstanceView
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.drains import Drain


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def drain(request: HttpRequest, instance_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Ask for a reason (GET), and want it drained or not any more (POST with `wanted`: `drain` or `undrain`).

    Template `dashboards/drain.html`: the frame's, `card` (InstanceCard), `row` (Drain or None), `drained` (what is
    there, or wanted), `last` (no other of its kind takes connections), `cut_off` (its agents cannot be asked to move),
    `form`, `turns` (TurnLine).
    """
    now = reading.current_time()
    reader = reading.reader()
    known = {view.facts.id: view for view in reader.instances(cluster, now)}
    view = known.get(instance_id)
    if view is None:
        raise Http404(f"There is no instance {instance_id}.")
    row = Drain.objects.filter(cluster=cluster, instance=instance_id).first()
    last = not any(_takes(other) for other in known.values() if _is_other(other, view))
    wants = request.POST.get("wanted")
    form = DrainForm(request.POST if request.method == "POST" else None, last=last and wants != "undrain")
    if wants in ("drain", "undrain") and form.is_valid():
        proof.require(request)
        _ask(request, cluster, view, drained=wants == "drain", reason=form.cleaned_data["reason"])
        return redirect(f"{prefix_of(cluster)}/")
    context = {
        "card": presenters.instance_card(view, now, {key: one.facts.name for key, one in known.items()}),
        "row": row,
        "drained": view.draining is not None or (row is not None and row.drained),
        # An auth need not answer: its agents are asked through their tunnels.
        "cut_off": view.facts.kind is InstanceKind.PROXY and view.state in CUT_OFF,
        "last": last,
        "form": form,
        "turns": alert_history.turns_of(cluster, instance_id, now),
    }
    frame = presenters.frame(reader.summary(cluster, now), now, "fleet")
    return render(request, "dashboards/drain.html", frame | context)


def _ask(request: HttpRequest, cluster: str, view: InstanceView, *, drained: bool, reason: str) -> None:
    user = request.user
    assert isinstance(user, User), "the view requires a permission, so somebody is signed in"
    actor = Actor(ActorKind.PERSON, user.get_username(), user.pk)
    drains.ask(cluster, Wanted(view.facts.id, view.facts.name, drained, reason, actor), timezone.now)
    with contextlib.suppress(OperationalError):  # without a broker beat does it, when there is one again
        current_app.send_task("fleet.tasks.apply_drains", expires=60)
    what = "to take nobody new" if drained else "to take connections again"
    messages.success(request, f"{view.facts.name} is asked {what}.")


def _is_other(other: InstanceView, view: InstanceView) -> bool:
    return other.facts.kind is view.facts.kind and other.facts.id != view.facts.id


def _takes(view: InstanceView) -> bool:
    return view.state is InstanceState.OK and view.draining is None
