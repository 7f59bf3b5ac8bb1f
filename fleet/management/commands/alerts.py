"""`manage.py alerts`: the process that evaluates alert rules and sends notifications, on its own timer."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
from collections.abc import Iterable
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from typing_extensions import override

from fleet.alerts.alerting_loops import AlertingProcess
from fleet.alerts.channels.deadman import DeadmanSwitch
from fleet.alerts.evaluator import Evaluator, LiveUpdate
from fleet.changes.policies import desired_state, matrix
from fleet.management.base_command import ConsoleCommand
from fleet.monitoring.events import IncidentsChanged
from fleet.monitoring.publish import publish
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.policy_report_store import PolicyReportStore, open_policy_report_store
from fleet.monitoring.state.reader import open_reader
from fleet.monitoring.views import InstanceView

logger = logging.getLogger(__name__)

#: Polls that may fail to arrive after the start: the workers start with this process, and need a few seconds.
_START_GRACE_ROUNDS = 3


class Command(ConsoleCommand):
    """Evaluate the alert rules of every cluster, and send the notifications of the outbox."""

    help = "Evaluate alert rules and send notifications until SIGTERM. Needs the database, but not Redis."

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        holder = f"{socket.gethostname()}/{os.getpid()}"
        with asyncio.Runner() as runner:
            alerting_process = AlertingProcess(
                evaluator=Evaluator(
                    open_reader(settings.REDIS_URL, settings.REFLOAT_PREFIX),
                    holder,
                    settings.REFLOAT_PUBLIC_URL,
                    _find_drifted_instances,
                    _START_GRACE_ROUNDS * settings.REFLOAT_ROUND_INTERVAL,
                ),
                deadman=DeadmanSwitch(settings.REFLOAT_DEADMAN_URL),
                publish_update=lambda update: _publish_update(runner, update),
                interval_seconds=settings.REFLOAT_ALERT_INTERVAL,
                holder=holder,
                console_url=settings.REFLOAT_PUBLIC_URL.rstrip("/"),
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: alerting_process.stop_event.set())
            alerting_process.run()


@functools.cache
def _policy_report_store() -> PolicyReportStore:
    return open_policy_report_store(settings.REDIS_URL, settings.REFLOAT_PREFIX)


def _find_drifted_instances(cluster: str, views: Iterable[InstanceView]) -> list[str]:
    """Return the names of instances whose policies differ from the desired values, now or after a restart."""
    desired_values = desired_state.desired_values_of(cluster)
    if not desired_values:
        return []
    try:
        reported_policies = _policy_report_store().read(cluster)
    except StateUnavailableError:
        return []
    return [
        row.name for row in matrix.create_matrix(views, reported_policies, desired_values) if row.has_drift
    ]


def _publish_update(runner: asyncio.Runner, update: LiveUpdate) -> None:
    """Notify open pages. A failure is logged and does not stop notifications."""
    event = IncidentsChanged(update.cluster, update.open_counts, update.text, update.severity, update.number)
    try:
        with map_redis_errors():
            runner.run(publish(get_channel_layer(), update.cluster, [event]))
    except StateUnavailableError as error:
        logger.debug("cannot update open pages: %s", error)
