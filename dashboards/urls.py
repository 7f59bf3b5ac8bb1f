"""Routes of the console. Short URLs belong to the default cluster; /c/<cluster>/ has the same pages."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from django.urls.resolvers import RoutePattern

from dashboards.access import setup, users
from dashboards.access import views as tokens
from dashboards.alerts.views import (
    channels,
    configuration,
    incident_dialogs,
    incidents,
    routes,
    rules,
    runbooks,
    silence_forms,
    silences,
    windows,
)
from dashboards.changes.views import (
    aborts,
    audit,
    changes,
    degrade,
    networking,
    policies,
    policy_edits,
    reconnect,
    service,
)
from dashboards.clusters import cluster_menu
from dashboards.clusters import views as clusters
from dashboards.fleet.views import agent_sets, agents, comparison, history, replay, retire, saved_views
from dashboards.fleet.views import map as fleet_map
from dashboards.fleet.views import now as fleet_now
from dashboards.instances import edge_views
from dashboards.instances import views as instances
from dashboards.palette import views as palette
from dashboards.system import health as system
from dashboards.system import metrics
from dashboards.system.data_health import views as data_health

handler403 = "dashboards.system.errors.forbidden"
handler404 = "dashboards.system.errors.not_found"
handler500 = "dashboards.system.errors.internal_error"


def _page_routes(suffix: str) -> list[URLPattern | URLResolver]:
    """Return the routes of the pages of one cluster; `suffix` keeps the names of the two sets apart."""
    return [
        path("", fleet_now.fleet_now if suffix else fleet_now.home, name=f"fleet-now{suffix}"),
        path("map/", fleet_map.fleet_map, name=f"map{suffix}"),
        path("map/instances.json", fleet_map.instances, name=f"map-instances{suffix}"),
        path("map/groups.json", fleet_map.groups, name=f"map-groups{suffix}"),
        path("map/names.json", fleet_map.names, name=f"map-names{suffix}"),
        path("map/matches.json", fleet_map.matches, name=f"map-matches{suffix}"),
        path("map/moment.json", replay.moment, name=f"map-moment{suffix}"),
        path("map/markers.json", replay.markers, name=f"map-markers{suffix}"),
        path("data-health/", data_health.data_health, name=f"data-health{suffix}"),
        path("palette.json", palette.palette, name=f"palette{suffix}"),
        path("history/", history.history, name=f"history{suffix}"),
        path("history/compare/", comparison.compare, name=f"compare{suffix}"),
        path("history/compare.csv", comparison.compare_csv, name=f"compare-csv{suffix}"),
        path("agents/", agents.agents, name=f"agents{suffix}"),
        path("instances/<str:instance_id>/", instances.instance, name=f"instance{suffix}"),
        path("instances/<str:instance_id>/service/", service.service, name=f"service{suffix}"),
        path("instances/<str:instance_id>/degrade/", degrade.degrade, name=f"degrade{suffix}"),
        path("edge-instances/<str:name>/", edge_views.edge_instance, name=f"edge-instance{suffix}"),
        path("agent-filters.json", agents.agent_filters, name=f"agent-filters{suffix}"),
        path("agent-ids.json", agents.agent_ids, name=f"agent-ids{suffix}"),
        path("agents.json", agents.agents_json, name=f"agents-json{suffix}"),
        path("agents.csv", agents.agents_csv, name=f"agents-csv{suffix}"),
        path("agents/<str:agent_id>/", agents.agent, name=f"agent{suffix}"),
        path("agents/<str:agent_id>/retire/", retire.retire, name=f"retire{suffix}"),
        # Not below agents/: an agent may have any id.
        path("agent-views/", saved_views.agent_views, name=f"agent-views{suffix}"),
        path("agent-sets/", agent_sets.change_agent_set, name=f"agent-set{suffix}"),
        path("retirements/", retire.retire_selected, name=f"retire-selected{suffix}"),
        path("networking/", networking.networking_config, name=f"networking{suffix}"),
        path("networking/forecast/", networking.forecast, name=f"networking-forecast{suffix}"),
        path("policies/", policies.matrix, name=f"policies{suffix}"),
        path("policy-presets/<slug:slug>/", policy_edits.policy_preset, name=f"policy-preset{suffix}"),
        path("policies/<str:target>/", policies.target, name=f"policy-target{suffix}"),
        path("policies/<str:target>/<str:name>/", policy_edits.policy_cell, name=f"policy-cell{suffix}"),
        path("reconnect/", reconnect.reconnect, name=f"reconnect{suffix}"),
        path("reconnect/forecast/", reconnect.forecast, name=f"reconnect-forecast{suffix}"),
        path("changes/", changes.change_list, name=f"changes{suffix}"),
        path("changes/<int:change_id>/", changes.change, name=f"change{suffix}"),
        path("changes/<int:change_id>/abort/", aborts.abort, name=f"change-abort{suffix}"),
        path("audit/", audit.audit, name=f"audit{suffix}"),
        path("audit/<int:entry_id>/", audit.audit_entry, name=f"audit-entry{suffix}"),
        path("audit.csv", audit.audit_csv, name=f"audit-csv{suffix}"),
        path("audit.jsonl", audit.audit_json, name=f"audit-json{suffix}"),
        path("incidents/", incidents.incidents, name=f"incidents{suffix}"),
        path("incidents/badge.json", incidents.badge, name=f"incident-badge{suffix}"),
        path("incidents/<int:incident_id>/", incidents.incident, name=f"incident{suffix}"),
        path(
            "incidents/<int:incident_id>/agents.csv",
            incidents.incident_agents_csv,
            name=f"incident-agents-csv{suffix}",
        ),
        path(
            "incidents/<int:incident_id>/silence/",
            incident_dialogs.silence_incident,
            name=f"incident-silence{suffix}",
        ),
        path(
            "incidents/<int:incident_id>/acknowledge/",
            incident_dialogs.acknowledge_incident,
            name=f"incident-acknowledge{suffix}",
        ),
        path("silences/", silences.silences, name=f"silences{suffix}"),
        path("silences/preview", silence_forms.preview, name=f"silence-preview{suffix}"),
        path("silences/suggestions.json", silence_forms.suggestions, name=f"silence-suggestions{suffix}"),
        path("silences/new/", silence_forms.new_silence, name=f"silence-new{suffix}"),
        path("silences/<int:number>/extend/", silence_forms.extend_silence, name=f"silence-extend{suffix}"),
        path("silences/windows/preview", windows.window_preview, name=f"window-preview{suffix}"),
        path("silences/windows/new/", windows.new_window, name=f"window-new{suffix}"),
        path("silences/windows/<int:window_id>/", windows.window, name=f"window{suffix}"),
        path(
            "silences/windows/<int:window_id>/delete/", windows.delete_window, name=f"window-delete{suffix}"
        ),
        path("alerts/", rules.first_page, name=f"alerts{suffix}"),
        path("alerts/rules/", rules.rules, name=f"alert-rules{suffix}"),
        path("alerts/rules.yaml", rules.rules_file, name=f"alert-rules-file{suffix}"),
        path("alerts/rules/<int:rule_id>/", rules.rule, name=f"alert-rule{suffix}"),
        path("alerts/runbooks/", runbooks.runbook_list, name=f"runbooks{suffix}"),
        path("alerts/runbooks/<slug:cause>/", runbooks.runbook, name=f"runbook{suffix}"),
        path("alerts/runbooks/<slug:cause>/text/", runbooks.runbook_text, name=f"runbook-text{suffix}"),
        path("alerts/channels/", channels.channels, name=f"channels{suffix}"),
        path("alerts/channels/<int:channel_id>/", channels.channel, name=f"channel{suffix}"),
        path("alerts/channels/new/<slug:channel_kind>/", channels.new_channel, name=f"new-channel{suffix}"),
        path("alerts/alerting.yaml", configuration.export_file, name=f"alerting-file{suffix}"),
        path("alerts/import/", configuration.import_page, name=f"alerting-import{suffix}"),
        path("alerts/routes/<int:route_id>/", routes.route, name=f"route{suffix}"),
    ]


urlpatterns: list[URLPattern | URLResolver] = [
    *_page_routes(""),
    path("c/<slug:cluster>/", include(_page_routes("-of-cluster"))),
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/menu.json", cluster_menu.cluster_menu, name="cluster-menu"),
    path("clusters/new/", clusters.new_cluster, name="cluster-new"),
    path("clusters/<slug:cluster>/", clusters.cluster_page, name="cluster"),
    path("clusters/<slug:cluster>/edit/", clusters.edit_cluster, name="cluster-edit"),
    path("tokens/", tokens.tokens, name="tokens"),
    path("users/", users.user_list, name="users"),
    path("users/<path:username>/", users.user_page, name="user"),
    path("invitation/<str:token>/", users.accept_invitation, name="invitation"),
    path("setup/<str:token>/", setup.set_up, name="setup"),
    # By name, so that the first pages do not wait for 150 operations: `dashboards.config.asgi` imports it afterwards.
    URLResolver(RoutePattern("api/v1/"), "dashboards.api_v1", app_name="ninja", namespace="api-1"),
    path("healthz", system.healthz, name="healthz"),
    path("readyz", system.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("accounts/", include("allauth.urls")),
]
