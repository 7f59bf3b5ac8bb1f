"""Every module has its own test file, at the same place in tests/ (house style, point 27)."""

from __future__ import annotations

import re

from tests.meta.house import ROOT, tracked_paths

#: Modules without a test file of their own, each with the reason.
EXEMPT = {
    "dashboards/shared/capabilities/views.py": (
        "tests/dashboards/shared/capabilities/test_missing.py opens each page with it"
    ),
    **{
        f"fleet/clusters/source_check/{name}.py": "tests/fleet/clusters/source_check/test_run.py breaks every rule"
        for name in ("declaration_rules", "findings", "hostile_servers", "request_rules")
    },
    "fleet/clusters/connection_test/refloat_steps.py": (
        "a list of checks; tests/fleet/clusters/connection_test/test_run.py runs them"
    ),
    "fleet/monitoring/sources/watch.py": (
        "an interface; tests/fleet/monitoring/pollers/test_watch_holder.py implements it"
    ),
    "fleet/vocabulary/connection_tests.py": (
        "labels only; tests/fleet/clusters/connection_test/test_run.py has a step of each name"
    ),
    "dashboards/shared/api/access.py": "tests/dashboards/test_api_v1.py asks with good, bad and no tokens",
    "dashboards/fleet/api/responses.py": "tests/dashboards/test_api_v1.py reads every answer",
    "dashboards/shared/api/change_responses.py": (
        "tests/dashboards/changes/api/test_changes.py goes by each of its rules"
    ),
    "dashboards/fleet/api/schemas.py": "types only; tests/dashboards/test_api_v1.py reads every answer",
    "dashboards/changes/audit_query.py": (
        "tests/dashboards/changes/views/test_audit.py asks with every filter"
    ),
    "dashboards/changes/change_rows.py": (
        "tests/dashboards/changes/views/test_changes.py and tests/dashboards/changes/views/test_networking.py"
    ),
    "dashboards/apps.py": "names the app",
    "dashboards/__main__.py": "two lines; tests/dashboards/config/test_program.py runs it",
    "dashboards/shared/pages.py": "tests/dashboards/test_pages.py opens every page through it",
    "dashboards/system/metrics_token.py": "tests/dashboards/test_api_v1.py asks with good, bad and no tokens",
    "dashboards/config/asgi.py": "wires routing to middlewares; tests/flow/test_demo.py serves it",
    "dashboards/config/celery.py": "an app; tests/flow/test_demo.py runs its workers",
    "dashboards/changes/service.py": (
        "tests/dashboards/changes/views/test_service.py and the API's test_service.py go by it"
    ),
    "dashboards/changes/forms/degrade.py": "tests/dashboards/changes/views/test_degrade.py fills it in",
    "dashboards/changes/forms/service.py": "tests/dashboards/changes/views/test_service.py fills it in",
    "dashboards/changes/forms/networking.py": (
        "tests/dashboards/changes/views/test_networking.py fills in every field"
    ),
    "dashboards/alerts/api/writable_rows.py": (
        "tests/dashboards/alerts/api/test_silences.py and test_windows.py ask for rows of others"
    ),
    "dashboards/alerts/api/setup_fields.py": "the tests of the API of channels, routes and rules send each of them",
    "dashboards/alerts/prior_changes.py": "tests/dashboards/alerts/views/test_incidents.py reads them",
    "dashboards/alerts/channel_cards.py": "tests/dashboards/alerts/views/test_channel_status.py reads them",
    "dashboards/alerts/route_tree.py": "tests/dashboards/alerts/views/test_routes.py shows it",
    "dashboards/alerts/forms/configuration.py": "tests/dashboards/alerts/views/test_configuration.py fills it in",
    "dashboards/alerts/forms/route_trial.py": "tests/dashboards/alerts/views/test_routes.py fills it in",
    "dashboards/alerts/forms/channels.py": "tests/dashboards/alerts/views/test_channels.py fills it in",
    "dashboards/alerts/forms/routes.py": "tests/dashboards/alerts/views/test_routes.py fills it in",
    "dashboards/alerts/forms/rules.py": "tests/dashboards/alerts/views/test_rules.py fills it in",
    "dashboards/alerts/forms/runbooks.py": "tests/dashboards/alerts/views/test_runbooks.py fills it in",
    "dashboards/alerts/forms/shared.py": "its neighbours share it",
    "dashboards/alerts/forms/silences.py": "tests/dashboards/alerts/views/test_silence_forms.py fills it in",
    "dashboards/alerts/forms/windows.py": "tests/dashboards/alerts/views/test_windows.py fills it in",
    "dashboards/shared/owners.py": (
        "tests/dashboards/alerts/views/test_channels.py and its neighbours fill it in"
    ),
    "dashboards/fleet/api/selected_agents.py": (
        "tests/dashboards/fleet/api/test_agent_sets.py and test_retire.py select by it"
    ),
    "dashboards/fleet/forms.py": "tests/dashboards/fleet/views/test_retire.py fills it in",
    "dashboards/access/forms.py": "tests/dashboards/access/test_views.py fills it in",
    "dashboards/changes/campaign_plans.py": "tests/dashboards/changes/views/test_reconnect.py fills it in",
    "dashboards/changes/campaign_rows.py": "tests/dashboards/changes/views/test_reconnect.py reads them",
    "dashboards/changes/presenters.py": (
        "tests/dashboards/changes/views/test_changes.py and its neighbours open the page of every kind"
    ),
    "fleet/changes/base_kind.py": "tests/fleet/changes/test_kinds.py goes by every kind",
    "fleet/changes/base_runner.py": "tests/fleet/test_tasks.py runs changes by it",
    "fleet/changes/runners.py": "tests/fleet/test_tasks.py and tests/fleet/changes/networking/test_run.py ask it",
    "fleet/changes/campaigns/kind.py": "tests/fleet/changes/test_kinds.py goes by every kind",
    "fleet/changes/networking/kind.py": "tests/dashboards/changes/api/test_changes.py takes changes back",
    "fleet/changes/policies/planner.py": "tests/dashboards/changes/views/test_policies.py fills it in",
    "dashboards/shared/record_reader.py": "tests/dashboards/test_pages.py reads through it",
    "dashboards/fleet/retire.py": (
        "tests/dashboards/fleet/views/test_retire.py and the API's test_retiring.py go by it"
    ),
    "dashboards/live/routing.py": "a list of routes; the permission walk visits each",
    "dashboards/urls.py": "a list of routes; the permission walk visits each",
    "dashboards/fleet/views/agents.py": "tests/dashboards/test_pages.py opens it",
    "dashboards/system/errors.py": "tests/dashboards/test_pages.py opens it",
    "dashboards/fleet/views/map.py": "tests/dashboards/test_pages.py opens it",
    "dashboards/fleet/views/now.py": "tests/dashboards/test_pages.py opens it",
    "dashboards/access/user_rows.py": "tests/dashboards/access/test_users.py lists users with it",
    "dashboards/system/data_health/api.py": "tests/dashboards/system/data_health/test_views.py requests it",
    "dashboards/system/data_health/current.py": "tests/dashboards/system/data_health/test_views.py reads by it",
    "fleet/management/data_health/facts.py": (
        "types only; tests/fleet/management/data_health/test_problems.py makes them"
    ),
    "fleet/management/data_health/reading.py": (
        "tests/dashboards/system/data_health/test_views.py reads a real Redis by it"
    ),
    "fleet/apps.py": "names the app",
    "fleet/monitoring/classify/column_recovery.py": (
        "tests/fleet/monitoring/classify/test_agents_laws.py holds it equal to recovery.py"
    ),
    "fleet/cli/__main__.py": "two lines; tests/flow/test_demo.py runs it",
    "fleet/cli/local/fleet.py": "tests/flow/test_fleet_up.py runs its commands",
    "fleet/cli/home.py": "two options; tests/flow/test_fleet_up.py gives them",
    "fleet/cli/lazy_group.py": "tests/fleet/cli/test_main.py asks every group for its help",
    "fleet/cli/local/up.py": "tests/flow/test_fleet_up.py runs it",
    "fleet/monitoring/events.py": (
        "types only; tests/fleet/monitoring/pollers/test_conclude.py holds their law"
    ),
    "fleet/monitoring/views.py": "types only; tests/fleet/monitoring/state/test_reader.py makes them all",
    "fleet/management/backups/backup.py": "tests/flow/test_backup.py writes archives",
    "fleet/management/backups/postgresql_database.py": "tests/flow/test_backup.py copies and restores databases",
    "fleet/management/backups/restore.py": "tests/flow/test_backup.py restores archives, good and bad ones",
    "fleet/management/backups/sqlite_database.py": "tests/flow/test_backup.py copies and restores databases",
    "fleet/management/commands/backup.py": "tests/flow/test_backup.py runs it",
    "fleet/management/commands/restore.py": "tests/flow/test_backup.py runs it",
    "fleet/management/commands/alerts.py": "tests/flow/test_alerts.py runs it",
    "fleet/clusters/connection_test/probes.py": (
        "tests/fleet/clusters/connection_test/test_run.py makes every kind of connection"
    ),
    "fleet/clusters/connection_test/server_checks.py": (
        "tests/fleet/clusters/connection_test/test_run.py goes by each of its problems"
    ),
    "fleet/clusters/connection_test/server_steps.py": (
        "tests/fleet/clusters/connection_test/test_run.py goes by each of its steps"
    ),
    "fleet/clusters/connection_test/tls_problems.py": (
        "tests/fleet/clusters/connection_test/test_run.py has every TLS fault"
    ),
    "fleet/vocabulary/clusters.py": "labels only; tests/fleet/clusters/test_addresses.py resolves each kind",
    "fleet/models/networking.py": "tests/fleet/changes/networking/test_run.py writes and reads them",
    "fleet/models/alerting.py": (
        "tests/fleet/alerts/test_store.py, tests/fleet/alerts/test_outbox.py use them"
    ),
    "dashboards/fleet/views/saved_views.py": (
        "tests/dashboards/fleet/agent_list/test_saved_views.py sends its forms"
    ),
    "fleet/models/saved_views.py": "tests/dashboards/fleet/agent_list/test_saved_views.py writes and reads them",
    "fleet/models/runbooks.py": "tests/fleet/alerts/runbooks/test_custom_texts.py writes and reads them",
    "fleet/models/incidents.py": "tests/fleet/alerts/test_store.py writes and reads them",
    "fleet/models/inventory.py": "tests/fleet/monitoring/history/test_store.py writes and reads them",
    "fleet/models/history.py": "tests/fleet/monitoring/history/test_store.py writes and reads them",
    "fleet/nodes/__main__.py": "tests/fleet/nodes/test_main.py runs it",
    "fleet/cli/gateway.py": "a name; tests/fleet/cli/test_main.py asks it for its help",
    "fleet/nodes/gateway/context.py": "types only; tests/fleet/nodes/gateway/test_call.py makes calls in one",
    "fleet/nodes/gateway/attempt_stream.py": (
        "tests/fleet/nodes/gateway/test_call.py answers tries in every way there is"
    ),
    "fleet/nodes/gateway/listener.py": (
        "tests/fleet/nodes/gateway/test_server.py sends every kind of call through it"
    ),
    "fleet/nodes/gateway/metrics.py": "tests/fleet/nodes/gateway/test_site.py reads them",
    "fleet/transport/http2/backend_dialer.py": "tests/fleet/nodes/gateway/test_call.py dials all that may be wrong",
    "fleet/transport/http2/options.py": (
        "values only; tests/fleet/transport/http2/test_connection_rules.py sets them"
    ),
    "fleet/transport/http2/stream.py": "tests/fleet/transport/http2/test_connection.py drives every stream",
    "fleet/nodes/agent/auth_connection.py": (
        "tests/fleet/nodes/agent/test_program.py drives it through the agent"
    ),
    "fleet/nodes/tunnel/client.py": "tests/fleet/cli/test_tunnel.py runs it",
    "fleet/nodes/tunnel/server.py": "tests/fleet/cli/test_tunnel.py runs it",
    "fleet/nodes/local/local_fleet.py": "tests/flow/test_demo.py runs a fleet with it",
    "fleet/monitoring/pollers/record_lists.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/pollers/shard_poll.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/pollers/record_sightings.py": (
        "tests/fleet/monitoring/pollers/test_worker.py reads what it wrote"
    ),
    "fleet/transport/poll_connections.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/sources/health.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/sources/presence.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/sources/readyz.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/sources/tunnels.py": (
        "tests/fleet/monitoring/pollers/test_worker.py polls real servers through it"
    ),
    "fleet/monitoring/state/batch.py": "tests/fleet/monitoring/state/test_writer.py writes through it",
    "fleet/monitoring/state/connect.py": (
        "tests/fleet/monitoring/state/test_reader.py reads with and without a Redis"
    ),
    "fleet/monitoring/state/keys.py": (
        "names only; tests/fleet/monitoring/state/test_writer.py writes under them"
    ),
    "fleet/monitoring/state/outbox.py": (
        "tests/fleet/monitoring/pollers/test_conclude.py fills, "
        "tests/fleet/monitoring/history/test_store.py empties"
    ),
    "fleet/monitoring/state/record.py": (
        "tests/fleet/monitoring/state/test_writer.py writes it, "
        "tests/fleet/monitoring/state/test_reader.py reads it"
    ),
    "fleet/monitoring/state/tables.py": "tests/fleet/monitoring/state/test_reader.py reads through it",
    "fleet/tasks.py": "tests/flow/test_demo.py runs the real workers and beat",
    "fleet/transport/pick_healthy/blocking_calls.py": (
        "tests/fleet/transport/pick_healthy/test_blocking.py calls all"
    ),
    "fleet/transport/pick_healthy/blocking_connection.py": (
        "tests/fleet/transport/pick_healthy/test_blocking.py runs"
    ),
    "fleet/transport/pick_healthy/calls.py": (
        "tests/fleet/transport/pick_healthy/test_channel.py makes every kind"
    ),
    "fleet/transport/pick_healthy/connection.py": (
        "tests/fleet/transport/pick_healthy/test_channel.py drives it"
    ),
    "fleet/transport/backend_scripts.py": "tests/fleet/transport/test_backend.py runs every script",
}


def _modules() -> list[str]:
    return [
        name
        for name in tracked_paths()
        if name.startswith(("fleet/", "dashboards/"))
        and name.endswith(".py")
        and not name.endswith("__init__.py")
        and "/wire/" not in name
        and "/migrations/" not in name
    ]


def _test_of(module: str) -> str:
    folder, _, name = module.rpartition("/")
    return f"tests/{folder}/test_{name}"


def test_every_module_has_its_test() -> None:
    """A new module without tests/<path>/test_<module>.py fails here, by name."""
    untested = [m for m in _modules() if m not in EXEMPT and not (ROOT / _test_of(m)).exists()]

    assert not untested, "no test file: " + ", ".join(f"{m} -> {_test_of(m)}" for m in untested)


def test_exemptions_name_existing_modules() -> None:
    """An exempted module exists, and so does the test that its reason names."""
    paths = [
        path
        for reason in EXEMPT.values()
        for path in re.split(r"[ ,;]+", reason)
        if path.startswith("tests/")
    ]

    assert not [name for name in (*EXEMPT, *paths) if not (ROOT / name).exists()]
