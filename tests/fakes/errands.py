"""Messages on their way, for tests of senders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fleet.alerts.channels import Errand
from fleet.alerts.notifications import Links, payload
from fleet.vocabulary.incidents import Notice, NoticeKind
from tests.fakes.alerting import Watch, sound, stranded

LINKS = Links("https://console.example.com", "https://wiki.example.com/proxy", 7)


def errand(kind: NoticeKind = NoticeKind.FIRING, **given: Any) -> Errand:
    """A message of that kind about a proxy that strands 207 agents, or has."""
    watch = Watch(now=1_790_000_000.0)
    watch.run(90, stranded(207))
    watch.run(400, sound(), step=5)
    page, resolve = (notice for _, notice in watch.notices)
    notice: Notice = resolve if kind is NoticeKind.RESOLVED else replace(page, kind=kind)
    return Errand(payload(notice, LINKS), notice.key, watch.now, allow_private=True, **given)
