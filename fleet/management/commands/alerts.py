"""`manage.py alerts`: the process that looks for incidents and sends messages, by its own clock."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from django.core.management.base import BaseCommand
from typing_extensions import override

from fleet.alerts.deadman import Deadman
from fleet.alerts.evaluating import Evaluator, News
from fleet.alerts.running import Alerting
from fleet.domain.events import IncidentsChanged
from fleet.publish import publish
from fleet.state import StateUnavailable
from fleet.state.connect import reaching
from fleet.state.reader import open_reader

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Look for incidents in every cluster, and send what the outbox holds."""

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
                ),
                deadman=Deadman(settings.REFLOAT_DEADMAN_URL),
                tell=lambda news: _tell(runner, news),
                interval=settings.REFLOAT_ALERT_INTERVAL,
                holder=holder,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: alerting.stopped.set())
            alerting.run()


def _tell(runner: asyncio.Runner, news: News) -> None:
    """Tell browsers; that they cannot be told keeps no message from being sent."""
    event = IncidentsChanged(news.cluster, news.open, news.text, news.severity, news.number)
    try:
        with reaching():
            runner.run(publish(get_channel_layer(), news.cluster, [event]))
    except StateUnavailable as error:
        logger.debug("pages are not told: %s", error)
