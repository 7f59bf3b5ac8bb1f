"""Dead man's switch: a heartbeat to an external service that alerts when the heartbeat stops."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fleet.alerts.channels import SendError
from fleet.alerts.channels.http import post

logger = logging.getLogger(__name__)

#: Seconds between two heartbeats.
HEARTBEAT_SECONDS = 60.0


@dataclass(slots=True)
class DeadmanSwitch:
    """Sends a heartbeat to a URL such as that of Healthchecks, once a minute while rules are evaluated."""

    #: Empty: disabled.
    url: str
    _sent_at: float = float("-inf")
    _is_failing: bool = False

    def send_heartbeat(self, now: float) -> bool:
        """Send a heartbeat if it is due; return whether it was accepted. Call it only after a successful evaluation."""
        if not self.url or now - self._sent_at < HEARTBEAT_SECONDS:
            return False
        self._sent_at = now
        try:
            # The operator configured the URL in the environment, so it may be in the private network.
            post(self.url, b"", {"User-Agent": "Refloat"}, allow_private=True)
        except SendError as error:
            if not self._is_failing:
                logger.warning("dead man's switch: heartbeat failed: %s", error)
            self._is_failing = True
            return False
        if self._is_failing:
            logger.warning("dead man's switch: heartbeat accepted again")
        self._is_failing = False
        return True
