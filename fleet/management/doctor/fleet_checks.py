"""Checks of what pollers reach: a cluster that is polled, but does not respond, looks like an empty one on pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from redis import Redis

from fleet.management.doctor.findings import CheckFinding, error, format_count, ok, warning
from fleet.monitoring.state.reader import Reader
from fleet.vocabulary.instances import RESPONSIVE_STATES, InstanceState

_NAME = "fleet-instances"
#: Names in the text of a finding.
_MAX_NAMES = 5
_REMEDY = (
    "Check that this machine reaches the addresses in REFLOAT_AUTHS, and that REFLOAT_TLS_CA, REFLOAT_TLS_CERT and "
    "REFLOAT_TLS_KEY belong to this cluster: leave them out only if its auths serve without TLS."
)


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """The instances of a cluster in the newest polling round."""

    cluster: str
    #: Instances that were not deregistered.
    count: int
    #: Names of those that do not respond.
    unreachable_names: tuple[str, ...]


def read_instances(client: Redis, prefix: str, clusters: Iterable[str], now: float) -> list[InstanceCounts]:
    """Return the instances of each cluster. Raises StateUnavailableError."""
    reader = Reader(client, prefix)
    counts = []
    for cluster in clusters:
        expected = [view for view in reader.instances(cluster, now) if view.state is not InstanceState.GONE]
        names = tuple(view.facts.name for view in expected if view.state not in RESPONSIVE_STATES)
        counts.append(InstanceCounts(cluster, len(expected), names))
    return counts


def check_instances(clusters: Sequence[InstanceCounts]) -> Iterator[CheckFinding]:
    """Yield for each cluster whether its auths and proxies respond."""
    for cluster in clusters:
        subject, unreachable_count = f"Cluster {cluster.cluster}", len(cluster.unreachable_names)
        instances = format_count(cluster.count, "instance")
        if not cluster.count:
            yield error(_NAME, f"{subject} is polled, but no auth has ever responded.", _REMEDY)
        elif unreachable_count == cluster.count:
            yield error(_NAME, f"{subject}: none of {instances} responds.", _REMEDY)
        elif unreachable_count:
            names = ", ".join(cluster.unreachable_names[:_MAX_NAMES])
            more = unreachable_count - _MAX_NAMES
            yield warning(
                _NAME,
                f"{subject}: {unreachable_count} of {instances} did not respond: {names}"
                f"{f' and {more} more' if more > 0 else ''}.",
                "Open the instance on the page Fleet now, which shows the error of the last poll.",
            )
        else:
            yield ok(_NAME, f"{subject} has {instances}, and all of them respond.")
