"""What alerting looks at: one table of the fleet, counted by cause in one vectorised pass. Pure.

docs/alerts.md, "Facts".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import cast

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import FleetFrame, prepare
from fleet.monitoring.columns import HEALTH_CHECK, REASON_BITS, RECOVERY_SHIFT
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import FAULTS, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, HARMED, LOST_OR_AT_RISK, Reason, Recovery, State

#: The rate of loss is that of so many seconds.
RATE_SECONDS = 60.0
_NAMES = 10

Mask = npt.NDArray[np.bool_]
#: One object: what was counted last is known again by it.
_NO_LABELS: Mapping[str, Mask] = {}


@dataclass(frozen=True, slots=True)
class Affected:
    """Agents that one cause harms."""

    cause: Cause
    stranded: int = 0
    at_risk: int = 0
    #: Stranded agents by label, and agents at risk.
    labelled: Mapping[str, int] = field(default_factory=dict)
    labelled_at_risk: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    #: When the last of them is back by itself; None when that cannot be said of each.
    heals_at: float | None = None
    #: Some come back only when the cause does.
    stuck: bool = False

    def count(self, *, stranded: bool, label: str = "") -> int:
        """How many of one of the two states; with a label only those that have it."""
        if label:
            return (self.labelled if stranded else self.labelled_at_risk).get(label, 0)
        return self.stranded if stranded else self.at_risk

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the agents it harms."""
        counted = (*self.labelled.items(), *self.labelled_at_risk.items())
        return frozenset(label for label, count in counted if count)


