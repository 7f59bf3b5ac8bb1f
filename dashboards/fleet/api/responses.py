"""Conversions of reader types to API responses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from dashboards.fleet.agent_report import present_agent_report
from dashboards.fleet.api import schemas
from dashboards.shared.headlines import present_headline
from dashboards.shared.instance_states import shown_state_of
from dashboards.shared.presenters import to_moment_or_none
from fleet.alerts.headlines.headline import Headline
from fleet.alerts.wording.reported_counts import find_reported_counts
from fleet.monitoring.evidence import Heartbeat
from fleet.monitoring.views import AgentView, Explanation, InstanceView, Summary
from fleet.vocabulary.instances import poll_fields_of
from fleet.vocabulary.verdicts import State


def build_dated_fields(cluster: str, as_of: float | None, now: float, *, is_stale: bool) -> dict[str, Any]:
    """Return the fields of `DatedResponse`. An age is never negative, even when the clock of a poller is ahead."""
    age = None if as_of is None else max(0, round((now - as_of) * 1000))
    return {"cluster": cluster, "as_of": to_moment_or_none(as_of), "age_ms": age, "is_stale": is_stale}


def count_by_slug(counts: Mapping[State, int], *, include_zero: bool = True) -> dict[str, int]:
    """Return counts by slug: of every state, or only of states with agents."""
    return {state.slug: counts.get(state, 0) for state in State if include_zero or counts.get(state)}


def summary_response_of(summary: Summary, headline: Headline, now: float) -> schemas.SummaryResponse:
    """Return the response with the fleet summary and the headline of the same round."""
    return schemas.SummaryResponse(
        **build_dated_fields(summary.cluster, summary.as_of, now, is_stale=summary.stale),
        interval_ms=round(summary.interval * 1000),
        agent_count=summary.agent_count,
        instance_count=summary.instance_count,
        counts=count_by_slug(summary.counts),
        headline=schemas.HeadlineItem.model_validate(present_headline(headline, summary.cluster)),
    )


def instance_item_of(view: InstanceView, requested_drains: Collection[str] = ()) -> schemas.InstanceItem:
    """Return one instance of a response; `requested_drains`: ids of the instances that an operator drained."""
    facts = view.facts
    reported_counts = find_reported_counts(facts, view.state)
    # Fields with the same name in the schema and in the facts are copied.
    return schemas.InstanceItem.model_validate(
        {
            **poll_fields_of(facts),
            "kind": facts.kind.value,
            "state": view.state.slug,
            "label": shown_state_of(view, is_stranding=False).label,
            "explanation": view.sentence,
            "health": view.health.value,
            "health_since": to_moment_or_none(view.health_since),
            "health_explanation": view.health_sentence,
            "drain": None
            if view.drain_request is None
            else {
                "reason": view.drain_request.reason,
                "since": to_moment_or_none(view.drain_request.requested_at),
            },
            "is_drain_requested": facts.id in requested_drains,
            "cause": view.cause,
            "proxies": view.proxies,
            "degraded_reason": facts.watch.degraded_reason,
            "ttl_seconds": facts.ttl,
            "expires_at": to_moment_or_none(facts.expires_at),
            "serving": None if facts.serving is None else facts.serving.name,
            "connection_counts": dict(facts.connection_counts),
            "counted_at": to_moment_or_none(facts.counted_at),
            "counts_text": "" if reported_counts is None else reported_counts.missing_sentence,
            "attempts": [
                {"at": to_moment_or_none(attempt.at), "succeeded": attempt.ok, "error": attempt.error}
                for attempt in facts.attempts
            ],
            "agent_count": view.agent_count,
            "counts": count_by_slug(view.counts, include_zero=False),
        }
    )


def agent_item_of(view: AgentView, instance_views: Iterable[InstanceView]) -> schemas.AgentItem:
    """Return one agent of a response."""
    return schemas.AgentItem(
        **_agent_fields_of(view, {instance_view.facts.id: instance_view for instance_view in instance_views})
    )


def agent_items_of(
    views: Iterable[AgentView], instance_views: Iterable[InstanceView]
) -> list[schemas.AgentItem]:
    """Return a list of agents of a response."""
    views_by_id = {instance_view.facts.id: instance_view for instance_view in instance_views}
    return [schemas.AgentItem(**_agent_fields_of(view, views_by_id)) for view in views]


def agent_response_of(
    cluster: str, explanation: Explanation, requested_drains: Collection[str] = ()
) -> schemas.AgentResponse:
    """Return the response with one agent and its evidence; `requested_drains` as in `instance_item_of`."""
    views_by_id = {instance_view.facts.id: instance_view for instance_view in explanation.instances.values()}
    return schemas.AgentResponse(
        **_agent_fields_of(explanation.view, views_by_id),
        cluster=cluster,
        evidence=_evidence_item_of(explanation),
        report=_agent_report_item_of(explanation),
        instances=[
            instance_item_of(instance_view, requested_drains)
            for instance_view in explanation.instances.values()
        ],
    )


def _agent_fields_of(view: AgentView, views_by_id: Mapping[str, InstanceView]) -> dict[str, Any]:
    def ref_of(instance_id: str | None) -> schemas.InstanceRef | None:
        if not instance_id:
            return None
        instance_view = views_by_id.get(instance_id)
        return schemas.InstanceRef(
            id=instance_id, name=instance_id if instance_view is None else instance_view.facts.name
        )

    def proxy_ref_of(instance_id: str) -> schemas.ProxyRef:
        instance_view = views_by_id.get(instance_id)
        if instance_view is None:
            return schemas.ProxyRef(id=instance_id, name=instance_id, group="", generation=0)
        facts = instance_view.facts
        return schemas.ProxyRef(id=facts.id, name=facts.name, group=facts.group, generation=facts.generation)

    verdict = view.verdict
    return {
        "id": view.id,
        "name": view.name,
        "state": view.state.slug,
        "reason": verdict.reason.slug if verdict.reason else "",
        "explanation": verdict.sentence,
        "cause": verdict.cause,
        "recovery": verdict.recovery.slug,
        "recovers_at": to_moment_or_none(verdict.recovers_at),
        "strands_at": to_moment_or_none(verdict.strands_at),
        "since": to_moment_or_none(view.since),
        "auth": ref_of(view.auth),
        "mode": view.mode.slug,
        "health_check": view.health_check,
        "policy_read_at": to_moment_or_none(view.policy_read_at),
        "proxies": [proxy_ref_of(instance_id) for instance_id in view.proxies],
        "home_proxy": ref_of(view.home_proxy),
        "version": view.version,
        "labels": dict(view.labels),
        "heartbeat_at": to_moment_or_none(view.heartbeat_at),
        "expires_at": to_moment_or_none(view.expires_at),
    }


def _instance_refs_of(
    indices: Iterable[int], instances: Mapping[int, InstanceView]
) -> list[schemas.InstanceRef]:
    all_facts = [instances[index].facts for index in indices if index in instances]
    return [schemas.InstanceRef(id=facts.id, name=facts.name) for facts in all_facts]


def _instance_ref_of(index: int | None, instances: Mapping[int, InstanceView]) -> schemas.InstanceRef | None:
    return next(iter(_instance_refs_of([] if index is None else [index], instances)), None)


def _tunnel_item_of(index: int, explanation: Explanation) -> schemas.TunnelItem:
    facts = explanation.instances[index].facts
    opened_at = to_moment_or_none(explanation.opened_at_by_proxy.get(index))
    return schemas.TunnelItem(id=facts.id, name=facts.name, opened_at=opened_at)


def _evidence_item_of(explanation: Explanation) -> schemas.EvidenceItem:
    evidence, instances = explanation.evidence, explanation.instances
    return schemas.EvidenceItem(
        heartbeat=None if evidence.heartbeat is None else _heartbeat_item_of(evidence.heartbeat, instances),
        tunnels=[_tunnel_item_of(index, explanation) for index in evidence.tunnels if index in instances],
        last_proxies=_instance_refs_of(evidence.last_proxies, instances),
        last_auth=_instance_ref_of(evidence.last_auth, instances),
        is_retired=evidence.is_retired,
        had_tunnel=evidence.had_tunnel,
        reconnecting_until=to_moment_or_none(evidence.working_until),
    )


def _agent_report_item_of(explanation: Explanation) -> schemas.AgentReportItem | None:
    # Dates only: ages are for pages.
    report_view = present_agent_report(explanation, now=0.0)
    if report_view is None:
        return None
    via_proxy = report_view.via_proxy_id and schemas.InstanceRef(
        id=report_view.via_proxy_id, name=report_view.via_proxy
    )
    return schemas.AgentReportItem.model_validate(asdict(report_view) | {"via_proxy": via_proxy or None})


def _heartbeat_item_of(heartbeat: Heartbeat, instances: Mapping[int, InstanceView]) -> schemas.HeartbeatItem:
    return schemas.HeartbeatItem(
        **asdict(heartbeat)
        | {
            "auth": _instance_ref_of(heartbeat.auth, instances),
            "via_proxy": _instance_ref_of(heartbeat.via_proxy, instances),
            "expires_at": to_moment_or_none(heartbeat.expires_at),
            "ttl_seconds": heartbeat.ttl,
            "mode": heartbeat.mode.slug,
            "policy_read_at": to_moment_or_none(heartbeat.policy_read_at),
            "desired_count": heartbeat.desired_count,
            "claimed_count": heartbeat.claimed_count,
            "tracked_count": heartbeat.tracked_count,
        }
    )
