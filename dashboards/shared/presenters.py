"""Context of templates: data of the reader as words, dates and ages. Templates do not derive states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from dashboards.shared.agent_filters import format_label_filter
from dashboards.shared.instance_loads import InstanceLoad, instance_loads_of
from dashboards.shared.instance_states import ShownInstanceState, shown_state_of
from dashboards.shared.instance_trends import InstanceTrend
from fleet.alerts.wording.reported_counts import ReportedCounts, find_reported_counts
from fleet.alerts.wording.words import format_remaining
from fleet.models.moments import to_moment
from fleet.monitoring.evidence import AgentEvidence, Heartbeat, ReconnectMode
from fleet.monitoring.views import AgentView, Explanation, InstanceView, Summary
from fleet.protocol.durations import format_exact, format_readable
from fleet.vocabulary import error_texts
from fleet.vocabulary.instances import CUT_OFF_STATES, SICK_STATES, InstanceFacts, InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.numbers import SECONDS_UNIT, TypedDuration, ranges_of
from fleet.vocabulary.verdicts import STATES_BY_URGENCY, Reason, Recovery, State, Verdict

Counts = tuple[tuple[State, int], ...]

#: Number of rows of one kind up to which the table of instances keeps the order of names: longer ones begin with the
#: instances that are not OK.
_MAX_ROWS_BY_NAME = 12
#: Maximum number of proxy names on the card of an auth.
_MAX_NAMED_PROXIES = 4
#: Maximum number of labels of an agent in a list.
_MAX_LISTED_LABELS = 5
#: Proxies that fail within this time are one failure: polls find them one after another.
_SAME_FAILURE_SECONDS = 10.0


def to_moment_or_none(at: float | None) -> datetime | None:
    """Return seconds since the epoch as an aware UTC datetime; None for None and 0 (none in packed columns)."""
    return to_moment(at) if at else None


def age_ms_of(at: float | None, now: float) -> int | None:
    """Return milliseconds since `at`, negative if it is in the future; None for None and 0."""
    return round((now - at) * 1000) if at else None


def order_counts(counts: Mapping[State, int]) -> Counts:
    """Return every state with its count, in reading order."""
    return tuple((state, counts.get(state, 0)) for state in STATES_BY_URGENCY)


@dataclass(frozen=True, slots=True)
class InstanceCard:
    """One auth or proxy on Fleet now."""

    #: Observed facts, for values that templates show unchanged.
    facts: InstanceFacts
    name: str
    kind: InstanceKind
    state: InstanceState
    shown_state: ShownInstanceState
    sentence: str
    agent_count: int
    #: Age of its own heartbeat, and its announce TTL, ms.
    heartbeat_age_ms: int | None
    ttl_ms: int | None
    #: No list of instances was received recently, so newer heartbeats would not have been seen.
    is_list_stale: bool
    #: Number of its agents that are not healthy, by state, without zeros.
    unhealthy_counts: Counts
    #: Why its destination health is degraded or worse; empty if its state shows that already, or it is healthy.
    health_sentence: str
    #: Original text of the last failed attempt while it does not respond, up to 300 characters; otherwise empty.
    error_details: str
    #: Reason for draining; None if it does not drain.
    draining_reason: str | None
    #: The last request of an operator drained it; it may not report that it drains yet.
    is_drain_requested: bool
    #: Group and generation of a proxy, `blue 3`; empty if it reports none.
    generation: str
    #: Of a proxy: the auth that receives its heartbeats. Of an auth: the proxies that send them. In words, or empty.
    heartbeat_path: str = ""
    #: Its tunnels or agents beside those of its peers; None on pages of one instance.
    load: InstanceLoad | None = None
    #: Tunnels that it counts without naming the agents; None if it does not.
    tunnel_counts: ReportedCounts | None = None
    #: Its agents in the last hour; None without data.
    trend: InstanceTrend | None = None


@dataclass(frozen=True, slots=True)
class AgentLabel:
    """A label of an agent: `env=prod`."""

    text: str
    #: Filter for the agents with the same label; empty if there is none.
    filter: str


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent in a list, or at the top of its page."""

    id: str
    name: str
    state: State
    reason: str
    #: Why the agent has its state, and the same with whether and when it recovers.
    state_sentence: str
    sentence: str
    #: Whether and when the agent recovers, in words; empty if no recovery is needed.
    recovery: str
    #: How long it is until then: `in about 12 min`; empty without a predicted time.
    recovery_remaining: str
    cause: str
    since: datetime | None
    since_age_ms: int | None
    auth: str
    #: Policy of its auth connection: `reconnect, health check`; empty if no heartbeat reports it.
    mode: str
    #: Proxies that report a tunnel; if none of them responds any more, those that reported one last.
    proxies: tuple[str, ...]
    #: No proxy with a tunnel responds: the tunnels are as last reported.
    are_tunnels_past: bool
    #: Groups and generations of these proxies, without duplicates: `blue 3`.
    generations: tuple[str, ...]
    home_proxy: str
    expires_at: datetime | None
    expires_age_ms: int | None
    #: Version and labels that the agent reported last; the version is empty if it reported none.
    version: str = ""
    labels: tuple[AgentLabel, ...] = ()

    @property
    def first_labels(self) -> tuple[AgentLabel, ...]:
        """The labels that a list shows."""
        return self.labels[:_MAX_LISTED_LABELS]

    @property
    def more_label_count(self) -> int:
        """Number of labels that a list does not show."""
        return len(self.labels) - len(self.first_labels)