@dataclass(frozen=True, slots=True)
class Sick:
    """An auth or proxy that is not well."""

    cause: Cause
    sentence: str
    agents: int
    #: It answers, its resource ran out, and it does not say which auth writes that: any sick auth explains it.
    expired_only: bool = False
    #: Key of the auth that a proxy heartbeats through; empty when it says none.
    depends_on: str = ""
    #: Key of the cause that it suffers from when that is not itself.
    root_cause: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one cluster at one look."""

    cluster: str
    now: float
    #: When the newest round concluded: it tells rounds apart.
    as_of: float | None
    #: False when we are blind; nothing below `blindness` means anything then.
    fresh: bool
    #: Why we are blind, one sentence; empty when we are not.
    blindness: str = ""
    agents: int = 0
    stranded: int = 0
    groups: tuple[Affected, ...] = ()
    sick: tuple[Sick, ...] = ()
    backend_down: bool = False
    unreachable: bool = False
    #: Agents that became stranded, offline or at risk within the last minute.
    lost_lately: int = 0
    excess: int = 0
    drifted: int = 0
    #: Names of instances that do not run with the policies that are wanted of them.
    off_policy: tuple[str, ...] = ()
    #: Name and version of every instance that says one, by its id.
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: What fails together has one cause: proxy groups and regions, and the keys of the instances of each.
    together: Mapping[Cause, tuple[str, ...]] = field(default_factory=dict)
    #: When each sick instance fell sick, by its key; of the backend and the cluster the earliest that it can have been.
    began: Mapping[str, float] = field(default_factory=dict)


def blind(cluster: str, now: float, as_of: float | None, why: str) -> Facts:
    """Facts when we see nothing."""
    return Facts(cluster, now, as_of, fresh=False, blindness=why)


def gather(
    table: FleetTable,
    now: float,
    labels: Mapping[str, Mask] | None = None,
    muted: Mask | None = None,
    off_policy: Sequence[str] = (),
    harmed: Harmed | None = None,
) -> Facts:
    """Count one table. `labels`: which agents have each; `muted`: agents that silences leave out.

    `harmed` is that of the look before, if there is one.
    """
    if table.as_of is None:
        return blind(table.cluster, now, None, "No round has concluded yet.")
    if table.stale:
        age = round(now - table.as_of)
        return blind(
            table.cluster, now, table.as_of, f"Polling has stopped: the newest round is {age} s old."
        )
    frame = prepare(table.fleet, table.as_of)
    if frame.blind:
        return blind(table.cluster, now, table.as_of, "Our own pollers are blind: their self-probe fails.")
    verdicts = table.verdicts if muted is None or not muted.any() else table.verdicts.copy()
    if verdicts is not table.verdicts and muted is not None:
        verdicts["state"][muted] = State.HEALTHY
    states = verdicts["state"]
    return Facts(
        cluster=table.cluster,
        now=now,
        as_of=table.as_of,
        fresh=True,
        agents=int(np.count_nonzero(_counting(table, verdicts))),
        stranded=int(np.count_nonzero(states == State.STRANDED)),
        groups=(harmed or Harmed()).count(table, verdicts, labels or _NO_LABELS),
        sick=tuple(_sick(view) for view in table.instances.values() if view.state in FAULTS),
        backend_down=frame.backend_down,
        unreachable=frame.unreachable,
        lost_lately=int(np.count_nonzero(_lost_lately(table, verdicts))),
        excess=int(np.count_nonzero(_with_excess(table, verdicts))),
        drifted=int(np.count_nonzero(_drifted(table, verdicts))),
        off_policy=tuple(off_policy),
        versions={
            view.facts.id: (view.facts.name, view.facts.version)
            for view in table.instances.values()
            if view.facts.version
        },
        together=instances_together(table.instances.values()),
        began=beginnings(table, frame),
    )


def match_names(names: Sequence[str], patterns: Iterable[str]) -> Mask:
    """Which names match any of the patterns: exact, or with `*` and `?`."""
    mask = np.zeros(len(names), np.bool_)
    exact, globs = set(), []
    for pattern in patterns:
        if any(mark in pattern for mark in "*?["):
            globs.append(pattern)
        else:
            exact.add(pattern)
    if exact or globs:
        for index, name in enumerate(names):
            if name in exact or any(fnmatchcase(name, glob) for glob in globs):
                mask[index] = True
    return mask


def cause_of_instance(view: InstanceView) -> Cause:
    """An instance as a cause."""
    return Cause(CauseKind(view.facts.kind.value), view.facts.id, view.facts.name)


def root_cause_of(view: InstanceView) -> str:
    """The key of what an instance suffers from when that is not itself; empty when it is."""
    if not view.cause or view.cause.startswith(f"{CauseKind.BACKEND.value}/"):
        return view.cause  # it has the form of a key
    return f"{CauseKind.AUTH.value}/{view.cause}"


def backend_of(cluster: str) -> Cause:
    """What the auths of a cluster keep their resources in, as a cause."""
    return Cause(CauseKind.BACKEND, cluster, f"backend/{cluster}")


def whole_of(cluster: str) -> Cause:
    """A cluster as a cause."""
    return Cause(CauseKind.CLUSTER, cluster, f"cluster {cluster}")


def agents_of(table: FleetTable, key: str) -> npt.NDArray[np.intp]:
    """Return the indices of the agents that an incident of this key counts now: those that its cause harms."""
    counted = _COUNTED_BY_KEY.get(key) or (_counting if key == whole_of(table.cluster).key else None)
    if counted is not None:
        return np.flatnonzero(counted(table, table.verdicts))
    hurt = np.flatnonzero(np.isin(table.verdicts["state"], HARMED))
    if not len(hurt):
        return hurt
    places = _places(table.verdicts, hurt)
    together = instances_together(table.instances.values()).items()
    members = next((keys for cause, keys in together if cause.key == key), (key,))
    wanted = [place for place in np.unique(places).tolist() if _cause(table, place).key in members]
    return hurt[np.isin(places, wanted)]


class Harmed:
    """Counts harmed agents by cause; of a round that changed nothing it answers what it counted before."""

    def __init__(self) -> None:
        self._labels: Mapping[str, Mask] = {}
        self._verdicts: npt.NDArray[np.void] | None = None
        self._names: tuple[object, ...] = ()
        self._counted: tuple[Affected, ...] = ()

    def count(
        self, table: FleetTable, verdicts: npt.NDArray[np.void], labels: Mapping[str, Mask]
    ) -> tuple[Affected, ...]:
        """Return the groups of one table. Agents of an epoch keep their places and names."""
        instances = (
            (place, view.facts.kind, view.facts.id, view.facts.name)
            for place, view in table.instances.items()
        )
        names = (table.cluster, table.epoch, len(table.names), *instances)
        if (
            self._verdicts is None
            or names != self._names
            or labels is not self._labels
            or not _same_rows(verdicts, self._verdicts)
        ):
            self._counted = _groups(table, verdicts, labels)
            self._verdicts, self._names, self._labels = verdicts, names, labels
        return self._counted


def _same_rows(some: npt.NDArray[np.void], others: npt.NDArray[np.void]) -> bool:
    """Whether all columns are the same, by their bytes: numpy compares columns one by one."""
    return len(some) == len(others) and np.array_equal(some.view(np.uint8), others.view(np.uint8))


def _groups(
    table: FleetTable, verdicts: npt.NDArray[np.void], labels: Mapping[str, Mask]
) -> tuple[Affected, ...]:
    """Count each cause in one pass over the columns: the agents of a cause stand side by side in `hurt`."""
    states = verdicts["state"]
    hurt = np.flatnonzero(np.isin(states, HARMED))
    if not len(hurt):
        return ()
    places = _places(verdicts, hurt)
    order = np.argsort(places, kind="stable")
    hurt = hurt[order]
    found, starts = np.unique(places[order], return_index=True)
    is_stranded = states[hurt] == State.STRANDED
    back = verdicts["recovers_at"][hurt]
    only_then = (verdicts["packed"][hurt] >> RECOVERY_SHIFT) == Recovery.ONLY_IF_CAUSE_RECOVERS

    def counts(held: Mask) -> list[int]:
        return cast("list[int]", np.add.reduceat(held.astype(np.int64), starts).tolist())

    stranded, sizes = counts(is_stranded), np.diff(starts, append=len(hurt)).tolist()
    heals = np.where(
        np.minimum.reduceat(back, starts) > 0, np.maximum.reduceat(back, starts), np.nan
    ).tolist()
    stuck = counts(only_then)
    labelled = {label: counts(mask[hurt] & is_stranded) for label, mask in labels.items()}
    labelled_at_risk = {label: counts(mask[hurt] & ~is_stranded) for label, mask in labels.items()}
    return tuple(
        Affected(
            cause=_cause(table, place),
            stranded=stranded[at],
            at_risk=sizes[at] - stranded[at],
            labelled={label: found_at[at] for label, found_at in labelled.items()},
            labelled_at_risk={label: found_at[at] for label, found_at in labelled_at_risk.items()},
            names=_first_names(
                table, hurt[start : start + sizes[at]], is_stranded[start : start + sizes[at]]
            ),
            heals_at=None if math.isnan(heals[at]) else heals[at],
            stuck=bool(stuck[at]),
        )
        for at, (place, start) in enumerate(zip(found.tolist(), starts.tolist(), strict=True))
    )


def _first_names(table: FleetTable, members: npt.NDArray[np.intp], is_stranded: Mask) -> tuple[str, ...]:
    """Return the names of the first ten, the stranded ones first: they are whom the message is about."""
    first = members[:_NAMES]
    if not is_stranded[:_NAMES].all():
        first = np.concatenate((members[is_stranded][:_NAMES], members[~is_stranded][:_NAMES]))[:_NAMES]
    return tuple(table.names[index] for index in first.tolist())


def _places(verdicts: npt.NDArray[np.void], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Where each agent belongs: its cause, or for those without one, 2^16 and the reason."""
    causes = verdicts["cause"][rows].astype(np.int64)
    reasons = (verdicts["packed"][rows] & REASON_BITS).astype(np.int64)
    return np.where(causes >= 0xFFFF, 0x10000 + reasons, causes)


