"""Conclusions about the instances, computed once per round for all agents.

docs/reference/verdicts.md, "Cluster facts".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from fleet.monitoring.classify.dependencies import Dependency, find_dependencies
from fleet.monitoring.classify.instance_conditions import InstanceCondition, conditions_of, last_attempt_at
from fleet.monitoring.classify.instances import is_fresh
from fleet.monitoring.classify.tables import InstanceTables
from fleet.monitoring.evidence import FleetEvidence, Timing
from fleet.vocabulary.instances import CUT_OFF_STATES, InstanceKind, InstanceState, complaint_of
from fleet.vocabulary.verdicts import BACKEND_CAUSE

#: Announce TTL in seconds of an instance that reports none (ServerAnnounceTTL).
DEFAULT_TTL = 600.0


@dataclass(frozen=True)
class FleetFrame:
    """The fleet at one time. Build it with `prepare_frame`."""

    cluster: str
    now: float
    timing: Timing
    conditions: Mapping[int, InstanceCondition]
    #: Failing proxies whose cause is their auth, by index.
    dependencies: Mapping[int, Dependency]
    #: Refloat's pollers missed rounds or failed their self-test.
    blind: bool
    #: No instance responds: the network between Refloat and the fleet is the likely cause.
    cluster_unreachable: bool
    #: No attempt to read the agents' resources ended recently, or the source has none.
    presence_stale: bool
    #: Every auth is failing: no resource is renewed, so resources expire by prediction.
    all_auths_sick: bool
    #: Since when all auths are failing, if they failed within one TTL: their backend is the cause. None otherwise.
    backend_down_since: float | None
    #: Resources with an expiry up to this time have expired.
    expired_until: float
    #: Resources with an expiry after this time have not expired. Between the two times it is unknown.
    unexpired_from: float
    #: Every proxy that can have tunnels has reported recently: a tunnel that is not reported does not exist.
    has_all_tunnel_reports: bool
    #: The source reports heartbeats, or tunnels by agent; rules that need the others do not apply.
    has_heartbeats: bool
    has_tunnels: bool
    #: Number of desired proxies, and their number if none had expired.
    desired_proxy_count: int
    max_desired_proxy_count: int
    #: Indices of proxies that drain or have deregistered: an agent with a tunnel to another proxy has left them.
    closing_proxies: tuple[int, ...]
    #: Number of auths and of proxies in the state OK.
    ok_auth_count: int
    ok_proxy_count: int

    @property
    def backend_down(self) -> bool:
        """Return whether all auths failed within one TTL."""
        return self.backend_down_since is not None

    def state_of(self, index: int) -> InstanceState:
        """Return the state of an instance; unknown for an index without an instance."""
        condition = self.conditions.get(index)
        return InstanceState.UNKNOWN if condition is None else condition.state

    def name_of(self, index: int) -> str:
        """Return the name of an instance for people."""
        condition = self.conditions.get(index)
        return f"instance {index}" if condition is None else condition.facts.name

    def complaint_of(self, index: int) -> str:
        """Return the problem of an instance as a clause that follows its name; empty without one."""
        condition = self.conditions.get(index)
        return "" if condition is None else complaint_of(condition.facts, condition.state)

    def cause_of(self, index: int) -> int:
        """Return the cause of an instance's problem: itself, or for a proxy its auth or the backend."""
        dependency = self.dependencies.get(index)
        return index if dependency is None else dependency.cause

    def cause_clause(self, index: int) -> str:
        """Return the cause of a failing proxy as a clause when that is not the proxy itself; otherwise empty."""
        cause = self.cause_of(index)
        if cause == index:
            return ""
        if cause == BACKEND_CAUSE:
            return "all auths failed together"
        return f"its auth {self.name_of(cause)} {self.complaint_of(cause)}"

    @cached_property
    def tables(self) -> InstanceTables:
        """Return the same facts by instance index, for the vectorised rules."""
        return InstanceTables.of(self.conditions, self.dependencies)


