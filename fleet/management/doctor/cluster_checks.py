"""Checks of clusters with their own TLS files: readable, matching, not expired, and the only one with its addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.clusters.credentials import tls_files_of
from fleet.management.doctor.findings import CheckFinding, error, ok, skip, warning
from fleet.management.doctor.tls_checks import RENEWAL_PERIOD, read_validities
from fleet.models.clusters import Cluster
from fleet.monitoring.sources.source import SourcePolling
from fleet.source_plugins.registry import InstalledSources, SourceLoadError, load_object
from fleet.transport.tls import TLSError, TLSFiles, check_files
from fleet.vocabulary.clusters import UPLOAD_SOURCES, TLSSource
from fleet.vocabulary.name_lists import join_names


@dataclass(frozen=True, slots=True)
class ClusterConnectionFacts:
    """How Refloat connects to a cluster that is not paused."""

    cluster: str
    addresses: tuple[str, ...]
    #: TLS files of the cluster itself; None: it has none.
    tls: TLSFiles | None
    #: The files are uploads, which have no path that people know.
    is_uploaded: bool = False


def read_cluster_connections() -> list[ClusterConnectionFacts]:
    """Return the facts of the clusters that are not paused. Raises DatabaseError."""
    return [
        ClusterConnectionFacts(
            row.id,
            tuple(row.auths),
            None if row.tls_source == TLSSource.SETTINGS else tls_files_of(row),
            is_uploaded=row.tls_source in UPLOAD_SOURCES,
        )
        for row in Cluster.objects.filter(is_paused=False)
    ]


def check_sources(
    sources_by_cluster: Mapping[str, str], installed: InstalledSources
) -> Iterator[CheckFinding]:
    """Yield the findings of source plug-ins, and of clusters whose source (by cluster id) is not installed."""
    problems = [*installed.problems, *_find_code_problems(installed)]
    for problem in problems:
        yield error("source-plugins", problem, "Install a version of this plug-in that works, or remove it.")
    for cluster, slug in sources_by_cluster.items():
        if slug not in installed.by_slug:
            yield error(
                "cluster-sources",
                f"Cluster {cluster} is not polled: its source {slug} is not installed.",
                "Install its plug-in on each machine where Refloat runs, or choose another product on the page of the "
                "cluster.",
            )
    if not problems:
        labels = join_names([source.label for source in installed.by_slug.values()])
        yield ok("source-plugins", f"Installed sources: {labels}.")


def _find_code_problems(installed: InstalledSources) -> Iterator[str]:
    for source in installed.by_slug.values():
        for path, expected_type in ((source.polling, SourcePolling), (source.connection_test, dict)):
            try:
                load_object(path, expected_type)
            except SourceLoadError as problem:
                yield f"The source {source.slug} cannot be used: {path}: {problem}."


def read_cluster_sources() -> dict[str, str]:
    """Return the source of each cluster by its id. Raises DatabaseError."""
    return dict(Cluster.objects.values_list("pk", "source"))


def check_cluster_connections(
    clusters: Sequence[ClusterConnectionFacts], now: datetime
) -> Iterator[CheckFinding]:
    """Yield the findings of the clusters' own TLS files, and of addresses that several clusters have."""
    if not any(facts.tls for facts in clusters):
        yield skip("cluster-tls", "No cluster has TLS files of its own.")
    for facts in clusters:
        if facts.tls is not None:
            yield _check_tls(facts, facts.tls, now)
    yield from _check_addresses(clusters)


def _check_tls(facts: ClusterConnectionFacts, tls: TLSFiles, now: datetime) -> CheckFinding:
    remedy = (
        "Upload the CA, the certificate and its key again on the page of the cluster."
        if facts.is_uploaded
        else "Set the cluster to PEM files that the user of the workers can read, with the key of the certificate."
    )
    if tls.identity:
        remedy = "Set the cluster to a valid identity file: the whole output of tctl auth sign --format=file."
    try:
        check_files(tls)
        # After the certificate, an identity file has CAs of the cluster's hosts.
        validities = (
            read_validities("identity", tls.identity)[:1]
            if tls.identity
            else [*read_validities("CA", tls.authority), *read_validities("certificate", tls.certificate)]
        )
    except (TLSError, OSError, ValueError) as problem:
        return error("cluster-tls", f"Refloat cannot connect to cluster {facts.cluster}: {problem}.", remedy)
    if not validities:
        return ok("cluster-tls", f"Cluster {facts.cluster} has no certificate that can expire.")
    first = min(validities, key=lambda validity: validity.ends_at)
    name, day = f"The {first.setting} of cluster {facts.cluster}", f"{first.ends_at:%Y-%m-%d}"
    remedy = (
        f"Upload a new {first.setting} on the page of the cluster."
        if facts.is_uploaded
        else f"Install a new {first.setting} in {first.path}."
    )
    if now >= first.ends_at:
        return error("cluster-tls", f"{name} expired on {day}.", remedy)
    # Bots renew identities that are valid for an hour.
    if first.ends_at - now < min(RENEWAL_PERIOD, (first.ends_at - first.begins_at) / 4):
        return warning("cluster-tls", f"{name} expires on {day} (in {(first.ends_at - now).days} d).", remedy)
    return ok("cluster-tls", f"{name} is the first to expire, on {day}.")


def _check_addresses(clusters: Sequence[ClusterConnectionFacts]) -> Iterator[CheckFinding]:
    clusters_by_address: dict[str, list[str]] = defaultdict(list)
    for facts in clusters:
        for address in dict.fromkeys(address.lower() for address in facts.addresses):
            clusters_by_address[address].append(facts.cluster)
    for address, names in clusters_by_address.items():
        if len(names) > 1:
            yield warning(
                "cluster-addresses",
                f"The clusters {', '.join(names)} have the same address {address}, so Refloat polls its agents "
                f"{len(names)} times.",
                "Remove or pause all but one of these clusters.",
            )