def _cause(table: FleetTable, place: int) -> Cause:
    if place == BACKEND_CAUSE:
        return backend_of(table.cluster)
    view = table.instances.get(place)
    if view is not None:
        return cause_of_instance(view)
    reason = Reason(place & REASON_BITS) if place > 0xFFFF else Reason.NONE
    return Cause(CauseKind.AGENTS, reason.slug, f"agents without a common cause ({reason.slug})")


def _sick(view: InstanceView) -> Sick:
    auth = view.facts.heartbeat_auth
    return Sick(
        cause_of_instance(view),
        view.sentence,
        view.agents,
        expired_only=view.state is InstanceState.EXPIRED and not auth,
        depends_on=f"{CauseKind.AUTH.value}/{auth}" if auth else "",
        root_cause=root_cause_of(view),
    )


def beginnings(table: FleetTable, frame: FleetFrame) -> dict[str, float]:
    """When each sick instance fell sick, by its key; of the backend and the cluster the earliest moment it can be."""
    began = {
        cause_of_instance(table.instances[index]).key: standing.since
        for index, standing in frame.standings.items()
        if standing.sick and index in table.instances
    }
    # Polls find the effect before the cause as well, by as much as makes a source stale.
    margin = frame.timing.stale_after
    if frame.backend_since is not None:
        began[backend_of(table.cluster).key] = frame.backend_since - margin
    if frame.unreachable:
        began[whole_of(table.cluster).key] = frame.now - margin
    # As rows keep it: two causes of one moment are compared, and either may have been read from its row.
    return {key: round(at, 6) for key, at in began.items()}


