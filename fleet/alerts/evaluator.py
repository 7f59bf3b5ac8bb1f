"""Look at a cluster through the record, and keep what comes of it: the shell around `round.look`.

It runs in a process of its own by its own clock, so dead pollers, a dead broker and a dead Redis are noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from time import perf_counter

import numpy as np

from fleet import lease
from fleet.alerts import digest, notifications, store
from fleet.alerts.facts import Facts, Harmed, Mask, blind, gather, match_names
from fleet.alerts.lifecycle import Look, noticed
from fleet.alerts.matchers import Matcher, is_of_agents
from fleet.alerts.notifications import Links
from fleet.alerts.round import Outcome, look
from fleet.alerts.routes import Route, escalates_at, leaves, receivers
from fleet.alerts.rules import Rule
from fleet.alerts.silences import WARN_BEFORE, Silence, active
from fleet.alerts.unchanged_looks import Calm, calm_after
from fleet.models import alerting
from fleet.models import incidents as rows
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_moment
from fleet.monitoring.state import StateError
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.incidents import (
    Happening,
    Incident,
    IncidentState,
    Notice,
    NoticeKind,
    Severity,
    TimelineKind,
)

#: Names of instances that do not run as is wanted. That is for others to know; alerting is told.
Drift = Callable[[str, Iterable[InstanceView]], Sequence[str]]
#: What a timeline says before a message that no channel takes.
_NOBODY = "To nobody, for no channel is on its route: "
#: Seconds between two looks whether a digest is due.
_DIGEST_LOOK = 60.0


def no_drift(cluster: str, views: Iterable[InstanceView]) -> Sequence[str]:
    """Nothing is wanted, so nothing drifts."""
    return ()


@dataclass(frozen=True, slots=True)
class News:
    """What people with an open page are told of one look."""

    cluster: str
    #: Open incidents by severity, without those that something explains or silences.
    open: Mapping[str, int]
    #: What to say; empty: only the numbers changed.
    text: str = ""
    severity: str = ""
    number: int | None = None


@dataclass(slots=True)
class _Known:
    """The incidents of a cluster as this process left them: nobody else writes more than who acknowledged them."""

    rows: dict[str, rows.Incident]
    values: Mapping[str, Incident]
    #: As `store.acknowledged` has it.
    acknowledged: store.Acknowledged
    calm: Calm | None = None


def _acknowledged(some: Mapping[str, rows.Incident]) -> store.Acknowledged:
    return len(some), {row.id: row.acked_at for row in some.values() if row.acked_at is not None}


class Evaluator:
    """Looks at clusters. One object serves one process."""

    def __init__(self, reader: Reader, holder: str, console_url: str = "", drift: Drift = no_drift) -> None:
        self._reader = reader
        self._holder = holder
        self._console_url = console_url.rstrip("/")
        self._drift = drift
        self._versions: dict[str, Mapping[str, tuple[str, str]]] = {}
        self._digested: dict[str, float] = {}
        self._labels: dict[str, tuple[tuple[object, ...], dict[str, Mask]]] = {}
        self._facts: dict[str, tuple[tuple[object, ...], Facts]] = {}
        self._harmed: dict[str, Harmed] = {}
        self._known: dict[str, _Known] = {}
        self._leases: dict[str, ClusterLease] = {}
        self._open: dict[str, Mapping[str, int]] = {}

    def look(self, cluster: str, now: float) -> News | None:
        """Take one look and keep what it changed; answers what is new. Raises LeaseHeld, DatabaseError."""
        began = perf_counter()
        if cluster not in self._leases:
            alerting.AlertClock.objects.get_or_create(cluster_id=cluster)
            self._leases[cluster] = lease.take(cluster, lease.ALERTS, self._holder, to_moment(now))
        rules = tuple(store.rules(cluster))
        quiet = tuple(active(store.silences(now), store.windows(), cluster, now))
        facts = self.facts(cluster, now, quiet)
        known = self._incidents(cluster)
        calm = known.calm
        if calm is not None and calm.holds(
            facts, rules, quiet, store.routes(cluster) if calm.routes is not None else None
        ):
            with self._keeping(cluster, now, began):
                self._note(cluster, facts, now)
            return None
        # Whatever goes wrong from here on, the next look reads them again.
        del self._known[cluster]
        kept = known.rows
        outcome = look(known.values, facts, rules, quiet, lambda key: store.past(cluster, key))
        escalating = _may_escalate(outcome)
        tree = store.routes(cluster) if outcome.notices or escalating else ()
        _escalate(outcome, tree, now)
        _say_nobody(outcome, kept, tree, now)
        with self._keeping(cluster, now, began):
            store.save(kept, outcome.changed, outcome.dropped, outcome.happened, known.values)
            for notice in outcome.notices:
                self._enqueue(notice, kept[notice.incident.key], tree, rules, now)
            self._note(cluster, facts, now)
        news = self._news(cluster, outcome, kept)
        left = {key: kept[key] for key in outcome.incidents}
        self._known[cluster] = _Known(
            left,
            outcome.incidents,
            _acknowledged(left),
            calm_after(outcome, facts, rules, quiet, tree if escalating else None),
        )
        return news

    def _incidents(self, cluster: str) -> _Known:
        """Return the open incidents: those of the last look, unless somebody changed one since."""
        known = self._known.get(cluster)
        if known is None or store.acknowledged(cluster) != known.acknowledged:
            loaded = store.load(cluster)
            found = {key: store.value_of(row) for key, row in loaded.items()}
            known = self._known[cluster] = _Known(loaded, found, _acknowledged(loaded))
        return known

    def facts(self, cluster: str, now: float, quiet: Sequence[Silence]) -> Facts:
        """What is known of a cluster now. That the record cannot be read is known, too."""
        try:
            table = self._reader.table(cluster, now)
        except StateError as error:
            return blind(cluster, now, None, f"The record cannot be read: {error}.")
        patterns = store.labels(cluster)
        muting = [one.matchers for one in quiet if is_of_agents(one.matchers)]
        key = (table.epoch, table.as_of, table.stale, tuple(sorted(patterns.items())), tuple(muting))
        known = self._facts.get(cluster)
        if known is None or known[0] != key or table.stale:
            labels = self._masks(table, patterns)
            off = () if table.stale else self._drift(cluster, table.instances.values())
            harmed = self._harmed.setdefault(cluster, Harmed())
            known = (key, gather(table, now, labels, muted(table, muting, labels), off, harmed))
            self._facts[cluster] = known
        return replace(known[1], now=now)

    def _masks(self, table: FleetTable, patterns: Mapping[str, Sequence[str]]) -> dict[str, Mask]:
        """Which agents have each label. A hundred thousand names take a while: only when names or labels changed."""
        key = (table.epoch, len(table.names), tuple(sorted(patterns.items())))
        known = self._labels.get(table.cluster)
        if known is None or known[0] != key:
            known = (key, {label: match_names(table.names, some) for label, some in patterns.items()})
            self._labels[table.cluster] = known
        return known[1]

    @contextmanager
    def _keeping(self, cluster: str, now: float, began: float) -> Iterator[None]:
        """A transaction that keeps a look. Its first write fences the others, and prolongs the lease."""
        try:
            with lease.fenced(self._leases[cluster], to_moment(now)):
                took_ms = (perf_counter() - began) * 1000
                alerting.AlertClock.objects.filter(cluster=cluster).update(looked_at=now, took_ms=took_ms)
                yield
        except lease.LeaseLost:
            # What is in memory is true only as long as no other process looks.
            del self._leases[cluster]
            self._known.pop(cluster, None)
            raise

    def _note(self, cluster: str, facts: Facts, now: float) -> None:
        """Keep what versions run, for those who ask what changed; and make digests when they are due."""
        if facts.fresh and facts.versions != self._versions.get(cluster):
            store.note_versions(cluster, facts.versions, now)
            self._versions[cluster] = facts.versions
        if now - self._digested.get(cluster, 0.0) >= _DIGEST_LOOK:
            self._digested[cluster] = now
            digest.enqueue(alerting.AlertClock.objects.get(cluster=cluster), now, self._console_url)

    def _enqueue(
        self, notice: Notice, row: rows.Incident, tree: Sequence[Route], rules: Sequence[Rule], now: float
    ) -> None:
        incident = notice.incident
        strongest = Look(now, 0.0, {rule.name: rule for rule in rules}).strongest(incident)
        runbook = strongest.runbook or notifications.runbook_url(
            self._console_url, incident.cluster, strongest.kind.value
        )
        payload = notifications.payload(notice, Links(self._console_url, runbook, row.pk))
        who = receivers(leaves(tree, incident), incident, notice.kind, now)
        if notice.kind is NoticeKind.RESOLVED:
            who = store.end_receivers(row, who, now)
        store.enqueue(row, notice.kind, notice.key, payload, who, now)

    def _news(self, cluster: str, outcome: Outcome, kept: Mapping[str, rows.Incident]) -> News | None:
        counted = count_open(outcome.incidents.values())
        told = [notice for notice in outcome.notices if notice.kind is not NoticeKind.REPEAT]
        if not told and counted == self._open.get(cluster):
            return None
        self._open[cluster] = counted
        if not told:
            return News(cluster, counted)
        worst = max(told, key=lambda notice: notice.incident.severity)
        row = kept[worst.incident.key]
        severity = "resolved" if worst.kind is NoticeKind.RESOLVED else worst.incident.severity.slug
        return News(cluster, counted, notifications.subject(worst), severity, row.pk)


def _say_nobody(
    outcome: Outcome, kept: Mapping[str, rows.Incident], tree: Sequence[Route], now: float
) -> None:
    """Have timelines say that a message went to nobody, where no channel is on its route."""
    untold = set()
    for notice in outcome.notices:
        key = notice.incident.key
        if notice.kind is NoticeKind.RESOLVED:
            heard = key in kept and any(store.told(kept[key]).values())
        else:
            heard = bool(receivers(leaves(tree, notice.incident), notice.incident, notice.kind, now))
        if not heard:
            untold.add(key)
    outcome.happened[:] = [
        (
            one,
            replace(line, text=_NOBODY + line.text[:1].lower() + line.text[1:])
            if one.key in untold and line.kind is TimelineKind.NOTICE
            else line,
        )
        for one, line in outcome.happened
    ]


def count_open(incidents: Iterable[Incident]) -> dict[str, int]:
    """Open incidents by severity, those that stand for themselves and are not silenced."""
    found = {severity.slug: 0 for severity in Severity}
    for one in incidents:
        if one.is_open and not one.inhibited_by and not one.silenced_by:
            found[one.severity.slug] += 1
    return found


def muted(
    table: FleetTable, matchers: Sequence[Sequence[Matcher]], labels: Mapping[str, Mask]
) -> Mask | None:
    """Which agents silences leave out; None: none of them."""
    if not matchers:
        return None
    total = np.zeros(len(table.names), np.bool_)
    for conditions in matchers:
        total |= agents_matching(table, conditions, labels)
    return total


def agents_matching(table: FleetTable, conditions: Sequence[Matcher], labels: Mapping[str, Mask]) -> Mask:
    """Which agents all conditions hold of."""
    mask = np.ones(len(table.names), np.bool_)
    for one in conditions:
        held = np.zeros(len(table.names), np.bool_)
        if one.field == "agent":
            held = match_names(table.names, [one.value])
        for label, has in labels.items():
            if one.field == "label" and fnmatchcase(label, one.value):
                held |= has
        mask &= ~held if one.negated else held
    return mask


def warn_of_ends(now: float) -> list[alerting.Silence]:
    """Silences that end soon and of which nobody was told; each is answered once."""
    soon = alerting.Silence.objects.filter(
        warned=False, starts_at__lte=now, ends_at__gt=now, ends_at__lte=now + WARN_BEFORE
    )
    return [
        one
        for one in soon
        # Who has just made a short one knows when it ends.
        if one.ends_at - now <= (one.ends_at - one.starts_at) / 2
        and alerting.Silence.objects.filter(pk=one.pk, warned=False).update(warned=True)
    ]


def _may_escalate(outcome: Outcome) -> bool:
    return any(
        one.severity is Severity.CRITICAL and one.state is IncidentState.FIRING and one.escalated_at is None
        for one in outcome.incidents.values()
    )


def _escalate(outcome: Outcome, tree: Sequence[Route], now: float) -> None:
    """Tell the second level of what nobody acknowledged."""
    for key, incident in list(outcome.incidents.items()):
        at = escalates_at(leaves(tree, incident), incident) if tree else None
        if at is None or at > now:
            continue
        after = replace(noticed(incident, now), escalated_at=now)
        outcome.incidents[key] = after
        outcome.changed = [one for one in outcome.changed if one.key != key] + [after]
        outcome.notices.append(Notice(NoticeKind.ESCALATED, after, now, after.notices))
        outcome.happened.append((after, Happening(now, TimelineKind.ESCALATED, "Nobody acknowledged it.")))
