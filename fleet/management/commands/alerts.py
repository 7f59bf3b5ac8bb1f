"""`manage.py alerts`: the process that looks for incidents and sends messages, by its own clock."""

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
from django.core.management.base import BaseCommand
from typing_extensions import override

from fleet.alerts.alerting_loops import Alerting
from fleet.alerts.channels.deadman import Deadman
from fleet.alerts.evaluator import Evaluator, News
from fleet.changes.policies import desired, matrix
from fleet.monitoring.events import IncidentsChanged
from fleet.monitoring.publish import publish
from fleet.monitoring.state import StateUnavailable
from fleet.monitoring.state.connect import reaching
from fleet.monitoring.state.policy_book import PolicyBook, open_book
from fleet.monitoring.state.reader import open_reader
from fleet.monitoring.views import InstanceView

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Look for incidents in every cluster, and send what the outbox holds."""

    requires_system_checks = ()  # `prepare` and the console ran them; running them again imports every page
    help = "Look for incidents and send messages, until SIGTERM. It needs the database, and works while Redis is away."

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        holder = f"{socket.gethostname()}/{os.getpid()}"
        with asyncio.Runner() as runner:
            alerting = Alerting(
                evaluator=Evaluator(
                    open_reader(settings.REDIS_URL, settings.REFLOAT_PREFIX),
                    holder,
                    settings.REFLOAT_PUBLIC_URL,
                    _drift,
                ),
                deadman=Deadman(settings.REFLOAT_DEADMAN_URL),
                tell=lambda news: _tell(runner, news),
                interval=settings.REFLOAT_ALERT_INTERVAL,
                holder=holder,
                console_url=settings.REFLOAT_PUBLIC_URL.rstrip("/"),
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: alerting.stopped.set())
            alerting.run()


@functools.cache
def _book() -> PolicyBook:
    return open_book(settings.REDIS_URL, settings.REFLOAT_PREFIX)


def _drift(cluster: str, views: Iterable[InstanceView]) -> list[str]:
    """Names of instances that would not run, or do not run yet, with what is wanted of them."""
    wanted = desired.wanted_of(cluster)
    if not wanted:
        return []
    try:
        observed = _book().read(cluster)
    except StateUnavailable:
        return []
    return [line.name for line in matrix.matrix(views, observed, wanted) if line.drifts]


def _tell(runner: asyncio.Runner, news: News) -> None:
    """Tell browsers; that they cannot be told keeps no message from being sent."""
    event = IncidentsChanged(news.cluster, news.open, news.text, news.severity, news.number)
    try:
        with reaching():
            runner.run(publish(get_channel_layer(), news.cluster, [event]))
    except StateUnavailable as error:
        logger.debug("pages are not told: %s", error)
