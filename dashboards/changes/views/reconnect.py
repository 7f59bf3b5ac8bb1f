"""The page to plan a reconnect campaign; its progress is on the page of the change. docs/reference/campaigns.md"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import campaign_plans
from dashboards.changes.campaign_starts import CampaignStart, find_campaign_starts
from dashboards.changes.load_bars import load_bars_of
from dashboards.fleet.agent_selection import is_form_submitted, read_agent_ids
from dashboards.shared import record_reader, request_actor
from dashboards.shared.capabilities.views import needs_capability
from dashboards.shared.pages import needs_record, sentence_of, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.presenters import number_fields_of, read_typed_settings
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns.forecast import CampaignForecast
from fleet.changes.campaigns.spread import select_agents_to_spread
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.views import FleetTable
from fleet.protocol import durations
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, PRESETS, PRESETS_BY_SLUG
from fleet.vocabulary.campaigns import CampaignCounts, CampaignSettings, ConnectionKind
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind

#: `?spread=1` selects the agents that make the loads even; in the form, it is the digest of these target agents.
_SPREAD_PARAMETER = "spread"
_FILTER_NAMES = ("q", "proxy", "auth", "agents")


@dataclass(frozen=True, slots=True)
class FormForecast:
    """The forecast of the target agents in the form, or why there is none."""

    campaign: CampaignForecast | None = None
    sentence: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.RECONNECT_ADVICE, "Reconnect agents")
def reconnect(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form (GET, or POST with `show`, see `agent_selection`), or (POST) plan a campaign.

    Template `dashboards/reconnect.html`: `page`, `form_values`, `starts` (CampaignStart, is selected), `fields` (name,
    label, unit, value, low, high, problem), `window`, `proxies`, `auths`, `connection` (selected connection),
    `presets`, `selected_preset`, `has_filters`, `has_settings`, `problems`, `sentence`, `busy_reason`, `is_spread`, and
    those of `_forecast_context_of`.
    """
    table = record_reader.reader().table(cluster, record_reader.current_time())
    form_values = _read_form_values(request, table)
    is_spread = _is_spread(form_values)
    problems: dict[str, str] = {}
    sentence = ""
    if is_form_submitted(request):
        raw_settings = read_typed_settings(CampaignSettings, campaigns.CAMPAIGN_SETTING_NAMES, form_values)
        # An empty field keeps the value of the preset.
        own_settings = {name: text for name, text in raw_settings.items() if text.strip()}
        actor = request_actor.signed_in_actor_of(request)
        try:
            change = campaign_plans.plan_campaign(
                cluster,
                form_values,
                own_settings,
                actor,
                timezone.now(),
                form_values.get("preset", ""),
                is_spread=is_spread,
            )
        except ChangeRefusedError as error:
            problems = error.problems
            sentence = "" if set(problems) - {"target_agents"} else sentence_of(error)
        else:
            return redirect(f"{url_prefix_of(cluster)}/changes/{change.pk}/")
    preset = PRESETS_BY_SLUG.get(form_values.get("preset", "")) or (
        DEFAULT_PRESET if is_form_submitted(request) else campaign_plans.suggest_preset(table, form_values)
    )
    fields = number_fields_of(preset.settings, {}, problems)
    for setting_field in fields:
        setting_field["placeholder"], setting_field["value"] = (
            setting_field["value"],
            form_values.get(setting_field["name"], ""),
        )
    window_fields = [
        {
            "name": name,
            "value": form_values.get(name, "00:00"),
            "problem": problems.get(name, ""),
            "label": "Time window from (UTC)" if name == "window_start" else "Time window to (UTC)",
        }
        for name in campaigns.CAMPAIGN_SETTING_NAMES
        if name not in campaigns.SETTING_RANGES
    ]
    context = {
        "page": "changes",
        "form_values": form_values,
        "starts": [(start, _is_selected(start, form_values)) for start in find_campaign_starts(table)],
        "fields": fields,
        "window": window_fields,
        "proxies": [view.facts for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY],
        "auths": [view.facts for view in table.instances.values() if view.facts.kind is InstanceKind.AUTH],
        "connection": form_values.get("connection")
        or (ConnectionKind.AUTH if form_values.get("auth") else ConnectionKind.TUNNEL).value,
        "presets": PRESETS,
        "selected_preset": preset.slug,
        "has_settings": any(form_field["value"] or form_field["problem"] for form_field in fields)
        or any(form_field["problem"] or form_field["value"] != "00:00" for form_field in window_fields),
        "problems": problems,
        "sentence": sentence,
        "is_spread": is_spread,
        "busy_reason": engine.describe_running_change(cluster),
        **_forecast_context_of(cluster, form_values),
    }
    return render(request, "dashboards/reconnect.html", context, status=400 if problems or sentence else 200)