def live_page_context_of(summary: Summary, now: float, page: str) -> dict[str, Any]:
    """Return the context of every page with live data: `page`, `summary`, `counts`, `age_ms`, `stale`.

    `fleet_size`: number of agents without retired ones; `retired_count`: number of retired agents.
    """
    retired_count = summary.counts.get(State.RETIRED, 0)
    return {
        "page": page,
        "summary": summary,
        "counts": order_counts(summary.counts),
        "age_ms": age_ms_of(summary.as_of, now),
        "stale": summary.stale,
        "fleet_size": summary.agent_count - retired_count,
        "retired_count": retired_count,
    }


def instance_cards_of(
    views: Sequence[InstanceView],
    now: float,
    trends: Mapping[str, InstanceTrend] = MappingProxyType({}),
    stranding: frozenset[int] = frozenset(),
    requested_drains: Collection[str] = (),
) -> dict[str, tuple[InstanceCard, ...]]:
    """Return the cards of `auths` and `proxies`, in natural order of their names (proxy-2 before proxy-10).

    Of many instances, those that are not OK come first. `trends`: by id of the instance; `stranding`: result of
    `find_stranding_instances`; `requested_drains`: ids of the instances that an operator drained.
    """
    sorted_views = sorted(views, key=lambda view: natural_sort_key(view.facts.name))
    names = {view.facts.id: view.facts.name for view in views}
    loads = instance_loads_of(views)
    cards = [
        (
            view.facts.kind,
            replace(
                instance_card_of(
                    view,
                    now,
                    names,
                    is_stranding=view.facts.index in stranding,
                    is_drain_requested=view.facts.id in requested_drains,
                ),
                load=loads[view.facts.index],
                trend=trends.get(view.facts.id),
            ),
        )
        for view in sorted_views
    ]
    return {
        "auths": _put_failing_first([card for kind, card in cards if kind is InstanceKind.AUTH]),
        "proxies": _put_failing_first([card for kind, card in cards if kind is InstanceKind.PROXY]),
    }


def _put_failing_first(cards: list[InstanceCard]) -> tuple[InstanceCard, ...]:
    if len(cards) > _MAX_ROWS_BY_NAME:
        cards.sort(key=lambda card: card.state is InstanceState.OK and not card.unhealthy_counts)
    return tuple(cards)


def agent_row_of(view: AgentView, instances: Mapping[str, InstanceView], now: float) -> AgentRow:
    """Return one agent as a row; `instances` by id."""

    def name_of(instance: str | None) -> str:
        instance_view = instances.get(instance or "")
        return (instance or "") if instance_view is None else instance_view.facts.name

    verdict = view.verdict
    proxies, are_tunnels_past = select_shown_proxies(view.proxies, instances)
    return AgentRow(
        id=view.id,
        name=view.name,
        state=view.state,
        reason="" if verdict.reason is Reason.NONE else verdict.reason.slug,
        state_sentence=verdict.sentences.state,
        sentence=verdict.sentence,
        recovery=describe_recovery(verdict, describe_cause(name_of(verdict.cause))),
        recovery_remaining=_remaining_of(verdict, now),
        cause=describe_cause(name_of(verdict.cause)),
        since=to_moment_or_none(view.since),
        since_age_ms=age_ms_of(view.since, now),
        auth=name_of(view.auth),
        mode=describe_mode(view.mode, health_check=bool(view.health_check)),
        proxies=tuple(name_of(proxy) for proxy in proxies),
        are_tunnels_past=are_tunnels_past,
        generations=_generations_of(instances[proxy].facts for proxy in proxies if proxy in instances),
        home_proxy=name_of(view.home_proxy),
        expires_at=to_moment_or_none(view.expires_at),
        expires_age_ms=age_ms_of(view.expires_at, now),
        version=view.version,
        labels=tuple(
            AgentLabel(f"{key}={text}", format_label_filter(key, text)) for key, text in view.labels.items()
        ),
    )


