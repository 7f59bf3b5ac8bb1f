"""The page that takes an instance out of service, or brings it back. docs/reference/changes.md, "Service changes"."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes.forms.service import ServiceForm
from dashboards.changes.load_bars import load_bars_of
from dashboards.changes.service import (
    TargetInstance,
    find_target_instance,
    request_drain,
    take_out_of_service,
)
from dashboards.fleet import history
from dashboards.shared import presenters, recent_proof, record_reader, refusals, request_actor
from dashboards.shared.capabilities.views import needs_capability
from dashboards.shared.pages import needs_record, sentence_of, url_prefix_of
from dashboards.shared.permissions import requires
from fleet.changes import ChangeRefusedError, NoEvidenceError, engine
from fleet.changes.service.plan import ServiceForecast
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster
from fleet.monitoring.last_tunnels import describe_unreachable_agents
from fleet.monitoring.views import InstanceView
from fleet.protocol import durations
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, PRESETS, PRESETS_BY_SLUG
from fleet.vocabulary.campaigns import CampaignCounts
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.changes import ConfirmationRequirements, confirmation_requirements_of
from fleet.vocabulary.instances import CUT_OFF_STATES, InstanceKind


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.RECONNECT_ADVICE, "Take out of service")
def service(request: HttpRequest, instance_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form (GET), or (POST with `action`: `take-out` or `bring-back`) take the instance out or bring it back.

    Template `dashboards/service.html`: presenters.live_page_context_of, `card` (InstanceCard), `row` (Drain or None),
    `is_drained` (it drains, or a drain was requested), `is_last_of_kind` (no other instance of its kind accepts
    connections), `unreachable_text` (why Refloat cannot move the agents of a proxy, as sentences, or empty),
    `forecast` (CampaignForecast, or None without current data), `load_bars`, `presets` (preset, duration in words),
    `requirements`, `busy_reason`, `form`, `state_history`.
    """
    now = record_reader.current_time()
    target_instance = find_target_instance(cluster, instance_id, now)
    if target_instance is None:
        raise Http404(f"Instance {instance_id} was not found.")
    view, row = target_instance.view, target_instance.row
    form_action = request.POST.get("action")
    forecast = None if form_action == "bring-back" else _find_forecast(target_instance)
    requirements = _requirements_of(cluster, forecast)
    form = ServiceForm(
        request.POST if request.method == "POST" else None,
        is_last_of_kind=target_instance.is_last_of_kind and form_action != "bring-back",
        expected_name=requirements.expected_name,
        initial={"move_agents": "yes" if forecast and forecast.moves_agents else "no"},
    )
    if form_action in ("take-out", "bring-back") and form.is_valid():
        response = _carry_out(request, target_instance, form, should_drain=form_action == "take-out")
        if response is not None:
            return response
    refusals.mark_if_incomplete(request, form)
    context = {
        "card": presenters.instance_card_of(
            view,
            now,
            target_instance.instance_names,
            is_stranding=target_instance.is_stranding,
            is_drain_requested=row is not None and row.is_drained,
        ),
        "row": row,
        "is_drained": view.drain_request is not None or (row is not None and row.is_drained),
        "unreachable_text": _describe_unreachable_agents(view, forecast),
        "is_last_of_kind": target_instance.is_last_of_kind,
        "forecast": None if forecast is None else forecast.campaign,
        "load_bars": [] if forecast is None else load_bars_of(forecast.campaign.loads),
        "presets": _preset_rows_of(forecast),
        "selected_preset": form["preset"].value() or DEFAULT_PRESET.slug,
        "requirements": requirements,
        "busy_reason": engine.describe_running_change(cluster),
        "form": form,
        "state_history": history.read_instance_state_changes(cluster, {instance_id: ""}, now),
    }
    page_context = presenters.live_page_context_of(record_reader.reader().summary(cluster, now), now, "fleet")
    return render(request, "dashboards/service.html", page_context | context)


def _carry_out(
    request: HttpRequest, target_instance: TargetInstance, form: ServiceForm, *, should_drain: bool
) -> HttpResponseBase | None:
    """Carry out a valid form and return where to go next; None when it was refused, with an error in the form."""
    recent_proof.require(request)
    actor, reason = request_actor.signed_in_actor_of(request), form.cleaned_data["reason"]
    prefix = url_prefix_of(target_instance.cluster)
    if should_drain and form.moves_agents:
        preset = PRESETS_BY_SLUG.get(form.cleaned_data["preset"], DEFAULT_PRESET)
        try:
            change = take_out_of_service(
                target_instance,
                preset.settings,
                actor,
                reason=reason,
                typed_name=form.cleaned_data["confirmation"],
            )
        except ChangeRefusedError as error:
            form.add_error(None, sentence_of(error))
            return None
        return redirect(f"{prefix}/changes/{change.pk}/")
    change, _ = request_drain(target_instance, actor, should_drain=should_drain, reason=reason)
    return redirect(f"{prefix}/changes/{change.pk}/")


def _find_forecast(target_instance: TargetInstance) -> ServiceForecast | None:
    """Return the forecast; None without current data, where an instance can still be drained."""
    try:
        return target_instance.forecast
    except NoEvidenceError:
        return None


def _describe_unreachable_agents(view: InstanceView, forecast: ServiceForecast | None) -> str:
    """Return why Refloat cannot move the agents of a proxy. Those of an auth are reached through their tunnels."""
    if forecast is not None:
        return forecast.unreachable_text
    is_cut_off = view.facts.kind is InstanceKind.PROXY and view.state in CUT_OFF_STATES
    return describe_unreachable_agents(view.facts.name) if is_cut_off else ""


def _requirements_of(cluster: str, forecast: ServiceForecast | None) -> ConfirmationRequirements:
    # The default cluster has no row before its first poll.
    row = Cluster.objects.filter(pk=cluster).first() or Cluster(pk=cluster)
    return confirmation_requirements_of(
        cluster=cluster,
        affected_count=0 if forecast is None else forecast.campaign.target_count,
        is_production=row.production,
        review_required=row.review_required,
    )


def _preset_rows_of(forecast: ServiceForecast | None) -> list[tuple[object, str]]:
    """Return the presets with the estimated duration of each."""
    count = 0 if forecast is None else forecast.campaign.reconnect_count
    return [
        (
            preset,
            durations.format_readable(
                round(
                    campaigns.estimate_remaining_seconds(CampaignCounts(pending_count=count), preset.settings)
                )
            ),
        )
        for preset in PRESETS
    ]
