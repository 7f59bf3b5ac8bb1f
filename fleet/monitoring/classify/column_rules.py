"""The rules of `agents`, one for one and in the same order, over a subset of the columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import column_recovery as recovery
from fleet.monitoring.classify.column_recovery import UNCLEAR, Outlooks
from fleet.monitoring.classify.column_rows import Array, Counts, Decided, Index, Mask, Rows, Subset, Times
from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.tables import CUT_OFF, DEGRADED
from fleet.monitoring.columns import NO_INSTANCE, REMEMBERED
from fleet.monitoring.evidence import Mode
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State


def decide(rows: Rows, counts: Counts, which: npt.NDArray[np.intp], frame: FleetFrame) -> Decided:
    """Conclude the verdicts of the agents at `which`."""
    s = Subset(rows, counts, which, frame)
    out = Decided(s.size)
    out.put(s.retired, State.RETIRED)
    _unknown(s, out)
    _never(s, out)
    _unreachable(s, out)
    for rule in (_at_risk, _working, _degraded, _excess):
        if not out.todo.any():
            break
        rule(s, out)
    return out


def _not_known(out: Decided, where: Mask, reason: Reason = Reason.STALE) -> None:
    out.put(where, State.UNKNOWN, reason, outlook=UNCLEAR)


def _unknown(s: Subset, out: Decided) -> None:
    if s.frame.blind:
        _not_known(out, out.todo)
        return
    if s.frame.unreachable:
        _not_known(out, out.todo, Reason.CLUSTER_UNREACHABLE)
        return
    if s.frame.presence_stale:
        _not_known(out, ~s.feeds_fresh())
    live = s.live > 0
    _not_known(out, live & ~s.unexpired & ~s.expired)
    doubtful = ~live & ~s.expired & (s.tunnels > 0) & out.todo
    if doubtful.any():
        _not_known(out, doubtful & s.unread())


def _never(s: Subset, out: Decided) -> None:
    never = ~s.had_tunnel & (s.tunnels == 0) & ~s.remembers
    sure = s.expired | (s.unexpired if s.frame.covered else np.zeros(s.size, np.bool_))
    out.put(never & sure, State.NEVER)
    _not_known(out, never)


def _unreachable(s: Subset, out: Decided) -> None:
    unreachable = out.todo & ~((s.live > 0) & s.unexpired)
    if not unreachable.any():
        return
    no_live = s.live == 0
    heartbeats = s.unexpired & (
        (s.lost_at == 0) | (s.expires_at - s.ttl > s.lost_at + s.frame.timing.round_interval)
    )
    resource_lost_at = np.where(s.listed & s.expired, s.expires_at, np.inf)
    by_auth = _blames(s, s.auth, resource_lost_at)
    by_via = _blames(s, s.via_proxy, resource_lost_at)
    blamed = np.where(by_auth, s.auth, np.where(by_via, s.via_proxy, NO_INSTANCE)).astype(np.uint16)
    no_tunnel = (State.STRANDED, Reason.NO_TUNNEL, NO_CAUSE, UNCLEAR)

    _stranded_by_auth(s, out, unreachable & s.expired & (by_auth | by_via), blamed)
    used = s.used()
    _stranded_by_proxy(s, out, unreachable & no_live, used)
    out.put(unreachable & (by_auth | by_via) & heartbeats, *no_tunnel)
    _stranded_by_auth(s, out, unreachable & (by_auth | by_via), blamed)
    _stranded_with_tunnel(s, out, unreachable & ~no_live)
    if not s.frame.covered:
        _not_known(out, unreachable & ~s.expired)
    out.put(unreachable & heartbeats, *no_tunnel)
    on = np.column_stack([used, s.auth, s.via_proxy])
    rests_on_the_unknown = ((s.frame.tables.states[on] == InstanceState.UNKNOWN) & (on != NO_INSTANCE)).any(
        axis=1
    )
    unclear = ~s.unexpired & ~s.expired
    _not_known(out, unreachable & (unclear | rests_on_the_unknown))
    out.put(unreachable, State.OFFLINE, Reason.OWN_HOST, outlook=UNCLEAR)


def _blames(s: Subset, index: Index, lost_at: Times) -> Mask:
    return s.sick(index) & (s.frame.tables.since[index] <= lost_at + s.frame.timing.stale_after)


def _stranded_by_auth(s: Subset, out: Decided, where: Mask, blamed: Index) -> None:
    if (where & out.todo).any():
        out.put(where, State.STRANDED, *_auth_trouble(s, blamed))


def _stranded_by_proxy(s: Subset, out: Decided, where: Mask, used: Array) -> None:
    if not (where & out.todo).any():
        return
    lost_at = np.where(s.lost_at == 0, np.inf, s.lost_at)
    cause = np.full(s.size, NO_INSTANCE, np.uint16)
    last_sick = np.zeros(s.size)
    for slot in reversed(range(REMEMBERED)):
        blamed = _blames(s, used[:, slot], lost_at)
        cause[blamed] = used[blamed, slot]
        last_sick[blamed] = np.maximum(last_sick[blamed], s.frame.tables.since[used[blamed, slot]])
    outlook = recovery.from_proxy(s, cause, silent_since=last_sick)
    out.put(where & (cause != NO_INSTANCE), State.STRANDED, _proxy_reason(s, cause), cause, outlook)


def _stranded_with_tunnel(s: Subset, out: Decided, where: Mask) -> None:
    if not (where & out.todo).any():
        return
    never_listed = where & ~s.listed & (s.last_auth == NO_INSTANCE)
    if not s.frame.frozen:
        _not_known(out, never_listed, Reason.DISAGREE)
    elif s.frame.backend_down:
        only_if = (Recovery.ONLY_IF_CAUSE_RECOVERS, 0.0)
        out.put(never_listed, State.STRANDED, Reason.BACKEND_DOWN, BACKEND_CAUSE, only_if)
    else:
        out.put(never_listed, State.STRANDED, Reason.AUTH_UNHEALTHY, outlook=UNCLEAR)
    out.put(where & (s.mode == Mode.PICK_FIRST), State.STRANDED, Reason.POLICY_OFF, outlook=UNCLEAR)
    out.put(where, State.STRANDED, Reason.RESOURCE_EXPIRED, outlook=UNCLEAR)


def _at_risk(s: Subset, out: Decided) -> None:
    auth_sick = s.sick(s.auth)
    cut_off = auth_sick | ((s.flags[s.via_proxy] & CUT_OFF) != 0)
    if (cut_off & out.todo).any():
        carrier = np.where(auth_sick, s.auth, s.via_proxy)
        _clock(s, out, out.put(cut_off, State.AT_RISK, *_auth_trouble(s, carrier)))
    all_sick = (s.sound == 0) & out.todo
    if all_sick.any():
        out.put(all_sick, State.AT_RISK, *_sick_proxies(s))


def _clock(s: Subset, out: Decided, where: Mask) -> None:
    out.strands_at[where] = np.maximum(s.expires_at[where], s.frame.now)


def _working(s: Subset, out: Decided) -> None:
    working = s.working_until > s.frame.now
    out.put(working, State.WORKING, Reason.RECONNECTING, outlook=(Recovery.BY_ITSELF, s.working_until))


def _degraded(s: Subset, out: Decided) -> None:
    too_few = (s.desired < s.wanted) & out.todo
    if too_few.any():
        used = s.used()
        cause = np.full(s.size, NO_INSTANCE, np.uint16)
        for slot in reversed(range(REMEMBERED)):
            cause = np.where(s.sick(used[:, slot]), used[:, slot], cause)
        recovered, at = recovery.from_proxy(s, cause, silent_since=None)
        named = cause != NO_INSTANCE
        outlook = (np.where(named, recovered, Recovery.UNCLEAR), np.where(named, at, 0.0))
        out.put(too_few, State.DEGRADED, Reason.TOO_FEW_TUNNELS, cause, outlook)
    unsound = (s.sound_desired < s.wanted) & out.todo
    if unsound.any():
        out.put(unsound, State.DEGRADED, *_sick_proxies(s))
    via_sick = s.sick(s.via_proxy)
    out.put(via_sick, State.DEGRADED, _proxy_reason(s, s.via_proxy), s.via_proxy, UNCLEAR)
    if (s.flags & DEGRADED).any() and out.todo.any():
        grey = _first_degraded(s)
        out.put(grey != NO_INSTANCE, State.DEGRADED, Reason.INSTANCE_DEGRADED, grey, UNCLEAR)
    if s.frame.covered:
        more = s.claimed > s.tunnels
        out.put(more & s.disagrees, State.DEGRADED, Reason.DISAGREE, outlook=UNCLEAR)


def _first_degraded(s: Subset) -> Index:
    on_auth = (s.flags[s.auth] & DEGRADED) != 0
    on_via = (s.flags[s.via_proxy] & DEGRADED) != 0
    tunnel = s.first_live(DEGRADED)
    return np.where(on_auth, s.auth, np.where(on_via, s.via_proxy, tunnel))


def _excess(s: Subset, out: Decided) -> None:
    out.put((s.wants > 0) & (s.desired > s.wants), State.EXCESS, Reason.TOO_MANY_TUNNELS)


def _sick_proxies(s: Subset) -> tuple[Array, Array, Outlooks]:
    cause = s.first_live_sick()
    return _proxy_reason(s, cause), cause, recovery.from_proxy(s, cause, silent_since=None)


def _auth_trouble(s: Subset, index: Array) -> tuple[Array, Array, Outlooks]:
    """Reason, cause and outlook when the resource is lost, or will be, by the instances at `index`."""
    index = index.astype(np.uint16)
    is_auth = index == s.auth
    held, via = recovery.from_auth(s, index), recovery.from_via_proxy(s, index)
    outlook = (np.where(is_auth, held[0], via[0]), np.where(is_auth, held[1], via[1]))
    auth_reason, auth_cause = Reason.AUTH_UNHEALTHY, index
    if s.frame.backend_down:
        auth_reason, auth_cause = Reason.BACKEND_DOWN, np.full(s.size, BACKEND_CAUSE, np.uint16)
    reason = np.where(is_auth, auth_reason, _proxy_reason(s, index))
    return reason, np.where(is_auth, auth_cause, index), outlook


def _proxy_reason(s: Subset, index: Array) -> Array:
    state = s.frame.tables.states[index]
    ended = (state == InstanceState.EXPIRED) | (state == InstanceState.GONE)
    return np.where(ended, Reason.PROXY_EXPIRED, Reason.PROXY_UNHEALTHY)
