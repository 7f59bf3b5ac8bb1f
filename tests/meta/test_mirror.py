"""Every module has its own test file, at the same place in tests/ (house style, point 27)."""

from __future__ import annotations

import re

from tests.meta.house import ROOT, tracked

#: Modules without a test file of their own, each with the reason.
EXEMPT = {
    "dashboards/api/access.py": "tests/dashboards/api/test_v1.py asks with good, bad and no tokens",
    "dashboards/api/answers.py": "tests/dashboards/api/test_v1.py reads every answer",
    "dashboards/api/changing.py": "tests/dashboards/api/test_changes.py goes by each of its rules",
    "dashboards/api/schemas.py": "types only; tests/dashboards/api/test_v1.py reads every answer",
    "dashboards/audit_query.py": "tests/dashboards/views/test_audit.py asks with every filter",
    "dashboards/change_rows.py": "tests/dashboards/views/test_changes.py and tests/dashboards/views/test_networking.py",
    "dashboards/apps.py": "names the app",
    "dashboards/bearer.py": "tests/dashboards/api/test_v1.py asks with good, bad and no tokens",
    "dashboards/config/asgi.py": "wires routing to middlewares; tests/flow/test_demo.py serves it",
    "dashboards/config/beat.py": "an app and its schedule; tests/flow/test_demo.py runs it",
    "dashboards/config/celery.py": "an app; tests/flow/test_demo.py runs its workers",
    "dashboards/draining.py": "tests/dashboards/views/test_drain.py and the API's test_draining.py go by it",
    "dashboards/forms/drain.py": "tests/dashboards/views/test_drain.py fills it in",
    "dashboards/forms/networking.py": "tests/dashboards/views/test_networking.py fills in every field",
    "dashboards/forms/alerts.py": "tests/dashboards/views/test_channels.py and its neighbours fill them in",
    "dashboards/forms/owners.py": "tests/dashboards/views/test_channels.py and its neighbours fill it in",
    "dashboards/forms/retire.py": "tests/dashboards/views/test_retire.py fills it in",
    "dashboards/forms/tokens.py": "tests/dashboards/views/test_tokens.py fills it in",
    "dashboards/campaign_plans.py": "tests/dashboards/views/test_reconnect.py fills it in",
    "dashboards/networking_plans.py": "tests/dashboards/api/test_changes.py takes changes back",
    "dashboards/policy_plans.py": "tests/dashboards/views/test_policies.py fills it in",
    "dashboards/reading.py": "tests/dashboards/views/test_pages.py reads through it",
    "dashboards/retiring.py": "tests/dashboards/views/test_retire.py and the API's test_retiring.py go by it",
    "dashboards/routing.py": "a list of routes; the permission walk visits each",
    "dashboards/urls.py": "a list of routes; the permission walk visits each",
    "dashboards/views/alert_audit.py": "tests/dashboards/views/test_silences.py reads what it wrote",
    "dashboards/views/agents.py": "tests/dashboards/views/test_pages.py opens it",
    "dashboards/views/errors.py": "tests/dashboards/views/test_pages.py opens it",
    "dashboards/views/fleet_map.py": "tests/dashboards/views/test_pages.py opens it",
    "dashboards/views/fleet_now.py": "tests/dashboards/views/test_pages.py opens it",
    "fleet/apps.py": "names the app",
    "fleet/classify/column_recovery.py": "tests/fleet/classify/test_agents_laws.py holds it equal to recovery.py",
    "fleet/cli/__main__.py": "two lines; tests/flow/test_demo.py runs it",
    "fleet/cli/fleet.py": "tests/flow/test_fleet_up.py runs its commands",
    "fleet/cli/home.py": "two options; tests/flow/test_fleet_up.py gives them",
    "fleet/cli/lazy.py": "tests/fleet/cli/test_main.py asks every group for its help",
    "fleet/cli/up.py": "tests/flow/test_fleet_up.py runs it",
    "fleet/domain/events.py": "types only; tests/fleet/pollers/test_conclude.py holds their law",
    "fleet/domain/views.py": "types only; tests/fleet/state/test_reader.py makes them all",
    "fleet/management/commands/alerts.py": "tests/flow/test_alerts.py runs it",
    "fleet/models/networking.py": "tests/fleet/control/test_networking_run.py writes and reads them",
    "fleet/models/alerting.py": "tests/fleet/alerts/test_store.py, tests/fleet/alerts/test_outbox.py use them",
    "fleet/models/incidents.py": "tests/fleet/alerts/test_store.py writes and reads them",
    "fleet/models/remembered.py": "tests/fleet/models/test_history.py writes and reads them",
    "fleet/models/transitions.py": "tests/fleet/models/test_history.py writes and reads them",
    "fleet/nodes/__main__.py": "tests/fleet/nodes/test_main.py runs it",
    "fleet/cli/gateway.py": "a name; tests/fleet/cli/test_main.py asks it for its help",
    "fleet/nodes/gateway_context.py": "types only; tests/fleet/nodes/test_gateway_call.py makes calls in one",
    "fleet/nodes/gateway_try.py": "tests/fleet/nodes/test_gateway_call.py answers tries in every way there is",
    "fleet/nodes/gateway_door.py": "tests/fleet/nodes/test_gateway.py sends every kind of call through it",
    "fleet/nodes/gateway_metrics.py": "tests/fleet/nodes/test_gateway_site.py reads them",
    "fleet/transport/http2/dialing.py": "tests/fleet/nodes/test_gateway_call.py dials all that may be wrong",
    "fleet/transport/http2/options.py": "values only; tests/fleet/transport/http2/test_connection_rules.py sets them",
    "fleet/transport/http2/stream.py": "tests/fleet/transport/http2/test_connection.py drives every stream",
    "fleet/nodes/agent_connection.py": "tests/fleet/nodes/test_agent.py drives it through the agent",
    "fleet/nodes/tunnel_client.py": "tests/fleet/cli/test_tunnel.py runs it",
    "fleet/nodes/tunnel_server.py": "tests/fleet/cli/test_tunnel.py runs it",
    "fleet/nodes/up.py": "tests/flow/test_demo.py runs a fleet with it",
    "fleet/pollers/listing.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/pollers/polling.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/pollers/recording.py": "tests/fleet/pollers/test_worker.py reads what it wrote",
    "fleet/sources/channels.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/sources/health.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/sources/presence.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/sources/readyz.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/sources/tunnels.py": "tests/fleet/pollers/test_worker.py polls real servers through it",
    "fleet/state/batch.py": "tests/fleet/state/test_writer.py writes through it",
    "fleet/state/connect.py": "tests/fleet/state/test_reader.py reads with and without a Redis",
    "fleet/state/keys.py": "names only; tests/fleet/state/test_writer.py writes under them",
    "fleet/state/outbox.py": "tests/fleet/pollers/test_conclude.py fills, tests/fleet/models/test_history.py empties",
    "fleet/state/record.py": "tests/fleet/state/test_writer.py writes it, tests/fleet/state/test_reader.py reads it",
    "fleet/state/tables.py": "tests/fleet/state/test_reader.py reads through it",
    "fleet/tasks.py": "tests/flow/test_demo.py runs the real workers and beat",
    "fleet/transport/pick_healthy/blocking_calls.py": "tests/fleet/transport/pick_healthy/test_blocking.py calls all",
    "fleet/transport/pick_healthy/blocking_connection.py": "tests/fleet/transport/pick_healthy/test_blocking.py runs",
    "fleet/transport/pick_healthy/calls.py": "tests/fleet/transport/pick_healthy/test_channel.py makes every kind",
    "fleet/transport/pick_healthy/connection.py": "tests/fleet/transport/pick_healthy/test_channel.py drives it",
    "fleet/transport/backend_scripts.py": "tests/fleet/transport/test_backend.py runs every script",
}


def _modules() -> list[str]:
    return [
        name
        for name in tracked()
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
    missing = [m for m in _modules() if m not in EXEMPT and not (ROOT / _test_of(m)).exists()]

    assert not missing, "no test file: " + ", ".join(f"{m} -> {_test_of(m)}" for m in missing)


def test_exemptions_name_what_is_there() -> None:
    """An exempted module exists, and so does the test that its reason names."""
    named = [
        word
        for reason in EXEMPT.values()
        for word in re.split(r"[ ,;]+", reason)
        if word.startswith("tests/")
    ]

    assert not [name for name in (*EXEMPT, *named) if not (ROOT / name).exists()]