def prepare_frame(fleet: FleetEvidence, now: float) -> FleetFrame:
    """Return the conclusions about the instances that verdicts on agents need."""
    timing = fleet.timing
    conditions = conditions_of(fleet, now)
    auths = [condition for condition in conditions.values() if condition.facts.kind is InstanceKind.AUTH]
    proxies = [condition for condition in conditions.values() if condition.facts.kind is InstanceKind.PROXY]
    all_auths_sick = bool(auths) and all(auth.is_sick for auth in auths)
    backend_down_since = _backend_down_since(auths)
    responded_at = fleet.presence_freshness.responded_at
    expired_until, unexpired_from = -1.0, now
    if not fleet.has_heartbeats:
        pass  # No resource can be judged: the state of every one stays unclear.
    elif all_auths_sick:
        expired_until = now
    elif responded_at is not None and is_fresh(responded_at, now, timing):
        # A resource that expired after the last response may have been renewed: the next response shows it.
        expired_until = unexpired_from = min(now, responded_at)
    return FleetFrame(
        cluster=fleet.cluster,
        now=now,
        timing=timing,
        conditions=conditions,
        dependencies=find_dependencies(conditions, timing, backend_down=backend_down_since is not None),
        blind=fleet.blind,
        cluster_unreachable=_is_cluster_unreachable(conditions.values(), now, timing),
        presence_stale=not fleet.has_heartbeats
        or not is_fresh(last_attempt_at(fleet.presence_freshness), now, timing),
        all_auths_sick=all_auths_sick,
        backend_down_since=backend_down_since,
        expired_until=expired_until,
        unexpired_from=unexpired_from,
        has_all_tunnel_reports=fleet.has_tunnels
        and bool(proxies)
        and not any(_may_hide_tunnels(proxy, now) for proxy in proxies),
        has_heartbeats=fleet.has_heartbeats,
        has_tunnels=fleet.has_tunnels,
        desired_proxy_count=sum(proxy.is_desired for proxy in proxies),
        max_desired_proxy_count=_count_max_desired_proxies(proxies),
        closing_proxies=tuple(proxy.facts.index for proxy in proxies if _is_closing(proxy)),
        ok_auth_count=sum(auth.state is InstanceState.OK for auth in auths),
        ok_proxy_count=sum(proxy.state is InstanceState.OK for proxy in proxies),
    )


def _may_hide_tunnels(proxy: InstanceCondition, now: float) -> bool:
    # An expired proxy that does not respond counts like a silent one; one that responds may have tunnels.
    if proxy.is_live or proxy.state in CUT_OFF_STATES:
        return False
    return proxy.keeps_connections or not proxy.is_sick


def _is_closing(proxy: InstanceCondition) -> bool:
    return proxy.facts.watch.drain_request is not None or proxy.state is InstanceState.GONE


def _count_max_desired_proxies(proxies: Iterable[InstanceCondition]) -> int:
    """Return how many proxies agents could have tunnels to if none had a problem.

    A frozen proxy that expires must not lower the desired number, or its agents would be healthy with a tunnel less.
    """
    present = [
        proxy
        for proxy in proxies
        if proxy.state is not InstanceState.GONE
        and (proxy.keeps_connections or proxy.state is not InstanceState.EXPIRED)
    ]
    generation_by_group: dict[str, int] = {}
    for proxy in present:
        generation_by_group[proxy.facts.group] = max(
            proxy.facts.generation, generation_by_group.get(proxy.facts.group, 0)
        )
    newest_count = sum(proxy.facts.generation == generation_by_group[proxy.facts.group] for proxy in present)
    return max(newest_count, sum(proxy.is_desired for proxy in proxies))


def _is_cluster_unreachable(conditions: Iterable[InstanceCondition], now: float, timing: Timing) -> bool:
    """Return whether no instance responds.

    All newest attempts failed, and most instances are silent already: waiting for the last one would strand the agents
    of the others for a round, and one dead instance of two is an outage of that instance.
    """
    recently_polled = [
        condition
        for condition in conditions
        if condition.facts.gone_at is None
        and condition.facts.attempts
        and is_fresh(condition.facts.attempts[0].at, now, timing)
    ]
    if len(recently_polled) < 2 or any(condition.facts.attempts[0].ok for condition in recently_polled):
        return False
    return 2 * sum(condition.state is InstanceState.SILENT for condition in recently_polled) > len(
        recently_polled
    )


def _backend_down_since(auths: Iterable[InstanceCondition]) -> float | None:
    """Return when the first auth failed if all auths failed within one TTL of each other; None otherwise.

    A single auth does not count as all. Auths that expired before the last one failed belong to an earlier problem.
    """
    present = [auth for auth in auths if auth.state is not InstanceState.GONE]
    if not present or not all(auth.is_sick for auth in present):
        return None
    last = max(auth.since for auth in present)
    ttl = max(DEFAULT_TTL if auth.facts.ttl is None else auth.facts.ttl for auth in present)
    failed_together = [auth for auth in present if auth.since >= last - ttl]
    failed_earlier = [auth for auth in present if auth.since < last - ttl]
    are_earlier_expired = all(
        a.facts.expires_at is not None and a.facts.expires_at <= last for a in failed_earlier
    )
    return (
        min(auth.since for auth in failed_together)
        if len(failed_together) >= 2 and are_earlier_expired
        else None
    )
