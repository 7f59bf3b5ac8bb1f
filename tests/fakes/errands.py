"""Messages on their way, for tests of senders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fleet.alerts.channels import SendRequest
from fleet.alerts.notifications import Links, payload
from fleet.vocabulary.incidents import Notification, NotificationKind
from tests.fakes.alerting import Watch, sound, stranded

LINKS = Links("https://console.example.com", "https://wiki.example.com/proxy", 7)


def send_request(kind: NotificationKind = NotificationKind.FIRING, **given: Any) -> SendRequest:
    """A message of that kind about a proxy that strands 207 agents, or has."""
    watch = Watch(now=1_790_000_000.0)
    watch.run(90, stranded(207))
    watch.run(400, sound(), step=5)
    page, resolve = (notice for _, notice in watch.notices)
    notice: Notification = resolve if kind is NotificationKind.RESOLVED else replace(page, kind=kind)
    return SendRequest(payload(notice, LINKS), notice.key, watch.now, allow_private=True, **given)