def select_shown_proxies(
    proxies: Sequence[str], instances: Mapping[str, InstanceView]
) -> tuple[tuple[str, ...], bool]:
    """Return the proxies of an agent that a list shows, and whether none of them responds any more.

    The record keeps the last tunnels of a proxy that does not respond. Beside a current tunnel they are past;
    an agent without a current tunnel was on the proxies that failed last.
    """
    failed_at = {
        proxy: view.facts.sick_since or 0.0
        for proxy in proxies
        if (view := instances.get(proxy)) is not None and view.state in CUT_OFF_STATES
    }
    current = tuple(proxy for proxy in proxies if proxy not in failed_at)
    if current or not failed_at:
        return current, False
    last = max(failed_at.values()) - _SAME_FAILURE_SECONDS
    return tuple(proxy for proxy in proxies if failed_at[proxy] >= last), True


def describe_mode(mode: ReconnectMode, *, health_check: bool) -> str:
    """Return the policy of an agent's auth connection in words; empty if it is unknown."""
    if mode is ReconnectMode.UNKNOWN:
        return ""
    return f"{mode.slug}, health check" if health_check else mode.slug


def describe_cause(cause: str) -> str:
    """Return the name of a cause: `backend/prod` becomes `the auth backend of cluster prod`."""
    kind, _, cluster = cause.partition("/")
    return f"the auth backend of cluster {cluster}" if kind == "backend" and cluster else cause


def describe_recovery(verdict: Verdict, cause: str) -> str:
    """Return whether and when an agent recovers, in words; empty if no recovery is needed."""
    if verdict.recovery is Recovery.NOT_NEEDED:
        return ""
    if verdict.recovery is Recovery.ONLY_IF_CAUSE_RECOVERS:
        return f"Recovers when {cause or 'the cause'} recovers"
    if verdict.recovery is Recovery.UNCLEAR:
        return "Unknown"
    recovers_at = to_moment_or_none(verdict.recovers_at)
    return (
        "Recovers automatically"
        if recovers_at is None
        else f"Recovers automatically by {recovers_at:%H:%M:%S} UTC"
    )


def _remaining_of(verdict: Verdict, now: float) -> str:
    if verdict.recovery is not Recovery.BY_ITSELF or verdict.recovers_at is None:
        return ""
    return format_remaining(verdict.recovers_at - now)


def agent_context_of(explanation: Explanation, now: float) -> dict[str, Any]:
    """Return one agent with the evidence for its state: `agent`, `evidence` as (label, value), `instance_names`."""
    views_by_id = {view.facts.id: view for view in explanation.instances.values()}
    return {
        "agent": agent_row_of(explanation.view, views_by_id, now),
        "evidence": evidence_rows_of(explanation.evidence, explanation.instances),
        "instance_names": [view.facts.name for view in explanation.instances.values()],
    }


def evidence_rows_of(evidence: AgentEvidence, instances: Mapping[int, InstanceView]) -> list[tuple[str, str]]:
    """Return all observations of an agent as (label, value)."""
    rows: list[tuple[str, str]] = []
    if evidence.heartbeat is None:
        rows.append(("Heartbeat", "none: no auth lists this agent"))
    else:
        rows.extend(_heartbeat_rows_of(evidence.heartbeat, instances))
    last_proxies = [instances[index].facts.name for index in evidence.last_proxies if index in instances]
    rows.append(("Last seen on", ", ".join(last_proxies) or "no proxy"))
    if evidence.is_retired:
        rows.append(("Retired", "by an operator"))
    if not evidence.had_tunnel:
        rows.append(("Tunnels so far", "none"))
    return rows


