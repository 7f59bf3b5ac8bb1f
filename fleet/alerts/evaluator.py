"""Evaluate the alert rules of a cluster and store the results: the I/O around `evaluation.evaluate`.

Evaluation runs in its own process and by its own clock, so it detects dead pollers, a dead broker and a dead Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from fleet import lease
from fleet.alerts import digest, notifications, store
from fleet.alerts.evaluation import EvaluationOutcome, evaluate
from fleet.alerts.evidence.agents_elsewhere import describe_agents_elsewhere
from fleet.alerts.evidence.copies import EvidenceCopies
from fleet.alerts.facts import (
    AffectedGroupCache,
    ClusterFacts,
    Mask,
    facts_of_table,
    make_blind_facts,
    make_paused_facts,
)
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.first_poll import FirstPollGrace
from fleet.alerts.lifecycle.notification_plan import with_notification
from fleet.alerts.matchers import Matcher, are_agent_matchers, match_names
from fleet.alerts.notification_links import LinkFinder
from fleet.alerts.receivers import mark_unreceived, plan_notification_receivers, split_first_receivers
from fleet.alerts.routing.tree import Route, escalates_at, match_routes
from fleet.alerts.rules import Rule
from fleet.alerts.silences import WARN_BEFORE_SECONDS, Silence, find_active_silences
from fleet.alerts.steady_state import SteadyState, steady_state_of
from fleet.isolation import isolate_errors
from fleet.models import alerting
from fleet.models import incidents as incident_models
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_moment
from fleet.monitoring.state import StateError
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.tables import NEWER_EVIDENCE_SENTENCE
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.incidents import (
    Incident,
    IncidentState,
    Notification,
    NotificationKind,
    Severity,
    TimelineEntry,
    TimelineKind,
)
from fleet.vocabulary.verdicts import VerdictSentences

#: Returns the names of instances whose policies drift from the desired values. Injected, because changes own that.
DriftLookup = Callable[[str, Iterable[InstanceView]], Sequence[str]]
#: Seconds between two checks for due digests.
_DIGEST_CHECK_SECONDS = 60.0


def find_no_drift(cluster: str, views: Iterable[InstanceView]) -> Sequence[str]:
    """Return no names: without desired policies nothing drifts."""
    return ()


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """The result of one evaluation for open pages."""

    cluster: str
    #: Number of open incidents by severity, without inhibited and silenced ones.
    open_counts: Mapping[str, int]
    #: Message to show; empty: only the counts changed.
    text: str = ""
    severity: str = ""
    number: int | None = None


@dataclass(slots=True)
class _ClusterIncidents:
    """The unresolved incidents of a cluster as this process wrote them; others only change acknowledgements."""

    rows_by_key: dict[str, incident_models.Incident]
    incidents: Mapping[str, Incident]
    #: Result of `store.read_acknowledgement_fingerprint`.
    acknowledgement_fingerprint: store.AcknowledgementFingerprint
    steady_state: SteadyState | None = None


def _acknowledgement_fingerprint_of(
    incident_rows: Mapping[str, incident_models.Incident],
) -> store.AcknowledgementFingerprint:
    return len(incident_rows), {
        row.id: row.acknowledged_at for row in incident_rows.values() if row.acknowledged_at is not None
    }


class Evaluator:
    """Evaluates the alert rules of clusters. One object per process."""

    def __init__(
        self,
        reader: Reader,
        holder: str,
        console_url: str = "",
        find_drifted_instances: DriftLookup = find_no_drift,
        start_grace_seconds: float = 0.0,
    ) -> None:
        """`start_grace_seconds`: time for the first poll, during which Refloat is not taken for blind."""
        self._reader = reader
        self._holder = holder
        self._console_url = console_url.rstrip("/")
        self._find_drifted_instances = find_drifted_instances
        self._versions_by_cluster: dict[str, Mapping[str, tuple[str, str]]] = {}
        self._digest_checked_at: dict[str, float] = {}
        self._agent_set_mask_cache: dict[str, tuple[tuple[object, ...], dict[str, Mask]]] = {}
        self._facts_cache: dict[str, tuple[tuple[object, ...], ClusterFacts, FleetTable]] = {}
        self._group_caches: dict[str, AffectedGroupCache] = {}
        self._cluster_incidents: dict[str, _ClusterIncidents] = {}
        self._evidence_copies: dict[str, EvidenceCopies] = {}
        self._leases: dict[str, ClusterLease] = {}
        self._open_counts: dict[str, Mapping[str, int]] = {}
        self._first_poll_grace = FirstPollGrace(start_grace_seconds)

    def evaluate_cluster(
        self, cluster: str, now: float, *, is_paused: bool = False, created_at: float = 0.0
    ) -> LiveUpdate | None:
        """Evaluate the rules once and store the results. Return what changed. Raises LeaseHeldError, DatabaseError.

        No rule matches in a paused cluster, so its open incidents resolve. `created_at`: when the cluster was added.
        """
        started_at = perf_counter()
        if cluster not in self._leases:
            alerting.AlertClock.objects.get_or_create(cluster_id=cluster)
            self._leases[cluster] = lease.take(cluster, lease.ALERTS, self._holder, to_moment(now))
        rules = tuple(store.read_rules(cluster))
        active_silences = tuple(
            find_active_silences(store.read_silences(now), store.read_maintenance_windows(), cluster, now)
        )
        facts = (
            make_paused_facts(cluster, now) if is_paused else self.gather_facts(cluster, now, active_silences)
        )
        cluster_incidents = self._load_incidents(cluster)
        facts = self._first_poll_grace.apply(facts, cluster_incidents.incidents.values(), created_at)
        copies = self._evidence_copies.setdefault(cluster, EvidenceCopies())
        steady_state = cluster_incidents.steady_state
        if steady_state is not None and steady_state.applies_to(
            facts,
            rules,
            active_silences,
            store.read_routes(cluster) if steady_state.routes is not None else None,
        ):
            unchanged_incidents, incident_rows = cluster_incidents.incidents, cluster_incidents.rows_by_key
            if copies.has_remaining and not facts.is_paused:
                self._copy_evidence(cluster, unchanged_incidents.values(), incident_rows)
            with self._fenced_transaction(cluster, now, started_at):
                saved_keys = copies.save(unchanged_incidents.values(), incident_rows, now)
                self._record_versions_and_digests(cluster, facts, now)
            copies.mark_saved(saved_keys, unchanged_incidents, now)
            return None
        # If anything fails from here on, the next evaluation reads the incidents again.
        del self._cluster_incidents[cluster]
        incident_rows = cluster_incidents.rows_by_key
        outcome = evaluate(
            cluster_incidents.incidents,
            facts,
            rules,
            active_silences,
            lambda key: store.read_previous_incident(cluster, key),
        )
        if facts.is_fresh and not facts.is_paused:
            self._copy_evidence(cluster, outcome.incidents.values(), incident_rows)
        can_escalate = _can_escalate(outcome)
        needs_routes = bool(outcome.notifications or outcome.updates_in_place or can_escalate)
        routes = store.read_routes(cluster) if needs_routes else ()
        _escalate_incidents(outcome, routes, now)
        mark_unreceived(outcome, cluster, incident_rows, routes, now)
        with self._fenced_transaction(cluster, now, started_at):
            store.save_outcome(
                incident_rows,
                outcome.changed_incidents,
                outcome.dropped_incidents,
                outcome.timeline_entries,
                cluster_incidents.incidents,
            )
            ended_incidents = [
                incident for incident in outcome.changed_incidents if incident.state is IncidentState.RESOLVED
            ]
            saved_keys = copies.save((*outcome.incidents.values(), *ended_incidents), incident_rows, now)
            opening_times = [
                notification.incident.opened_at
                for notification in (*outcome.notifications, *outcome.updates_in_place)
            ]
            table = self._find_table(cluster, now) if opening_times else None
            for due_notifications in (outcome.notifications, outcome.updates_in_place):
                due_notifications[:] = [
                    _with_moved_agents(notification, table, outcome.incidents, incident_rows)
                    for notification in due_notifications
                ]
            link_finder = LinkFinder(self._console_url, cluster, table, min(opening_times, default=now))
            for notification in (*outcome.notifications, *outcome.updates_in_place):
                row = incident_rows[notification.incident.key]
                self._enqueue_notification(notification, row, routes, rules, link_finder, now)
            self._record_versions_and_digests(cluster, facts, now)
        copies.mark_saved(saved_keys, outcome.incidents, now)
        update = self._make_live_update(cluster, outcome, incident_rows)
        unresolved_rows = {key: incident_rows[key] for key in outcome.incidents}
        self._cluster_incidents[cluster] = _ClusterIncidents(
            unresolved_rows,
            outcome.incidents,
            _acknowledgement_fingerprint_of(unresolved_rows),
            steady_state_of(outcome, facts, rules, active_silences, routes if can_escalate else None),
        )
        return update

    def _copy_evidence(
        self,
        cluster: str,
        incidents: Iterable[Incident],
        incident_rows: Mapping[str, incident_models.Incident],
    ) -> None:
        """Copy the affected agents of the incidents that have grown. A fault here must not delay an alert."""
        table = self._facts_cache[cluster][2]
        copies = self._evidence_copies[cluster]
        with isolate_errors("the evidence of incidents could not be copied"):
            copies.load_marks(incident_rows)
            copies.take(incidents, table, partial(_describe_verdicts, self._reader, table))

    def _load_incidents(self, cluster: str) -> _ClusterIncidents:
        """Return the unresolved incidents: those of the last evaluation, unless somebody changed one since."""
        cluster_incidents = self._cluster_incidents.get(cluster)
        if (
            cluster_incidents is None
            or store.read_acknowledgement_fingerprint(cluster)
            != cluster_incidents.acknowledgement_fingerprint
        ):
            incident_rows = store.load_incident_rows(cluster)
            incidents = {key: store.incident_of(row) for key, row in incident_rows.items()}
            cluster_incidents = self._cluster_incidents[cluster] = _ClusterIncidents(
                incident_rows, incidents, _acknowledgement_fingerprint_of(incident_rows)
            )
        return cluster_incidents

    def gather_facts(self, cluster: str, now: float, active_silences: Sequence[Silence]) -> ClusterFacts:
        """Return the facts of a cluster now. If the fleet state cannot be read, they say so."""
        try:
            table = self._reader.table(cluster, now)
            expiring_identity = self._reader.expiring_identity(cluster, now)
        except StateError as error:
            reason = f"Refloat monitoring cannot read the fleet state: {error}."
            return make_blind_facts(cluster, now, None, reason, can_read=False)
        patterns = store.read_agent_set_patterns(cluster)
        agent_silence_matchers = [
            silence.matchers for silence in active_silences if are_agent_matchers(silence.matchers)
        ]
        key = (
            table.epoch,
            table.as_of,
            table.stale,
            tuple(sorted(patterns.items())),
            tuple(agent_silence_matchers),
        )
        cache_entry = self._facts_cache.get(cluster)
        if cache_entry is None or cache_entry[0] != key or table.stale:
            mask_by_agent_set = self._compute_agent_set_masks(table, patterns)
            drifted_instances = (
                () if table.stale else self._find_drifted_instances(cluster, table.instances.values())
            )
            group_cache = self._group_caches.setdefault(cluster, AffectedGroupCache())
            cache_entry = (
                key,
                facts_of_table(
                    table,
                    now,
                    mask_by_agent_set,
                    match_silenced_agents(table, agent_silence_matchers, mask_by_agent_set),
                    drifted_instances,
                    group_cache,
                ),
                table,
            )
            self._facts_cache[cluster] = cache_entry
        return replace(cache_entry[1], now=now, expiring_identity=expiring_identity)

    def _compute_agent_set_masks(
        self, table: FleetTable, patterns: Mapping[str, Sequence[str]]
    ) -> dict[str, Mask]:
        """Return the agents of each agent set. Computed only when names or agent sets changed, because that is slow."""
        key = (table.epoch, len(table.names), tuple(sorted(patterns.items())))
        cache_entry = self._agent_set_mask_cache.get(table.cluster)
        if cache_entry is None or cache_entry[0] != key:
            cache_entry = (
                key,
                {
                    agent_set: match_names(table.names, agent_set_patterns)
                    for agent_set, agent_set_patterns in patterns.items()
                },
            )
            self._agent_set_mask_cache[table.cluster] = cache_entry
        return cache_entry[1]

    @contextmanager
    def _fenced_transaction(self, cluster: str, now: float, started_at: float) -> Iterator[None]:
        """Open the transaction of an evaluation. Its first write fences other processes and extends the lease."""
        try:
            with lease.fenced_transaction(self._leases[cluster], to_moment(now)):
                duration_ms = (perf_counter() - started_at) * 1000
                alerting.AlertClock.objects.filter(cluster=cluster).update(
                    evaluated_at=now, duration_ms=duration_ms
                )
                yield
        except lease.LeaseLostError:
            # The cached incidents are only valid while no other process evaluates this cluster.
            del self._leases[cluster]
            self._cluster_incidents.pop(cluster, None)
            raise

    def _record_versions_and_digests(self, cluster: str, facts: ClusterFacts, now: float) -> None:
        """Record version changes of instances, and create due digests."""
        if (
            facts.is_fresh
            and not facts.is_paused
            and facts.versions != self._versions_by_cluster.get(cluster)
        ):
            store.record_version_changes(cluster, facts.versions, now)
            self._versions_by_cluster[cluster] = facts.versions
        if now - self._digest_checked_at.get(cluster, 0.0) >= _DIGEST_CHECK_SECONDS:
            self._digest_checked_at[cluster] = now
            digest.enqueue_digests(alerting.AlertClock.objects.get(cluster=cluster), now, self._console_url)

    def _enqueue_notification(
        self,
        notification: Notification,
        row: incident_models.Incident,
        routes: Sequence[Route],
        rules: Sequence[Rule],
        link_finder: LinkFinder,
        now: float,
    ) -> None:
        incident = notification.incident
        strongest_rule = EvaluationContext(now, 0.0, {rule.name: rule for rule in rules}).strongest_rule(
            incident
        )
        links = link_finder.find(incident, row.pk, strongest_rule.runbook)
        receivers = plan_notification_receivers(notification, row, routes, now)
        for kind, kind_receivers in split_first_receivers(notification.kind, row, receivers):
            payload = notifications.payload_of(replace(notification, kind=kind), links)
            store.enqueue_deliveries(row, kind, notification.key, payload, kind_receivers, now)

    def _find_table(self, cluster: str, now: float) -> FleetTable | None:
        """Return the fleet of a cluster; None while it cannot be read."""
        try:
            return self._reader.table(cluster, now)
        except StateError:
            return None

    def _make_live_update(
        self, cluster: str, outcome: EvaluationOutcome, incident_rows: Mapping[str, incident_models.Incident]
    ) -> LiveUpdate | None:
        open_counts = count_open_incidents(outcome.incidents.values())
        new_notifications = [
            notification
            for notification in outcome.notifications
            if notification.kind is not NotificationKind.REPEAT
        ]
        if not new_notifications and open_counts == self._open_counts.get(cluster):
            return None
        self._open_counts[cluster] = open_counts
        if not new_notifications:
            return LiveUpdate(cluster, open_counts)
        worst_notification = max(new_notifications, key=lambda notification: notification.incident.severity)
        row = incident_rows[worst_notification.incident.key]
        severity = (
            "resolved"
            if worst_notification.kind is NotificationKind.RESOLVED
            else worst_notification.incident.severity.slug
        )
        return LiveUpdate(
            cluster, open_counts, notifications.subject_of(worst_notification), severity, row.pk
        )


def _with_moved_agents(
    notification: Notification,
    table: FleetTable | None,
    incidents: Mapping[str, Incident],
    incident_rows: Mapping[str, incident_models.Incident],
) -> Notification:
    """Return the notification with what strands the agents of its incident now, if that is another incident."""
    incident = notification.incident
    if table is None or incident.affected_count:
        return notification
    row, text = incident_rows[incident.key], ""
    with isolate_errors(f"the agents of incident {row.pk} that others affect were not determined"):
        text = describe_agents_elsewhere(incident, row, table, incidents, incident_rows)
    return replace(notification, moved_agents=text)


def _describe_verdicts(
    reader: Reader, table: FleetTable, indices: Sequence[int]
) -> Iterator[VerdictSentences | None]:
    """Yield why each agent has its state; None if the evidence has changed since."""
    for view in reader.agents(table, indices):
        sentences = view.verdict.sentences
        yield None if sentences.state == NEWER_EVIDENCE_SENTENCE else sentences


def count_open_incidents(incidents: Iterable[Incident]) -> dict[str, int]:
    """Count open incidents by severity, without inhibited and silenced ones."""
    counts = {severity.slug: 0 for severity in Severity}
    for incident in incidents:
        if incident.is_open and not incident.inhibited_by and not incident.silenced_by:
            counts[incident.severity.slug] += 1
    return counts


def match_silenced_agents(
    table: FleetTable, matcher_lists: Sequence[Sequence[Matcher]], mask_by_agent_set: Mapping[str, Mask]
) -> Mask | None:
    """Return the mask of silenced agents; None without silences of agents."""
    if not matcher_lists:
        return None
    silenced_mask = np.zeros(len(table.names), np.bool_)
    for matchers in matcher_lists:
        silenced_mask |= match_agents(table, matchers, mask_by_agent_set)
    return silenced_mask


def match_agents(
    table: FleetTable, matchers: Sequence[Matcher], mask_by_agent_set: Mapping[str, Mask]
) -> Mask:
    """Return the mask of agents that match all conditions."""
    mask = np.ones(len(table.names), np.bool_)
    for matcher in matchers:
        matcher_mask = np.zeros(len(table.names), np.bool_)
        if matcher.field == "agent":
            matcher_mask = match_names(table.names, matcher.patterns)
        for agent_set, agent_set_mask in mask_by_agent_set.items():
            if matcher.field == "agent_set" and matcher.matches_value(agent_set):
                matcher_mask |= agent_set_mask
        mask &= ~matcher_mask if matcher.is_negated else matcher_mask
    return mask


def claim_ending_silences(now: float) -> list[alerting.Silence]:
    """Return the silences that end soon, each once."""
    ending_silences = alerting.Silence.objects.filter(
        expiry_notified=False, starts_at__lte=now, ends_at__gt=now, ends_at__lte=now + WARN_BEFORE_SECONDS
    )
    return [
        silence
        for silence in ending_silences
        # Do not warn of short silences right after they are created.
        if silence.ends_at - now <= (silence.ends_at - silence.starts_at) / 2
        and alerting.Silence.objects.filter(pk=silence.pk, expiry_notified=False).update(expiry_notified=True)
    ]


def _can_escalate(outcome: EvaluationOutcome) -> bool:
    return any(
        incident.severity is Severity.CRITICAL
        and incident.state is IncidentState.FIRING
        and incident.escalated_at is None
        for incident in outcome.incidents.values()
    )


def _escalate_incidents(outcome: EvaluationOutcome, routes: Sequence[Route], now: float) -> None:
    """Escalate critical incidents that were not acknowledged in time."""
    for key, incident in list(outcome.incidents.items()):
        at = escalates_at(match_routes(routes, incident), incident) if routes else None
        if at is None or at > now:
            continue
        escalated_incident = replace(
            with_notification(incident, NotificationKind.ESCALATED, now), escalated_at=now
        )
        outcome.incidents[key] = escalated_incident
        outcome.changed_incidents = [
            changed_incident for changed_incident in outcome.changed_incidents if changed_incident.key != key
        ] + [escalated_incident]
        outcome.notifications.append(
            Notification(
                NotificationKind.ESCALATED, escalated_incident, now, escalated_incident.notification_count
            )
        )
        outcome.timeline_entries.append(
            (
                escalated_incident,
                TimelineEntry(
                    now, TimelineKind.ESCALATED, "Escalated because nobody acknowledged the incident."
                ),
            )
        )
