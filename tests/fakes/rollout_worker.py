"""A worker for three auths, two proxies and six agents in memory: concludes rounds, reads policies, rolls them out.

`python -m tests.fakes.rollout_worker`; the console's database and Redis are those of the environment.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import django
from typing_extensions import override

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
django.setup()

from django.conf import settings  # noqa: E402 - Django first

from fleet.control import rollouts_run  # noqa: E402
from fleet.domain.changes import ChangeKind, ChangeState  # noqa: E402
from fleet.domain.verdicts import State  # noqa: E402
from fleet.models.changes import Change  # noqa: E402
from fleet.models.clusters import ensure_default_cluster  # noqa: E402
from fleet.state.connect import connect  # noqa: E402
from fleet.state.policy_book import open_book  # noqa: E402
from fleet.state.writer import Writer  # noqa: E402
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes  # noqa: E402
from tests.fakes.record import fill  # noqa: E402


@dataclass
class Node(PolicyNode):
    """One with the id that tests.fakes.record gives it."""

    @property
    @override
    def id(self) -> str:
        return f"{self.name}-id"


def main() -> None:
    """Go on until it is ended."""
    ensure_default_cluster()
    nodes = PolicyNodes(
        *(Node(f"auth-{number}") for number in (1, 2, 3)),
        *(Node(f"proxy-{number}", "proxy") for number in (1, 2)),
    )
    book = open_book(settings.REDIS_URL, settings.REFLOAT_PREFIX)
    writer = Writer(connect(settings.REDIS_URL), settings.REFLOAT_PREFIX)
    while True:
        fill(writer, [State.HEALTHY] * 6, auths=3, as_of=time.time())
        book.write("default", nodes.observed())
        running = (ChangeState.CONFIRMED.value, ChangeState.RUNNING.value)
        for change in Change.objects.filter(kind=ChangeKind.POLICY.value, state__in=running):
            rollouts_run.step(change, nodes.views, nodes, time.time, "worker")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
