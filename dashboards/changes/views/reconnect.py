"""The page to plan a reconnect campaign; its progress is on the page of the change. docs/reference/campaigns.md"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import campaign_plans
from dashboards.shared import record_reader, request_actor
from dashboards.shared.pages import needs_record, sentence_of, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.presenters import number_fields_of, read_typed_settings
from fleet.changes import ChangeRefusedError, engine
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import CampaignSettings, ConnectionKind
from fleet.vocabulary.instances import InstanceKind


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def reconnect(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form, or (POST) plan a campaign.

    Template `dashboards/reconnect.html`: `page`, `form_values`, `fields` (name, label, unit, value, low, high,
    problem), `window`, `proxies`, `auths`, `connection` (selected connection), `problems`, `sentence`, `busy_reason`.
    """
    form_values = request.POST if request.method == "POST" else request.GET
    problems: dict[str, str] = {}
    sentence = ""
    table = record_reader.reader().table(cluster, record_reader.current_time())
    if request.method == "POST":
        raw_settings = read_typed_settings(CampaignSettings, campaigns.CAMPAIGN_SETTING_NAMES, form_values)
        actor = request_actor.signed_in_actor_of(request)
        try:
            change = campaign_plans.plan_campaign(
                cluster, form_values.dict(), raw_settings, actor, timezone.now()
            )
        except ChangeRefusedError as error:
            problems = error.problems
            sentence = "" if set(problems) - {"target_agents"} else sentence_of(error)
        else:
            return redirect(f"{url_prefix_of(cluster)}/changes/{change.pk}/")
    context = {
        "page": "changes",
        "form_values": form_values,
        "fields": number_fields_of(CampaignSettings(), form_values, problems),
        "window": [
            {"name": name, "value": form_values.get(name, "00:00"), "problem": problems.get(name, ""),
             "label": "Time window from (UTC)" if name == "window_start" else "Time window to (UTC)"}
            for name in campaigns.CAMPAIGN_SETTING_NAMES if name not in campaigns.SETTING_RANGES
        ],
        "proxies": [view.facts for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY],
        "auths": [view.facts for view in table.instances.values() if view.facts.kind is InstanceKind.AUTH],
        "connection": form_values.get("connection")
        or (ConnectionKind.AUTH if form_values.get("auth") else ConnectionKind.TUNNEL).value,
        "problems": problems,
        "sentence": sentence,
        "busy_reason": engine.describe_running_change(cluster),
    }  # fmt: skip
    return render(request, "dashboards/reconnect.html", context, status=400 if problems or sentence else 200)