def _read_form_values(request: HttpRequest, table: FleetTable) -> dict[str, str]:
    query = request.POST if request.method == "POST" else request.GET
    form_values = {name: str(query.get(name, "")) for name in query}
    if is_form_submitted(request):
        return form_values
    if agent_ids := read_agent_ids(query):
        # Agents that were selected in the list.
        form_values["agents"] = _list_names(table, agent_ids)
    elif form_values.get(_SPREAD_PARAMETER):
        connection = ConnectionKind.AUTH if form_values.get("connection") == "auth" else ConnectionKind.TUNNEL
        indices = select_agents_to_spread(table, connection).tolist()
        form_values["agents"] = _list_names(table, [table.ids[index] for index in indices])
        form_values["connection"] = connection.value
        form_values[_SPREAD_PARAMETER] = _digest_targets(form_values)
    return form_values


def _is_spread(form_values: Mapping[str, str]) -> bool:
    """Return whether the target agents are still those that make the loads even: the form can be edited."""
    return form_values.get(_SPREAD_PARAMETER) == _digest_targets(form_values)


def _digest_targets(form_values: Mapping[str, str]) -> str:
    """Return what tells the target agents of a form from others."""
    names = sorted(set(re.split(r"[\s,;]+", form_values.get("agents", ""))) - {""})
    filters = [form_values.get(name, "").strip() for name in ("connection", "q", "proxy", "auth")]
    return hashlib.sha256("\n".join([*filters, *names]).encode()).hexdigest()[:16]


def _list_names(table: FleetTable, agent_ids: Sequence[str]) -> str:
    """Return agents as the list of the form: a name that several agents have, or that the form would split, as id."""
    name_counts, names_by_id = Counter(table.names), dict(zip(table.ids, table.names, strict=True))
    return "\n".join(
        name
        if name_counts[name := names_by_id.get(agent_id, "")] == 1 and not re.search(r"[\s,;]", name)
        else agent_id
        for agent_id in agent_ids
    )


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.RECONNECT_ADVICE, "Reconnect agents")
def forecast(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Return the forecast of the target agents, as a part of the page, while the form is filled in.

    They are in the query, or (POST) in the body: the names of many agents do not fit into an address.
    Template `dashboards/_campaign_forecast.html`: see `_forecast_context_of`.
    """
    fields = request.POST if request.method == "POST" else request.GET
    return render(request, "dashboards/_campaign_forecast.html", _forecast_context_of(cluster, fields.dict()))


def _forecast_context_of(cluster: str, form_values: Mapping[str, str]) -> dict[str, Any]:
    """Return `has_targets` (a filter is set), `forecast` (FormForecast), `load_bars`, and `preset_durations`."""
    has_targets = any(form_values.get(name, "").strip() for name in _FILTER_NAMES)
    form_forecast = _forecast_targets(cluster, form_values) if has_targets else FormForecast()
    campaign = form_forecast.campaign
    counts = CampaignCounts(pending_count=campaign.reconnect_count if campaign else 0)
    return {
        "has_targets": has_targets,
        "forecast": form_forecast,
        "load_bars": load_bars_of(campaign.loads) if campaign else [],
        "preset_durations": [
            (
                preset.label,
                durations.format_readable(
                    round(campaigns.estimate_remaining_seconds(counts, preset.settings))
                ),
            )
            for preset in PRESETS
        ],
    }


def _forecast_targets(cluster: str, form_values: Mapping[str, str]) -> FormForecast:
    try:
        return FormForecast(campaign_plans.forecast_targets(cluster, form_values))
    except ChangeRefusedError as error:
        return FormForecast(sentence=sentence_of(error), problems=error.problems)


def _is_selected(start: CampaignStart, form_values: Mapping[str, str]) -> bool:
    return all(form_values.get(name, "") == text for name, text in start.parameters)
