"""What one round knows of the instances, worked out once and shared by all agents. docs/verdicts.md, "The frame"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from fleet.monitoring.classify.dependencies import Dependency, find_dependencies
from fleet.monitoring.classify.instances import is_fresh
from fleet.monitoring.classify.standings import InstanceCondition, last_attempt_at, conditions_of
from fleet.monitoring.classify.tables import InstanceTables
from fleet.monitoring.evidence import FleetEvidence, Timing
from fleet.vocabulary.instances import CUT_OFF_STATES, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE

#: Announce TTL of an instance that never said one (ServerAnnounceTTL), seconds.
DEFAULT_TTL = 600.0


@dataclass(frozen=True)
class FleetFrame:
    """The fleet at one moment. Build it with `prepare`."""

    cluster: str
    now: float
    timing: Timing
    conditions: Mapping[int, InstanceCondition]
    #: The sick proxies that suffer from the auth they heartbeat through, by index.
    dependencies: Mapping[int, Dependency]
    #: We missed rounds or failed our self-probe.
    blind: bool
    #: Every target fails: the network between us and them, not they.
    unreachable: bool
    #: No attempt to read the agents' resources ended lately.
    presence_stale: bool
    #: Every auth is sick: nobody can write a resource, and resources expire by prediction.
    frozen: bool
    #: Since when all auths have been sick that fell sick within one TTL: their backend is to blame. None: it is not.
    backend_since: float | None
    #: A resource that expires at or before this has expired.
    expired_until: float
    #: A resource that expires after this has not. What lies between the two is not known.
    unexpired_from: float
    #: Every proxy that can hold a tunnel has reported lately: no report of a tunnel means no tunnel.
    has_all_tunnel_reports: bool
    #: How many desired proxies there are, and how many there would be if none had expired.
    desired_proxy_count: int
    max_desired_proxy_count: int
    #: How many healthy auths and healthy proxies there are.
    ok_auth_count: int
    ok_proxy_count: int

    @property
    def backend_down(self) -> bool:
        """All auths fell sick within one TTL."""
        return self.backend_since is not None

    def state_of(self, index: int) -> InstanceState:
        """Tell the state of an instance; unknown for an index nobody has heard of."""
        condition = self.conditions.get(index)
        return InstanceState.UNKNOWN if condition is None else condition.state

    def name_of(self, index: int) -> str:
        """Name an instance for a person."""
        condition = self.conditions.get(index)
        return f"instance {index}" if condition is None else condition.facts.name

    def cause_of(self, index: int) -> int:
        """Return what an instance suffers from: itself, or of a proxy its auth, or the backend."""
        dependency = self.dependencies.get(index)
        return index if dependency is None else dependency.cause

    def cause_clause(self, index: int) -> str:
        """Return why a proxy is sick that is not its own cause, as a clause; empty for every other instance."""
        cause = self.cause_of(index)
        if cause == index:
            return ""
        if cause == BACKEND_CAUSE:
            return "all auth servers fell sick together"
        return f"{self.name_of(cause)}, through which it heartbeats, {self.state_of(cause).look.complaint}"

    @cached_property
    def tables(self) -> InstanceTables:
        """The same facts by instance index, for the vectorised twin."""
        return InstanceTables.of(self.conditions, self.dependencies)


def prepare_frame(fleet: FleetEvidence, now: float) -> FleetFrame:
    """Work out everything about the instances that verdicts on agents rest on."""
    timing = fleet.timing
    conditions = conditions_of(fleet, now)
    auths = [s for s in conditions.values() if s.facts.kind is InstanceKind.AUTH]
    proxies = [s for s in conditions.values() if s.facts.kind is InstanceKind.PROXY]
    frozen = bool(auths) and all(auth.sick for auth in auths)
    backend_since = _backend_since(auths)
    answered_at = fleet.presence.answered_at
    expired_until, unexpired_from = -1.0, now
    if frozen:
        expired_until = now
    elif answered_at is not None and is_fresh(answered_at, now, timing):
        # What ran out after the last answer may have been renewed before: the next answer tells.
        expired_until = unexpired_from = min(now, answered_at)
    return FleetFrame(
        cluster=fleet.cluster,
        now=now,
        timing=timing,
        conditions=conditions,
        dependencies=find_dependencies(conditions, timing, backend_down=backend_since is not None),
        blind=fleet.blind,
        unreachable=_is_unreachable(conditions.values(), now, timing),
        presence_stale=not is_fresh(last_attempt_at(fleet.presence), now, timing),
        frozen=frozen,
        backend_since=backend_since,
        expired_until=expired_until,
        unexpired_from=unexpired_from,
        has_all_tunnel_reports=bool(proxies) and not any(_may_hide_tunnels(proxy, now) for proxy in proxies),
        desired_proxy_count=sum(proxy.is_desired for proxy in proxies),
        max_desired_proxy_count=_most_desired(proxies),
        ok_auth_count=sum(auth.state is InstanceState.OK for auth in auths),
        ok_proxy_count=sum(proxy.state is InstanceState.OK for proxy in proxies),
    )


def _may_hide_tunnels(proxy: InstanceCondition, now: float) -> bool:
    # An expired proxy that no longer answers is as dead as a silent one; one that answers may hold tunnels.
    if proxy.live or proxy.state in CUT_OFF_STATES:
        return False
    return proxy.keeps_connections or not proxy.sick


def _most_desired(proxies: Iterable[InstanceCondition]) -> int:
    """Count the proxies that agents with a number of tunnels could have them to, if all were well.

    A frozen proxy must not lower what is wanted by expiring, or its agents would read healthy with a tunnel less.
    """
    present = [
        proxy
        for proxy in proxies
        if proxy.state is not InstanceState.GONE and (proxy.keeps_connections or proxy.state is not InstanceState.EXPIRED)
    ]
    highest: dict[str, int] = {}
    for proxy in present:
        highest[proxy.facts.group] = max(proxy.facts.generation, highest.get(proxy.facts.group, 0))
    newest = sum(proxy.facts.generation == highest[proxy.facts.group] for proxy in present)
    return max(newest, sum(proxy.is_desired for proxy in proxies))


def _is_unreachable(conditions: Iterable[InstanceCondition], now: float, timing: Timing) -> bool:
    """Tell whether every target fails.

    The newest attempts must all have failed and most targets be silent already: waiting until the last one is would
    strand the others for a round, and one dead instance of two is an outage of that one.
    """
    targets = [
        s
        for s in conditions
        if s.facts.gone_at is None and s.facts.attempts and is_fresh(s.facts.attempts[0].at, now, timing)
    ]
    if len(targets) < 2 or any(s.facts.attempts[0].ok for s in targets):
        return False
    return 2 * sum(s.state is InstanceState.SILENT for s in targets) > len(targets)


def _backend_since(auths: Iterable[InstanceCondition]) -> float | None:
    """Tell when the first of all auths fell sick, if all of them did within one TTL of each other.

    One auth alone is no "all". Auths that had expired before the last one fell are left over from an earlier time.
    """
    present = [auth for auth in auths if auth.state is not InstanceState.GONE]
    if not present or not all(auth.sick for auth in present):
        return None
    last = max(auth.since for auth in present)
    ttl = max(DEFAULT_TTL if auth.facts.ttl is None else auth.facts.ttl for auth in present)
    together = [auth for auth in present if auth.since >= last - ttl]
    earlier = [auth for auth in present if auth.since < last - ttl]
    left_over = all(a.facts.expires_at is not None and a.facts.expires_at <= last for a in earlier)
    return min(auth.since for auth in together) if len(together) >= 2 and left_over else None
