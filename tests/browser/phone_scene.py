"""A console full of long names, for pages that must fit a phone: `python -m tests.browser.phone_scene`.

Database and Redis are those of the environment. Prints the ids that the paths of pages need, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
django.setup()

from django.conf import settings  # noqa: E402 - Django first
from django.contrib.auth.models import User  # noqa: E402

from dashboards.changes import campaign_plans  # noqa: E402
from dashboards.shared import record_reader  # noqa: E402
from fleet.alerts import incident_actions  # noqa: E402
from fleet.alerts.notifications import NotificationLinks, payload_of  # noqa: E402
from fleet.alerts.store import incident_of  # noqa: E402
from fleet.audit import CONSOLE_ACTOR, RequestActor  # noqa: E402
from fleet.changes.networking import revisions  # noqa: E402
from fleet.changes.policies import desired_state, planner  # noqa: E402
from fleet.models.alerting import (  # noqa: E402
    AgentSet,
    AlertRule,
    Channel,
    Delivery,
    MaintenanceWindow,
    Route,
)
from fleet.models.changes import AuditEntry, Change  # noqa: E402
from fleet.models.clusters import Cluster, ensure_default_cluster  # noqa: E402
from fleet.models.drains import Drain  # noqa: E402
from fleet.models.incidents import Incident, IncidentEvent, VersionChange  # noqa: E402
from fleet.models.tokens import ApiToken  # noqa: E402
from fleet.monitoring.agent_report import (  # noqa: E402
    AgentReport,
    AgentReportResponse,
    ReportedTracker,
    ReportedTunnel,
    TrackedProxy,
)
from fleet.monitoring.state.connect import connect  # noqa: E402
from fleet.monitoring.state.policy_report_store import open_policy_report_store  # noqa: E402
from fleet.monitoring.state.writer import Writer  # noqa: E402
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, with_defaults  # noqa: E402
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE  # noqa: E402
from fleet.vocabulary.campaigns import CampaignAgentState  # noqa: E402
from fleet.vocabulary.changes import Actor, ActorKind, ChangeState  # noqa: E402
from fleet.vocabulary.incidents import Notification, NotificationKind  # noqa: E402
from fleet.vocabulary.rollouts import RolloutStepState  # noqa: E402
from fleet.vocabulary.verdicts import Reason, Recovery, State  # noqa: E402
from tests.fakes.history_rows import create_agent_change  # noqa: E402
from tests.fakes.policy_nodes import PolicyNodes  # noqa: E402
from tests.fakes.record import fill  # noqa: E402
from tests.fakes.rollout_worker import Node  # noqa: E402
from tests.flow.web import GUEST, PASSWORD, USERNAME  # noqa: E402

#: The end of every name: 60 characters where no line can break.
SUFFIX = "_of_the_distribution_centre_in_the_northern_industrial_estate"
AUTHS, PROXIES, AGENTS = 2, 12, 40
#: How far ahead the newest round is dated, so that it does not become too old while pages are measured.
AHEAD_SECONDS = 600
#: People, tokens and reasons are long as well.
REASON = "Spread_the_agents_of_the_northern_industrial_estate_over_the_new_proxies before the maintenance."


def main() -> None:
    """Write the record and the rows, and print the ids."""
    cluster, now = ensure_default_cluster(), time.time()
    _record(now)
    actor = RequestActor(
        Actor(ActorKind.PERSON, f"night_shift{SUFFIX}", User.objects.get(username=USERNAME).pk)
    )
    ids = _incidents(cluster, now) | _alerting_objects(cluster, now) | _changes(actor)
    _people(cluster)
    sys.stdout.write(json.dumps(ids))


def _record(now: float) -> None:
    """Agents of every verdict; the first one has tunnels to all proxies and answered through its tunnel."""
    writer = Writer(connect(settings.REDIS_URL), settings.REFLOAT_PREFIX)
    states = [state for state, _ in zip(cycle(State), range(AGENTS), strict=False)]
    epoch = fill(
        writer, states, auths=AUTHS, proxies=PROXIES, as_of=now + AHEAD_SECONDS, cause=AUTHS, suffix=SUFFIX,
        connected_to_all=1,
    )  # fmt: skip
    proxies = [f"proxy-{number + 1}-id" for number in range(PROXIES)]
    report = AgentReport(
        agent_id="agent-1-id",
        version="17.2.0",
        tracker=ReportedTracker(
            claimed_proxies=tuple(proxies),
            inflight=2,
            proxies=tuple(
                TrackedProxy(proxy_id=proxy, expires_in_ms=60_000, is_desired=True) for proxy in proxies
            ),
        ),
        tunnels=tuple(
            ReportedTunnel(proxy_id=proxy, open_for_ms=9_000, is_advised=True) for proxy in proxies
        ),
        services=tuple(f"{kind}{SUFFIX}" for kind in ("application", "database", "desktop")),
    )
    writer.write_agent_responses("default", epoch, {0: AgentReportResponse(now, AUTHS, report)})
    nodes = PolicyNodes(
        *(Node(f"auth-{number + 1}") for number in range(AUTHS)),
        *(Node(f"proxy-{number + 1}", "proxy", refusal_reason=f"flags{SUFFIX}") for number in range(PROXIES)),
    )
    open_policy_report_store(settings.REDIS_URL, settings.REFLOAT_PREFIX).write(
        "default", nodes.read_reports()
    )


def _incidents(cluster: Cluster, now: float) -> dict[str, int]:
    """One incident that is open, one that waits, one that is over, and a silence."""
    proxy = f"proxy-1{SUFFIX}"
    mark = [now - 240, 1.0, 2, 2, 207, "207 agents stranded.", True, False]
    row = Incident.objects.create(
        cluster=cluster, key="proxy/proxy-1-id", cause_kind="proxy", cause_id="proxy-1-id", cause_name=proxy,
        generation=1, state="firing", severity=2, opened_at=now - 240, fired_at=now - 235,
        affected_count=20, peak_count=207, agent_names=[f"agent-{number}{SUFFIX}" for number in range(5)],
        summary=f"207 agents stranded on {proxy}.", recovers_at=now + 600, notification_count=1,
        notified_at=now - 200, notified_severity=2, notified_affected_count=207,
        marks={f"Agents stranded{SUFFIX}"[:100]: mark}, trend=[[now - 240, 40], [now - 220, 207], [now - 30, 3]],
        acknowledged_at=now - 100, acknowledged_by=f"night_shift{SUFFIX}",
    )  # fmt: skip
    Incident.objects.create(
        cluster=cluster, key="agents/no-tunnel", cause_kind="agents", cause_id="no-tunnel", generation=1,
        cause_name=f"agents of {proxy}", state="pending", severity=1, opened_at=now - 60, affected_count=2,
        peak_count=2, summary="2 agents stranded.", inhibited_by=f"proxy/{proxy}", marks={},
    )  # fmt: skip
    Incident.objects.create(
        cluster=cluster, key="backend/default", cause_kind="backend", cause_id="default",
        cause_name=f"backend/default{SUFFIX}", generation=1, state="resolved", severity=2, opened_at=now - 9000,
        fired_at=now - 8990, resolved_at=now - 8000, recovering_since=now - 8300, peak_count=400, notification_count=2,
        summary="All auths were unhealthy.", trend=[[now - 9000, 400], [now - 8300, 0]],
    )  # fmt: skip
    for seconds, kind, text in ((-235, "firing", row.summary), (-90, "note", REASON)):
        IncidentEvent.objects.create(
            incident=row, at=now + seconds, kind=kind, actor_name=f"night_shift{SUFFIX}", text=text
        )
    VersionChange.objects.create(
        cluster=cluster,
        instance_id="proxy-1-id",
        name=proxy,
        old="17.1.0",
        new="17.2.0-dev+20260101",
        at=now - 600,
    )
    incident_actions.create_silence(
        f"cause=proxy*{SUFFIX}", REASON, f"night_shift{SUFFIX}", now - 3000, now + 600, CONSOLE_ACTOR
    )
    return {"incident": row.pk}


def _alerting_objects(cluster: Cluster, now: float) -> dict[str, int]:
    """Channels with messages, routes in three levels, a rule, an agent set and a maintenance window."""
    hook = Channel.objects.create(
        name=f"webhook{SUFFIX}", kind="webhook", config={"url": f"https://hooks{SUFFIX}.example.com/path"}
    )
    route = Route.objects.get()
    route.channels.add(hook)
    for level in range(3):
        route = Route.objects.create(
            name=f"level_{level}{SUFFIX}", parent=route, matchers=f"kind=proxy cause=proxy*{SUFFIX}",
            escalate_after=900, quiet_from="22:00", quiet_until="07:00", quiet_zone="Europe/Berlin",
        )  # fmt: skip
        route.escalate_to.add(hook)
    row = Incident.objects.get(state="firing")
    message = payload_of(
        Notification(NotificationKind.FIRING, incident_of(row), now - 200, 1),
        NotificationLinks("https://console.example.com", "", row.pk),
    )
    for number, state in enumerate(
        ({"sent_at": now - 199}, {"next_attempt_at": now + 30}, {"failed_at": now - 50})
    ):
        Delivery.objects.create(
            channel=hook, cluster=row.cluster_id, incident=row, key=f"k/{number}", kind="firing", payload=message,
            attempts=3, created_at=now - 200, last_error=f"hooks{SUFFIX}.example.com answered 503",
            **{"next_attempt_at": now - 200} | state,
        )  # fmt: skip
    rule = AlertRule.objects.order_by("pk")[0]
    AgentSet.objects.create(cluster=cluster, pattern=f"agent-*{SUFFIX}", name=SUFFIX.strip("_")[:64])
    MaintenanceWindow.objects.create(
        name=f"window{SUFFIX}", matchers=f"cause=proxy*{SUFFIX}", rule="FREQ=WEEKLY;BYDAY=SU", reason=REASON,
        start_time="02:00", length=timedelta(hours=2), creator=f"night_shift{SUFFIX}",
    )  # fmt: skip
    return {"channel": hook.pk, "route": route.pk, "rule": rule.pk}


def _changes(actor: RequestActor) -> dict[str, int]:
    """Plans of every kind, a campaign that runs and a rollout that has ended."""
    moment = datetime.now(UTC)
    config = with_defaults(NetworkingConfig(tunnel_strategy="proxy_peering", agent_connection_count=1))
    revisions.record_revision(
        "default", NetworkingResource(config, {"teleport.dev/origin": "dynamic"}, "r1"), moment
    )
    desired_config = replace(config, graceful_tunnel_closing=True, keep_alive_interval=30.0)
    plan = revisions.plan_change(
        "default", "r1", desired_config, actor, moment, record_reader.take_record_snapshot()
    )
    running_change = campaign_plans.plan_campaign("default", {"q": "agent"}, {}, actor, moment)
    for number, row in enumerate(running_change.campaign_agents.all()):
        row.state = (CampaignAgentState.SUCCEEDED, CampaignAgentState.FAILED, CampaignAgentState.SKIPPED)[
            number % 3
        ].value
        row.reason = (
            ""
            if row.state == CampaignAgentState.SUCCEEDED
            else f"not connected to proxy-2{SUFFIX} within 60 s"
        )
        row.new_proxy, row.requested_at, row.ended_at = (
            "proxy-2-id",
            seconds_from_now(-30),
            seconds_from_now(-9),
        )
        row.save()
    campaign = campaign_plans.plan_campaign("default", {"q": "agent"}, {}, actor, moment)
    rollout = _rollout("auth", {AUTH_TTL_VARIABLE: "30s"}, actor, moment)
    final_change = _rollout("proxy", {PROXY_TTL_VARIABLE: "30s"}, actor, moment)
    for step in final_change.rollout_steps.all():
        step.state, step.detail = RolloutStepState.FAILED.value, f"{step.name} did not come back within 120 s"
        step.save()
    for change, state in ((running_change, ChangeState.PAUSED), (final_change, ChangeState.FAILED)):
        change.state, change.reason, change.detail = state.value, REASON, f"paused by night_shift{SUFFIX}"
        change.started_at, change.progress = moment, {"stepped_at": moment.timestamp()}
        change.save()
    return {
        "config_plan": plan.pk,
        "campaign": running_change.pk,
        "campaign_plan": campaign.pk,
        "rollout": final_change.pk,
        "rollout_plan": rollout.pk,
        "audit_entry": AuditEntry.objects.filter(change_id=plan.pk).latest("pk").pk,
    }


def _rollout(role: str, values: dict[str, str], actor: RequestActor, moment: datetime) -> Change:
    """Plan other values of all instances of a role."""
    return planner.plan_change(
        "default",
        {role: values},
        record_reader.take_record_snapshot(),
        revision=desired_state.revision_of({}),
        rollout_settings={},
        should_roll_out=True,
        actor=actor,
        now=moment,
    )


def seconds_from_now(seconds: float) -> float:
    """Return the moment so many seconds from now."""
    return time.time() + seconds


def _people(cluster: Cluster) -> None:
    """A user without a role, a token, a drained proxy, and the state history of the first agent."""
    User.objects.create_user(GUEST, password=PASSWORD)
    ApiToken.objects.create(
        user=User.objects.get(username=USERNAME), name=f"token{SUFFIX}", prefix="rfl_0123456789ab", digest="0" * 64,
        scopes=["view_fleet", "act_on_fleet", "change_config"],
    )  # fmt: skip
    Drain.objects.create(
        cluster=cluster, instance="proxy-1-id", name=f"proxy-1{SUFFIX}", is_drained=True, reason=REASON,
        actor_name=f"night_shift{SUFFIX}", error=f"proxy-1{SUFFIX} did not answer",
    )  # fmt: skip
    for minutes, old, new in ((600, State.HEALTHY, State.STRANDED), (590, State.STRANDED, State.HEALTHY)):
        create_agent_change(
            "agent-1-id", time.time() - minutes * 60, old, new, reason=Reason.PROXY_UNHEALTHY,
            recovery=Recovery.BY_ITSELF, cause="proxy-1-id",
        )  # fmt: skip


if __name__ == "__main__":
    main()
