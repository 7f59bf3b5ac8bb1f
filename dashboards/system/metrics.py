"""Metrics of the console for Prometheus: by cluster and state, never by agent. docs/how-to/run-in-production.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from dashboards.live import hub
from dashboards.shared import record_reader
from dashboards.shared.pages import signed_in_user_of
from dashboards.shared.permissions import requires, visible_clusters_of
from dashboards.system.metrics_token import allow_token
from fleet import __version__
from fleet.alerts.store import select_effective_incidents
from fleet.models.access import Permission, has_cluster_limit
from fleet.models.alerting import AlertClock, Delivery
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.identities import IdentityValidity
from fleet.monitoring.views import InstanceView, StreamHeader
from fleet.protocol.destination.health import Health
from fleet.vocabulary.incidents import Severity


@allow_token(Permission.VIEW_METRICS)
@requires(Permission.VIEW_METRICS)
@require_safe
def metrics(request: HttpRequest) -> HttpResponseBase:
    """Return the current metrics of the clusters that the user may see; nothing is kept between two scrapes."""
    user, registry = signed_in_user_of(request), CollectorRegistry(auto_describe=False)
    include_installation = not has_cluster_limit(user)
    registry.register(
        FleetCollector(
            visible_clusters_of(user), record_reader.current_time(), include_installation=include_installation
        )
    )
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class FleetCollector(Collector):
    """Collector of the metrics of some clusters. Counts of agents take the age of the data into account."""

    def __init__(self, clusters: Iterable[str], now: float, *, include_installation: bool) -> None:
        self._clusters = tuple(clusters)
        self._now = now
        #: Include metrics that belong to no cluster.
        self._include_installation = include_installation

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        agents = GaugeMetricFamily(
            "refloat_agents", "Number of agents by state.", labels=("cluster", "state")
        )
        age = GaugeMetricFamily(
            "refloat_data_age_seconds",
            "Seconds since Refloat last finished polling the whole fleet.",
            labels=("cluster",),
        )
        stale = GaugeMetricFamily(
            "refloat_data_stale",
            "1 if the data is too old and every agent counts as unknown, otherwise 0.",
            labels=("cluster",),
        )
        reachable = GaugeMetricFamily(
            "refloat_redis_reachable", "1 if the fleet data in Redis is readable, otherwise 0."
        )
        websockets = GaugeMetricFamily(
            "refloat_websocket_connections",
            "Open WebSocket connections of this process.",
            labels=("cluster",),
        )
        build = GaugeMetricFamily(
            "refloat_build_info", "Always 1: the version of Refloat.", labels=("version",)
        )
        build.add_metric((__version__,), 1)
        headers = [self._read_header(cluster) for cluster in self._clusters]
        reachable.add_metric((), float(None not in headers))
        for header in headers:
            if header is None:
                continue
            for state, count in header.counts.items():
                agents.add_metric((header.cluster, state.slug), count)
            stale.add_metric((header.cluster,), float(header.stale))
            if header.as_of is not None:
                age.add_metric((header.cluster,), max(0.0, self._now - header.as_of))
        identity_expiry = GaugeMetricFamily(
            "refloat_identity_expiry_timestamp_seconds",
            "Unix time when the client certificate of Refloat for the cluster expires.",
            labels=("cluster",),
        )
        for cluster, validity in _read_identities(self._clusters):
            identity_expiry.add_metric((cluster,), validity.expires_at)
        socket_counts = hub.count_sockets()
        for cluster in self._clusters:
            websockets.add_metric((cluster,), socket_counts.get(cluster, 0))
        yield from (build, agents, age, stale, reachable, identity_expiry, websockets)
        yield from _collect_instance_metrics(self._clusters, self._now)
        yield from _collect_alert_metrics(self._clusters, include_installation=self._include_installation)

    def _read_header(self, cluster: str) -> StreamHeader | None:
        try:
            return record_reader.reader().stream_header(cluster, self._now)
        except StateUnavailableError:
            return None


def _read_identities(clusters: Iterable[str]) -> Iterator[tuple[str, IdentityValidity]]:
    for cluster in clusters:
        try:
            validity = record_reader.reader().identity(cluster)
        except StateUnavailableError:
            return
        if validity is not None:
            yield cluster, validity


def _collect_instance_metrics(clusters: Iterable[str], now: float) -> Iterator[Metric]:
    """Yield the destination health of every auth and proxy that is not deregistered, one series each."""
    labels = ("cluster", "kind", "instance_id", "name")
    health = GaugeMetricFamily(
        "refloat_instance_health",
        "Always 1: destination health of an auth or proxy, with the reason.",
        labels=(*labels, "health", "reason"),
    )
    since = GaugeMetricFamily(
        "refloat_instance_health_since_timestamp_seconds",
        "Unix time since when the instance has had this destination health.",
        labels=labels,
    )
    draining_gauge = GaugeMetricFamily(
        "refloat_instance_draining",
        "1 if the instance drains and accepts no new connections, otherwise 0.",
        labels=labels,
    )
    for cluster in clusters:
        for view in _read_registered_views(cluster, now):
            facts = view.facts
            instance_labels = (cluster, facts.kind.value, facts.id, facts.name)
            is_known = view.health is not Health.UNKNOWN
            reason = facts.watch.active.signal.reason.value if is_known else ""
            health.add_metric((*instance_labels, view.health.value, reason), 1)
            if view.health_since is not None:
                since.add_metric(instance_labels, view.health_since)
            draining_gauge.add_metric(instance_labels, float(view.drain_request is not None))
    yield from (health, since, draining_gauge)


def _read_registered_views(cluster: str, now: float) -> list[InstanceView]:
    try:
        views = record_reader.reader().instances(cluster, now)
    except StateUnavailableError:
        return []
    return [view for view in views if view.facts.gone_at is None]


def _collect_alert_metrics(clusters: Iterable[str], *, include_installation: bool) -> Iterator[Metric]:
    """Yield the metrics of alerting, from the database: time of the last evaluation, incidents, notifications."""
    watchdog = GaugeMetricFamily(
        "refloat_watchdog_timestamp_seconds",
        "Unix time of the last evaluation of the alert rules.",
        labels=("cluster",),
    )
    evaluation_seconds = GaugeMetricFamily(
        "refloat_alert_evaluation_seconds",
        "Duration of the last evaluation of the alert rules in seconds.",
        labels=("cluster",),
    )
    incidents = GaugeMetricFamily(
        "refloat_incidents",
        "Number of open incidents that are neither silenced nor inhibited.",
        labels=("cluster", "severity"),
    )
    notifications = GaugeMetricFamily(
        "refloat_notifications", "Number of notifications that are not sent.", labels=("cluster", "state")
    )
    cluster_names = set(clusters)
    for clock in AlertClock.objects.filter(cluster__in=cluster_names).exclude(evaluated_at=None):
        watchdog.add_metric((clock.cluster_id,), clock.evaluated_at or 0.0)
        evaluation_seconds.add_metric((clock.cluster_id,), clock.duration_ms / 1000)
    rows = select_effective_incidents()
    open_counts = {
        (cluster, severity): count
        for cluster, severity, count in rows.values_list("cluster", "severity").annotate(Count("pk"))
    }
    for cluster in sorted(cluster_names):
        for severity in Severity:
            incidents.add_metric((cluster, severity.slug), open_counts.get((cluster, int(severity)), 0))
    unsent = Delivery.objects.filter(sent_at=None).order_by().values_list("cluster")
    for state, rows_of_state in (
        ("pending", unsent.filter(failed_at=None)),
        ("failed", unsent.exclude(failed_at=None)),
    ):
        counts = dict(rows_of_state.annotate(Count("pk")))
        for cluster in (*sorted(cluster_names), *([""] if include_installation else [])):
            notifications.add_metric((cluster, state), counts.get(cluster, 0))
    yield from (watchdog, evaluation_seconds, incidents, notifications)
