"""The trends of instances on Fleet now, read from the database."""

from __future__ import annotations

from dashboards.shared.instance_trends import TREND_SECONDS, InstanceTrend, instance_trends_of
from fleet.models.inventory import Instance
from fleet.monitoring.history.minutes import minute_of, read_instance_groups


def read_instance_trends(cluster: str, now: float) -> dict[str, InstanceTrend]:
    """Return the last hour of every auth and proxy by id; `now` in seconds since the epoch."""
    until = minute_of(now) + 60
    since = until - TREND_SECONDS
    instance_by_key = dict(Instance.objects.filter(cluster=cluster).values_list("pk", "instance_id"))
    return instance_trends_of(read_instance_groups(cluster, since, until), instance_by_key, since, until)
