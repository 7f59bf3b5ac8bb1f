"""The rules of `agents`, in the same order, vectorised over a subset of the columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import column_recovery as recovery
from fleet.monitoring.classify.column_recovery import UNCLEAR, Outlooks
from fleet.monitoring.classify.column_rows import (
    AgentSubset,
    AgentTunnelCounts,
    Array,
    Index,
    Mask,
    PackedColumns,
    SubsetVerdicts,
    Times,
)
from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.tables import CUT_OFF, DEGRADED
from fleet.monitoring.columns import LAST_PROXY_COUNT, NO_INSTANCE
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State


def decide(
    columns: PackedColumns, counts: AgentTunnelCounts, indices: npt.NDArray[np.intp], frame: FleetFrame
) -> SubsetVerdicts:
    """Return the verdicts of the agents at `indices`."""
    s = AgentSubset(columns, counts, indices, frame)
    out = SubsetVerdicts(s.size)
    out.put(s.is_retired, State.RETIRED)
    _apply_unknown(s, out)
    _apply_never(s, out)
    _apply_unreachable(s, out)
    for rule in (_apply_at_risk, _apply_working, _apply_degraded, _apply_excess):
        if not out.is_undecided.any():
            break
        rule(s, out)
    return out


def _put_unknown(out: SubsetVerdicts, mask: Mask, reason: Reason = Reason.STALE) -> None:
    out.put(mask, State.UNKNOWN, reason, outlook=UNCLEAR)


def _apply_unknown(s: AgentSubset, out: SubsetVerdicts) -> None:
    if s.frame.blind:
        _put_unknown(out, out.is_undecided)
        return
    if s.frame.cluster_unreachable:
        _put_unknown(out, out.is_undecided, Reason.CLUSTER_UNREACHABLE)
        return
    if not s.frame.has_tunnels and not s.frame.has_heartbeats:
        _put_unknown(out, out.is_undecided, Reason.NONE)
        return
    if s.frame.presence_stale:
        _put_unknown(out, ~s.has_fresh_feed())
    has_live_tunnel = s.live_counts > 0
    if s.frame.has_heartbeats:
        depends_on_resource = has_live_tunnel if s.frame.has_tunnels else np.ones(s.size, np.bool_)
        _put_unknown(out, depends_on_resource & ~s.is_unexpired & ~s.is_expired)
    doubtful = ~has_live_tunnel & ~s.is_expired & (s.tunnel_counts > 0) & out.is_undecided
    if doubtful.any():
        _put_unknown(out, doubtful & s.has_unread_tunnel())


def _apply_never(s: AgentSubset, out: SubsetVerdicts) -> None:
    if not s.frame.has_tunnels:
        return
    never = ~s.had_tunnel & (s.tunnel_counts == 0) & ~s.has_last_proxies
    is_certain = s.is_expired | (
        s.is_unexpired if s.frame.has_all_tunnel_reports else np.zeros(s.size, np.bool_)
    )
    out.put(never & is_certain, State.NEVER)
    _put_unknown(out, never)


def _apply_unreachable(s: AgentSubset, out: SubsetVerdicts) -> None:
    has_tunnel = s.live_counts > 0 if s.frame.has_tunnels else np.ones(s.size, np.bool_)
    is_present = s.is_unexpired if s.frame.has_heartbeats else np.ones(s.size, np.bool_)
    unreachable = out.is_undecided & ~(has_tunnel & is_present)
    if not unreachable.any():
        return
    has_no_live_tunnel = s.live_counts == 0
    has_live_heartbeat = s.is_unexpired & (
        (s.lost_at == 0) | (s.expires_at - s.ttl > s.lost_at + s.frame.timing.round_interval)
    )
    resource_lost_at = np.where(s.is_listed & s.is_expired, s.expires_at, np.inf)
    is_auth_to_blame = _is_to_blame(s, s.auth, resource_lost_at)
    is_via_proxy_to_blame = _is_to_blame(s, s.via_proxy, resource_lost_at)
    blamed_carriers = np.where(
        is_auth_to_blame, s.auth, np.where(is_via_proxy_to_blame, s.via_proxy, NO_INSTANCE)
    ).astype(np.uint16)
    no_tunnel = (State.STRANDED, Reason.NO_TUNNEL, NO_CAUSE, UNCLEAR)

    _put_stranded_by_carrier(
        s, out, unreachable & s.is_expired & (is_auth_to_blame | is_via_proxy_to_blame), blamed_carriers
    )
    recent_proxies = s.recent_proxies()
    _put_stranded_by_proxy(s, out, unreachable & has_no_live_tunnel, recent_proxies)
    out.put(unreachable & (is_auth_to_blame | is_via_proxy_to_blame) & has_live_heartbeat, *no_tunnel)
    _put_stranded_by_carrier(
        s, out, unreachable & (is_auth_to_blame | is_via_proxy_to_blame), blamed_carriers
    )
    _put_stranded_with_tunnel(s, out, unreachable & ~has_no_live_tunnel)
    if not s.frame.has_all_tunnel_reports:
        _put_unknown(out, unreachable & ~s.is_expired)
    out.put(unreachable & has_live_heartbeat, *no_tunnel)
    dependencies = np.column_stack([recent_proxies, s.auth, s.via_proxy])
    depends_on_unknown = (
        (s.frame.tables.states[dependencies] == InstanceState.UNKNOWN) & (dependencies != NO_INSTANCE)
    ).any(axis=1)
    unclear = ~s.is_unexpired & ~s.is_expired & s.frame.has_heartbeats
    _put_unknown(out, unreachable & (unclear | depends_on_unknown))
    out.put(unreachable, State.OFFLINE, Reason.OWN_HOST, outlook=UNCLEAR)


def _is_to_blame(s: AgentSubset, index: Index, lost_at: Times) -> Mask:
    return s.is_sick(index) & (s.frame.tables.since[index] <= lost_at + s.frame.timing.stale_after)


def _put_stranded_by_carrier(s: AgentSubset, out: SubsetVerdicts, mask: Mask, blamed_carriers: Index) -> None:
    if (mask & out.is_undecided).any():
        out.put(mask, State.STRANDED, *_attribute_resource_loss(s, blamed_carriers))


def _put_stranded_by_proxy(s: AgentSubset, out: SubsetVerdicts, mask: Mask, recent_proxies: Array) -> None:
    if not (mask & out.is_undecided).any():
        return
    lost_at = np.where(s.lost_at == 0, np.inf, s.lost_at)
    cause = np.full(s.size, NO_INSTANCE, np.uint16)
    last_sick_since = np.zeros(s.size)
    for slot in reversed(range(LAST_PROXY_COUNT)):
        is_blamed = _is_to_blame(s, recent_proxies[:, slot], lost_at)
        cause[is_blamed] = recent_proxies[is_blamed, slot]
        last_sick_since[is_blamed] = np.maximum(
            last_sick_since[is_blamed], s.frame.tables.since[recent_proxies[is_blamed, slot]]
        )
    outlook = recovery.from_proxy(s, cause, silent_since=last_sick_since)
    out.put(mask & (cause != NO_INSTANCE), State.STRANDED, _proxy_reason_of(s, cause), cause, outlook)


def _put_stranded_with_tunnel(s: AgentSubset, out: SubsetVerdicts, mask: Mask) -> None:
    if not (mask & out.is_undecided).any():
        return
    never_listed = mask & ~s.is_listed & (s.last_auth == NO_INSTANCE)
    if not s.frame.all_auths_sick:
        _put_unknown(out, never_listed, Reason.DISAGREE)
    elif s.frame.backend_down:
        outlook = (Recovery.ONLY_IF_CAUSE_RECOVERS, 0.0)
        out.put(never_listed, State.STRANDED, Reason.BACKEND_DOWN, BACKEND_CAUSE, outlook)
    else:
        out.put(never_listed, State.STRANDED, Reason.AUTH_UNHEALTHY, outlook=UNCLEAR)
    out.put(mask & (s.mode == ReconnectMode.PICK_FIRST), State.STRANDED, Reason.POLICY_OFF, outlook=UNCLEAR)
    out.put(mask, State.STRANDED, Reason.RESOURCE_EXPIRED, outlook=UNCLEAR)


def _apply_at_risk(s: AgentSubset, out: SubsetVerdicts) -> None:
    is_auth_sick = s.is_sick(s.auth)
    is_cut_off = is_auth_sick | ((s.instance_flags[s.via_proxy] & CUT_OFF) != 0)
    if (is_cut_off & out.is_undecided).any():
        carrier = np.where(is_auth_sick, s.auth, s.via_proxy)
        _put_strands_at(s, out, out.put(is_cut_off, State.AT_RISK, *_attribute_resource_loss(s, carrier)))
    all_sick = (s.healthy_counts == 0) & (s.live_counts > 0) & out.is_undecided
    if all_sick.any():
        out.put(all_sick, State.AT_RISK, *_attribute_to_sick_proxies(s))


def _put_strands_at(s: AgentSubset, out: SubsetVerdicts, mask: Mask) -> None:
    out.strands_at[mask] = np.maximum(s.expires_at[mask], s.frame.now)


def _apply_working(s: AgentSubset, out: SubsetVerdicts) -> None:
    is_working = s.working_until > s.frame.now
    out.put(is_working, State.WORKING, Reason.RECONNECTING, outlook=(Recovery.BY_ITSELF, s.working_until))


def _apply_degraded(s: AgentSubset, out: SubsetVerdicts) -> None:
    too_few = (s.live_desired_counts < s.effective_desired_counts) & out.is_undecided
    if too_few.any():
        recent_proxies = s.recent_proxies()
        cause = np.full(s.size, NO_INSTANCE, np.uint16)
        for slot in reversed(range(LAST_PROXY_COUNT)):
            cause = np.where(s.is_sick(recent_proxies[:, slot]), recent_proxies[:, slot], cause)
        proxy_recovery, at = recovery.from_proxy(s, cause, silent_since=None)
        has_cause = cause != NO_INSTANCE
        outlook = (np.where(has_cause, proxy_recovery, Recovery.UNCLEAR), np.where(has_cause, at, 0.0))
        out.put(too_few, State.DEGRADED, Reason.TOO_FEW_TUNNELS, cause, outlook)
    too_few_healthy = (s.healthy_desired_counts < s.effective_desired_counts) & out.is_undecided
    if too_few_healthy.any():
        out.put(too_few_healthy, State.DEGRADED, *_attribute_to_sick_proxies(s))
    is_via_proxy_sick = s.is_sick(s.via_proxy)
    out.put(is_via_proxy_sick, State.DEGRADED, _proxy_reason_of(s, s.via_proxy), s.via_proxy, UNCLEAR)
    if (s.instance_flags & DEGRADED).any() and out.is_undecided.any():
        degraded_instances = _find_degraded_dependencies(s)
        out.put(
            degraded_instances != NO_INSTANCE,
            State.DEGRADED,
            Reason.INSTANCE_DEGRADED,
            degraded_instances,
            UNCLEAR,
        )
    if s.frame.has_all_tunnel_reports:
        claims_more = s.claimed_counts > s.tunnel_counts
        out.put(claims_more & s.is_disagreeing, State.DEGRADED, Reason.DISAGREE, outlook=UNCLEAR)


def _find_degraded_dependencies(s: AgentSubset) -> Index:
    is_auth_degraded = (s.instance_flags[s.auth] & DEGRADED) != 0
    is_via_proxy_degraded = (s.instance_flags[s.via_proxy] & DEGRADED) != 0
    degraded_proxy = s.find_first_live_proxies(DEGRADED)
    return np.where(is_auth_degraded, s.auth, np.where(is_via_proxy_degraded, s.via_proxy, degraded_proxy))


def _apply_excess(s: AgentSubset, out: SubsetVerdicts) -> None:
    out.put(
        (s.desired_counts > 0) & (s.live_desired_counts > s.desired_counts),
        State.EXCESS,
        Reason.TOO_MANY_TUNNELS,
    )


def _attribute_to_sick_proxies(s: AgentSubset) -> tuple[Array, Array, Outlooks]:
    cause = s.find_first_sick_proxies()
    return _proxy_reason_of(s, cause), cause, recovery.from_proxy(s, cause, silent_since=None)


def _attribute_resource_loss(s: AgentSubset, index: Array) -> tuple[Array, Array, Outlooks]:
    """Return reason, cause and outlook of resources lost, or about to be, because of the instances at `index`."""
    index = index.astype(np.uint16)
    is_auth = index == s.auth
    auth_outlook, via_proxy_outlook = recovery.from_auth(s, index), recovery.from_via_proxy(s, index)
    outlook = (
        np.where(is_auth, auth_outlook[0], via_proxy_outlook[0]),
        np.where(is_auth, auth_outlook[1], via_proxy_outlook[1]),
    )
    auth_reason, auth_cause = Reason.AUTH_UNHEALTHY, index
    if s.frame.backend_down:
        auth_reason, auth_cause = Reason.BACKEND_DOWN, np.full(s.size, BACKEND_CAUSE, np.uint16)
    reason = np.where(is_auth, auth_reason, _proxy_reason_of(s, index))
    return reason, np.where(is_auth, auth_cause, index), outlook


def _proxy_reason_of(s: AgentSubset, index: Array) -> Array:
    state = s.frame.tables.states[index]
    is_lost = (state == InstanceState.EXPIRED) | (state == InstanceState.GONE)
    return np.where(is_lost, Reason.PROXY_EXPIRED, Reason.PROXY_UNHEALTHY)