def _counting(_: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Agents that count as the fleet."""
    states = verdicts["state"]
    return cast("Mask", (states != State.RETIRED) & (states != State.NEVER))


def _lost_lately(table: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Agents that became stranded, offline or at risk within the last minute."""
    lost = np.isin(verdicts["state"], LOST_OR_AT_RISK)
    return lost & (verdicts["since"] > (table.as_of or 0.0) - RATE_SECONDS)


def _with_excess(_: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Agents that hold more tunnels than they want."""
    return cast("Mask", verdicts["state"] == State.EXCESS)


def _drifted(table: FleetTable, verdicts: npt.NDArray[np.void]) -> Mask:
    """Agents whose reported mode and health check are not those of most."""
    reporting = (table.heartbeats["mode"] > 0) & (verdicts["state"] != State.UNKNOWN)
    policies = table.heartbeats["mode"].astype(np.int64) * 2 + (table.heartbeats["flags"] & HEALTH_CHECK)
    if not reporting.any():
        return np.zeros(len(policies), np.bool_)
    return cast("Mask", reporting & (policies != np.bincount(policies[reporting]).argmax()))


#: What incidents without a cause of their own count, by their keys: of each kind of rule that looks at the whole fleet.
_COUNTED_BY_KEY: Mapping[str, Callable[[FleetTable, npt.NDArray[np.void]], Mask]] = {
    f"{CauseKind.FLEET.value}/rate": _lost_lately,
    f"{CauseKind.FLEET.value}/excess": _with_excess,
    f"{CauseKind.FLEET.value}/drift": _drifted,
}


def fail_together(sick: int, members: int) -> bool:
    """Whether so many sick ones of a group or region are one cause: two at least, and half of them."""
    return sick >= 2 and 2 * sick >= members


def instances_together(views: Iterable[InstanceView]) -> dict[Cause, tuple[str, ...]]:
    """Proxies of a group, and instances of a region if there is more than one: the only one is the cluster."""
    found: dict[Cause, list[str]] = {}
    there = [view for view in views if view.state is not InstanceState.GONE]
    for view in there:
        facts = view.facts
        if not facts.group and not facts.region:
            continue
        key = cause_of_instance(view).key
        if facts.kind is InstanceKind.PROXY and facts.group:
            found.setdefault(Cause(CauseKind.GROUP, facts.group, f"proxy group {facts.group}"), []).append(
                key
            )
        if facts.region:
            found.setdefault(Cause(CauseKind.REGION, facts.region, f"region {facts.region}"), []).append(key)
    regions = [
        cause for cause, keys in found.items() if len(keys) == len(there) and cause.kind is CauseKind.REGION
    ]
    return {cause: tuple(keys) for cause, keys in found.items() if cause not in regions}