def number_fields_of(
    settings: Any, form_values: Mapping[str, str], problems: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the numbers of `settings` as form fields, with the values of `form_values` where present."""
    rows = []
    for name, (low, high, label, unit) in ranges_of(type(settings)).items():
        stored_value = getattr(settings, name)
        text = format_exact(stored_value) if unit == SECONDS_UNIT else stored_value
        rows.append(
            {
                "name": name, "label": label, "unit": "" if unit == SECONDS_UNIT else unit, "low": low, "high": high,
                "value": form_values.get(name, text), "problem": problems.get(name, ""),
            }
        )  # fmt: skip
    return rows


def read_typed_settings(
    settings_class: type, names: Iterable[str], form_values: Mapping[str, str]
) -> dict[str, str | TypedDuration]:
    """Return the settings that a person typed into `number_fields_of` and other fields, for their parser."""
    ranges = ranges_of(settings_class)
    return {
        name: TypedDuration(form_values[name])
        if name in ranges and ranges[name][3] == SECONDS_UNIT
        else form_values[name]
        for name in names
        if name in form_values
    }


def _heartbeat_rows_of(heartbeat: Heartbeat, instances: Mapping[int, InstanceView]) -> list[tuple[str, str]]:
    def name_of(index: int | None) -> str:
        instance_view = None if index is None else instances.get(index)
        return "unknown" if instance_view is None else instance_view.facts.name

    expires_at, policy_read_at = (
        to_moment_or_none(heartbeat.expires_at),
        to_moment_or_none(heartbeat.policy_read_at),
    )
    rows = [
        ("Heartbeat received by", name_of(heartbeat.auth)),
        ("Heartbeat expires", "unknown" if expires_at is None else f"{expires_at:%H:%M:%S} UTC"),
        ("Heartbeat TTL", format_readable(heartbeat.ttl)),
        ("Reconnect mode", heartbeat.mode.slug),
        ("Auth health check", "on" if heartbeat.health_check else "off"),
        (
            "Agent read its policy at",
            "not reported" if policy_read_at is None else f"{policy_read_at:%H:%M:%S} UTC",
        ),
        (
            "Desired tunnels",
            str(heartbeat.desired_count) if heartbeat.desired_count else "one to every proxy",
        ),
        ("Tunnels reported by the agent", str(heartbeat.claimed_count)),
        ("Unexpired proxies known to the agent", str(heartbeat.tracked_count)),
    ]
    if heartbeat.via_proxy is not None:
        rows.insert(1, ("Connected to the auth through", name_of(heartbeat.via_proxy)))
    if heartbeat.ttl_seen:
        rows.append(("Proxy TTL known to the agent", format_readable(heartbeat.ttl_seen)))
    return rows


def instance_card_of(
    view: InstanceView,
    now: float,
    names: Mapping[str, str],
    *,
    is_stranding: bool,
    is_drain_requested: bool = False,
) -> InstanceCard:
    """Return the card of one auth or proxy; `names` of all instances by id."""
    facts = view.facts
    written_at = None if facts.expires_at is None or facts.ttl is None else facts.expires_at - facts.ttl
    return InstanceCard(
        facts=facts,
        name=facts.name,
        kind=facts.kind,
        state=view.state,
        shown_state=shown_state_of(view, is_stranding=is_stranding),
        sentence=view.sentence,
        agent_count=view.agent_count,
        heartbeat_age_ms=age_ms_of(written_at, now),
        ttl_ms=None if facts.ttl is None else round(facts.ttl * 1000),
        is_list_stale=not view.is_list_fresh,
        unhealthy_counts=tuple(
            (state, n) for state, n in order_counts(view.counts) if n and state is not State.HEALTHY
        ),
        health_sentence=view.health_sentence if view.state not in SICK_STATES else "",
        error_details=_error_details_of(view),
        draining_reason=None if view.drain_request is None else view.drain_request.reason,
        is_drain_requested=is_drain_requested,
        heartbeat_path=_describe_heartbeat_path(view, names),
        generation=format_generation(facts),
        tunnel_counts=find_reported_counts(facts, view.state),
    )


def _error_details_of(view: InstanceView) -> str:
    return error_texts.error_details(view.facts.last_error) if view.state is InstanceState.SILENT else ""


def _describe_heartbeat_path(view: InstanceView, names: Mapping[str, str]) -> str:
    """Return the auth that receives heartbeats of a proxy, or the proxies that send heartbeats to an auth, in words."""
    if view.facts.heartbeat_auth:
        auth = view.facts.heartbeat_auth
        # A proxy that ended or hangs sends none now.
        verb = "sent" if view.state in CUT_OFF_STATES else "sends"
        return f"{verb} heartbeats to {names.get(auth, auth)}"
    if not view.proxies:
        return ""
    proxy_names, unnamed_count = (
        ", ".join(view.proxies[:_MAX_NAMED_PROXIES]),
        len(view.proxies) - _MAX_NAMED_PROXIES,
    )
    return f"receives heartbeats from {proxy_names}" + (
        f" and {unnamed_count} more" if unnamed_count > 0 else ""
    )


def format_generation(facts: InstanceFacts) -> str:
    """Return group and generation of a proxy; empty if it reports none."""
    return f"{facts.group} {facts.generation}".strip() if facts.group or facts.generation else ""


def _generations_of(proxies: Iterable[InstanceFacts]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(format_generation, proxies))))
