"""Runs all checks of an installation. An error of one check does not stop the others."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from django.core.checks import CheckMessage
from django.db import DatabaseError
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from fleet.management.doctor import (
    channel_checks,
    clock_checks,
    cluster_checks,
    database_checks,
    file_checks,
    fleet_checks,
    process_checks,
    redis_checks,
    setting_checks,
    tls_checks,
)
from fleet.management.doctor.findings import (
    CheckFinding,
    CheckVerdict,
    error,
    skip,
    sort_findings,
)
from fleet.management.doctor.installation import InstallationFacts
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state import StateError
from fleet.source_plugins.registry import installed_sources

logger = logging.getLogger(__name__)

_NO_DATABASE = "The database cannot be used."
Rows = TypeVar("Rows")


class Examination:
    """One run of all checks."""

    def __init__(
        self,
        facts: InstallationFacts,
        run_system_checks: Callable[[], Sequence[CheckMessage]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._facts = facts
        self._run_system_checks = run_system_checks
        self._clock = clock
        #: The database can be read, even if its tables are those of another version.
        self.is_database_usable = False
        #: What Redis returned; None: it is not reachable.
        self.redis_facts: redis_checks.RedisFacts | None = None

    def run(self, on_progress: Callable[[str], object] = lambda _: None) -> list[CheckFinding]:
        """Return the findings of all checks, in the order of the report.

        `on_progress` is called before each group of checks with its number and subject, such as `4 of 10: database`.
        """
        groups = (
            ("settings", "setting-combinations", self._check_settings),
            ("files", "home-folder", self._check_files),
            ("TLS files", "tls-files", self._check_tls),
            ("database", "database-connection", self._check_database),
            ("Redis", "redis-connection", self._check_redis),
            ("processes", "polling-rounds", self._check_processes),
            ("alerting", "alerting", self._check_alerting),
            ("notification channels", "channel-deliveries", self._check_channels),
            ("TLS of the clusters", "cluster-tls", self._check_clusters),
            ("sources of the clusters", "cluster-sources", self._check_sources),
        )
        findings: list[CheckFinding] = []
        for number, (subject, name, check) in enumerate(groups, start=1):
            on_progress(f"{number} of {len(groups)}: {subject}")
            findings += _isolate(name, check)
            if check == self._check_redis:
                self.is_database_usable = _is_database_usable(findings)
        return sort_findings(findings)

    def _check_settings(self) -> Iterator[CheckFinding]:
        facts = self._facts
        yield from setting_checks.check_setting_values(facts.setting_errors)
        yield from setting_checks.check_setting_names(facts.environment, facts.setting_names)
        yield from setting_checks.check_setting_combinations(self._run_system_checks())
        yield from setting_checks.check_allowed_hosts(facts.public_url, facts.allowed_hosts)

    def _check_files(self) -> Iterator[CheckFinding]:
        facts = self._facts
        database_file = database_checks.sqlite_file()
        key_files = [
            Path(facts.environment[f"{name}_FILE"])
            for name in sorted(facts.setting_names)
            if facts.environment.get(f"{name}_FILE")
        ]
        yield from file_checks.check_home(
            facts.home,
            [
                *key_files,
                *([facts.tls.key] if facts.tls.key else []),
                *([database_file] if database_file and database_file.parent != facts.home else []),
            ],
            is_key_configured=any(
                facts.environment.get(name) for name in ("REFLOAT_SECRET_KEY", "REFLOAT_SECRET_KEY_FILE")
            ),
            has_database=database_file is None or database_file.exists(),
        )

    def _check_tls(self) -> Iterator[CheckFinding]:
        return tls_checks.check_tls(self._facts.tls, datetime.fromtimestamp(self._clock(), UTC))

    def _check_database(self) -> Iterator[CheckFinding]:
        if self._facts.has_invalid("DATABASE_URL"):
            yield skip("database-connection", "DATABASE_URL cannot be read.")
            return
        findings = list(database_checks.check_database())
        yield from findings
        if any(finding.verdict is CheckVerdict.ERROR for finding in findings[:1]):
            return
        with contextlib.suppress(DatabaseError):  # the findings above have it
            started_at = self._clock()
            moment = database_checks.read_database_time()
            if moment is not None:
                yield clock_checks.check_clock(
                    "database-clock", "the database", moment.timestamp(), started_at, self._clock()
                )

    def _check_redis(self) -> Iterator[CheckFinding]:
        if self._facts.has_invalid("REDIS_URL"):
            yield skip("redis-connection", "REDIS_URL cannot be read.")
            return
        url = self._facts.redis_url
        if url is None:
            yield error(
                "redis-connection",
                "The embedded Valkey is not running: the console is stopped, or runs with another REFLOAT_HOME.",
                "Start the console with `refloat serve`, or set REDIS_URL to your Redis.",
            )
            return
        answer = redis_checks.read_or_describe(url, self._clock)
        if isinstance(answer, CheckFinding):
            yield answer
            return
        self.redis_facts = answer
        yield from redis_checks.check_redis(answer, url)
        yield clock_checks.check_clock(
            "redis-clock", "Redis", answer.server_at, answer.started_at, answer.ended_at
        )

    def _check_processes(self) -> Iterator[CheckFinding]:
        url, facts = self._facts.redis_url, self._facts
        if self.redis_facts is None or url is None:
            yield skip("polling-rounds", "Redis cannot be used.")
            return
        try:
            with contextlib.closing(redis_checks.open_client(url)) as client:
                now = self._clock()
                rounds = process_checks.read_rounds(client, facts.redis_prefix, self._read_clusters(), now)
                yield from process_checks.check_rounds(rounds, now)
                # Without fresh rounds all instances are unknown, and the finding above says why.
                polled_clusters = [
                    facts.cluster for facts in rounds if facts.has_auths and facts.is_fresh(now)
                ]
                instances = fleet_checks.read_instances(client, facts.redis_prefix, polled_clusters, now)
                yield from fleet_checks.check_instances(instances)
                queues = process_checks.read_queues(client, facts.celery_key_prefix, facts.queues, now)
        except (StateError, RedisError, BrokerError, OSError) as problem:
            yield skip("polling-rounds", f"The processes cannot be checked: {problem}.")
            return
        is_polling = any(facts.has_auths and facts.is_fresh(now) for facts in rounds)
        for queue in queues:
            yield process_checks.check_queue(queue, is_proven_alive=is_polling and queue.name == "polls")
        yield process_checks.check_scheduler(rounds, queues, now)

    def _read_clusters(self) -> dict[str, bool]:
        """Return the clusters, or only the default cluster if the database has none that can be read."""
        if self.is_database_usable:
            with contextlib.suppress(DatabaseError):  # a finding about the database says why
                return process_checks.read_clusters()
        return {DEFAULT_CLUSTER: True}

    def _check_alerting(self) -> Iterator[CheckFinding]:
        return self._check_rows(
            "alerting",
            "The time of the last evaluation",
            process_checks.read_evaluations,
            lambda evaluations: process_checks.check_evaluations(evaluations, self._clock()),
        )

    def _check_clusters(self) -> Iterator[CheckFinding]:
        return self._check_rows(
            "cluster-tls",
            "The list of clusters",
            cluster_checks.read_cluster_connections,
            lambda clusters: cluster_checks.check_cluster_connections(
                clusters, datetime.fromtimestamp(self._clock(), UTC)
            ),
        )

    def _check_sources(self) -> Iterator[CheckFinding]:
        return self._check_rows(
            "cluster-sources",
            "The list of clusters",
            cluster_checks.read_cluster_sources,
            lambda sources: cluster_checks.check_sources(sources, installed_sources()),
        )

    def _check_channels(self) -> Iterator[CheckFinding]:
        return self._check_rows(
            "channel-deliveries",
            "The list of channels",
            channel_checks.read_channels,
            lambda channels: channel_checks.check_channels(channels, self._facts.public_url, self._clock()),
        )

    def _check_rows(
        self,
        name: str,
        subject: str,
        read: Callable[[], Rows],
        check: Callable[[Rows], Iterable[CheckFinding]],
    ) -> Iterator[CheckFinding]:
        """Check what the database has, or say why that check is skipped. `subject`: what is read, for that sentence."""
        if not self.is_database_usable:
            yield skip(name, _NO_DATABASE)
            return
        try:
            rows = read()
        except DatabaseError as problem:
            yield skip(name, f"{subject} cannot be read: {problem}.")
            return
        yield from check(rows)


def _is_database_usable(findings: Sequence[CheckFinding]) -> bool:
    """Return whether the database can be read, even if its tables are those of another version."""
    verdicts = {finding.name: finding.verdict for finding in findings}
    return verdicts.get("database-connection") is CheckVerdict.OK and not any(
        verdicts.get(name) is CheckVerdict.ERROR for name in ("database-version", "database-integrity")
    )


def _isolate(name: str, check: Callable[[], Iterable[CheckFinding]]) -> Iterator[CheckFinding]:
    """Yield the findings of a check; one more if it ends with an unexpected exception."""
    try:
        yield from check()
    except Exception as problem:
        logger.exception("the check %s failed", name)
        yield error(
            name,
            f"The check ended with {type(problem).__name__}: {str(problem).partition(chr(10))[0]}.",
            "Report this with the traceback above: it is an error in Refloat.",
        )
