"""Workers outlive the loss of Redis at any moment: CELERY_WORKER_CONSUMER of `settings`."""

from __future__ import annotations

import logging

from celery.worker.consumer import Consumer
from typing_extensions import override

log = logging.getLogger(__name__)


class LastingConsumer(Consumer):
    """Celery's consumer. The loss of Redis ends the connection, never the worker."""

    @override
    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Let go of a connection that failed.

        A message whose acknowledgement could not be sent is put back when its channel closes; kombu 5.7 does so when
        the channel has no connection any more, and fails. Celery takes only errors of connections for what they are
        here, and ends the worker. Redis has the message still: it comes again when its visibility timeout is over.
        """
        try:
            super().on_connection_error_after_connected(exc)
        except AttributeError as error:
            log.warning("worker.unacknowledged: a message that was not acknowledged comes again (%s)", error)
