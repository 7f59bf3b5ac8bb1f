"""Reader types turned into the API's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from dashboards.fleet.agent_report import said
from dashboards.fleet.api import schemas
from dashboards.shared.presenters import moment
from fleet.monitoring.evidence import Heartbeat
from fleet.monitoring.views import AgentView, Explanation, InstanceView, Summary
from fleet.vocabulary.instances import fields_of
from fleet.vocabulary.verdicts import State


def dated(cluster: str, as_of: float | None, now: float, *, stale: bool) -> dict[str, Any]:
    """The fields of `Dated`. An age is never negative: a clock that is a little ahead says nothing."""
    age = None if as_of is None else max(0, round((now - as_of) * 1000))
    return {"cluster": cluster, "as_of": moment(as_of), "age_ms": age, "stale": stale}


def slugs(counts: Mapping[State, int], *, every: bool = True) -> dict[str, int]:
    """Counts by slug: every state, or only those that have any."""
    return {state.slug: counts.get(state, 0) for state in State if every or counts.get(state)}


def summary(found: Summary, now: float) -> schemas.SummaryAnswer:
    """Answer with the summary."""
    return schemas.SummaryAnswer(
        **dated(found.cluster, found.as_of, now, stale=found.stale),
        interval_ms=round(found.interval * 1000),
        agents=found.agents,
        instances=found.instances,
        counts=slugs(found.counts),
    )


def instance(view: InstanceView) -> schemas.InstanceItem:
    """Answer with one instance."""
    facts = view.facts
    # What the schema calls as the facts do is answered as it was seen.
    return schemas.InstanceItem.model_validate(
        {
            **fields_of(facts),
            "kind": facts.kind.value,
            "state": view.state.slug,
            "sentence": view.sentence,
            "health": view.health.value,
            "health_since": moment(view.health_since),
            "health_sentence": view.health_sentence,
            "draining": None
            if view.draining is None
            else {"reason": view.draining.reason, "since": moment(view.draining.at)},
            "cause": view.cause,
            "proxies": view.proxies,
            "degraded": facts.watch.says,
            "ttl_seconds": facts.ttl,
            "expires_at": moment(facts.expires_at),
            "serving": None if facts.serving is None else facts.serving.name,
            "attempts": [
                {"at": moment(attempt.at), "ok": attempt.ok, "error": attempt.error}
                for attempt in facts.attempts
            ],
            "agents": view.agents,
            "counts": slugs(view.counts, every=False),
        }
    )


def agent(view: AgentView, instances: Iterable[InstanceView]) -> schemas.AgentItem:
    """Answer with one agent of a list."""
    return schemas.AgentItem(**_agent_fields(view, {known.facts.id: known for known in instances}))


def agents(views: Iterable[AgentView], instances: Iterable[InstanceView]) -> list[schemas.AgentItem]:
    """Answer with a list of agents."""
    by_id = {known.facts.id: known for known in instances}
    return [schemas.AgentItem(**_agent_fields(view, by_id)) for view in views]


def explanation(cluster: str, found: Explanation) -> schemas.AgentAnswer:
    """Answer with one agent and its evidence."""
    by_id = {known.facts.id: known for known in found.instances.values()}
    return schemas.AgentAnswer(
        **_agent_fields(found.view, by_id),
        cluster=cluster,
        evidence=_evidence(found),
        said=_said(found),
        instances=[instance(known) for known in found.instances.values()],
    )


def _agent_fields(view: AgentView, by_id: Mapping[str, InstanceView]) -> dict[str, Any]:
    def ref(instance_id: str | None) -> schemas.InstanceRef | None:
        if not instance_id:
            return None
        known = by_id.get(instance_id)
        return schemas.InstanceRef(id=instance_id, name=instance_id if known is None else known.facts.name)

    def proxy(instance_id: str) -> schemas.ProxyRef:
        known = by_id.get(instance_id)
        if known is None:
            return schemas.ProxyRef(id=instance_id, name=instance_id, group="", generation=0)
        facts = known.facts
        return schemas.ProxyRef(id=facts.id, name=facts.name, group=facts.group, generation=facts.generation)

    verdict = view.verdict
    return {
        "id": view.id,
        "name": view.name,
        "state": view.state.slug,
        "reason": verdict.reason.slug if verdict.reason else "",
        "sentence": verdict.sentence,
        "cause": verdict.cause,
        "recovery": verdict.recovery.slug,
        "recovers_at": moment(verdict.recovers_at),
        "strands_at": moment(verdict.strands_at),
        "since": moment(view.since),
        "auth": ref(view.auth),
        "mode": view.mode.slug,
        "health_check": view.health_check,
        "policy_read_at": moment(view.policy_read_at),
        "proxies": [proxy(instance_id) for instance_id in view.proxies],
        "home": ref(view.home),
        "heartbeat_at": moment(view.heartbeat_at),
        "expires_at": moment(view.expires_at),
    }


def _refs(indices: Iterable[int], instances: Mapping[int, InstanceView]) -> list[schemas.InstanceRef]:
    known = [instances[index].facts for index in indices if index in instances]
    return [schemas.InstanceRef(id=facts.id, name=facts.name) for facts in known]


def _ref(index: int | None, instances: Mapping[int, InstanceView]) -> schemas.InstanceRef | None:
    return next(iter(_refs([] if index is None else [index], instances)), None)


def _tunnel(index: int, found: Explanation) -> schemas.TunnelItem:
    facts = found.instances[index].facts
    opened_at = moment(found.opened_at.get(index))
    return schemas.TunnelItem(id=facts.id, name=facts.name, opened_at=opened_at)


def _evidence(explanation: Explanation) -> schemas.EvidenceItem:
    found, instances = explanation.evidence, explanation.instances
    return schemas.EvidenceItem(
        heartbeat=None if found.heartbeat is None else _heartbeat(found.heartbeat, instances),
        tunnels=[_tunnel(index, explanation) for index in found.tunnels if index in instances],
        last_proxies=_refs(found.last_proxies, instances),
        last_auth=_ref(found.last_auth, instances),
        retired=found.retired,
        had_tunnel=found.had_tunnel,
        working_until=moment(found.working_until),
    )


def _said(explanation: Explanation) -> schemas.SaidItem | None:
    # Dates only: how old they are is for pages.
    found = said(explanation, now=0.0)
    if found is None:
        return None
    through = found.through_id and schemas.InstanceRef(id=found.through_id, name=found.through)
    return schemas.SaidItem.model_validate(asdict(found) | {"asked_at": found.at, "through": through or None})


def _heartbeat(found: Heartbeat, instances: Mapping[int, InstanceView]) -> schemas.HeartbeatItem:
    return schemas.HeartbeatItem(
        **asdict(found)
        | {
            "auth": _ref(found.auth, instances),
            "via_proxy": _ref(found.via_proxy, instances),
            "expires_at": moment(found.expires_at),
            "ttl_seconds": found.ttl,
            "mode": found.mode.slug,
            "policy_read_at": moment(found.policy_read_at),
        }
    )
