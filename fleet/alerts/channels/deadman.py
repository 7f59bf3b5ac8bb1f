"""A heartbeat out, for somebody who notices when it stops: a monitor that is down cannot say so itself."""

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
    """Says at an address of the kind of Healthchecks, once a minute, that looks are taken."""

    #: Empty: nobody listens.
    url: str
    _sent_at: float = float("-inf")
    _is_failing: bool = False

    def send_heartbeat(self, now: float) -> bool:
        """Say so if it is time; whether it was said. Call it only after a look that succeeded."""
        if not self.url or now - self._sent_at < HEARTBEAT_SECONDS:
            return False
        self._sent_at = now
        try:
            # The operator of the console set it in the environment: it may well be in the same network.
            post(self.url, b"", {"User-Agent": "Refloat"}, allow_private=True)
        except SendError as error:
            if not self._is_failing:
                logger.warning("the heartbeat out is not taken: %s", error)
            self._is_failing = True
            return False
        if self._is_failing:
            logger.warning("the heartbeat out is taken again")
        self._is_failing = False
        return True
