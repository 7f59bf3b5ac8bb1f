"""A worker for three auths, two proxies and six agents in memory: concludes rounds, reads policies, rolls them out.

The worker is a thread that uses the database and the Redis of a console.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import override

from fleet.changes.policies.run import RolloutRunner
from fleet.models.changes import Change
from fleet.monitoring.state.policy_report_store import open_policy_report_store
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.verdicts import State
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes
from tests.fakes.record import fill
from tests.fakes.step_contexts import InMemoryReader, create_step_context
from tests.flow.web import PREFIX, Console, database

#: Seconds between two steps.
_PAUSE = 0.5


@dataclass
class Node(PolicyNode):
    """A policy node with the id that tests.fakes.record gives it."""

    @property
    @override
    def id(self) -> str:
        return f"{self.name}-id"


@contextmanager
def run_rollout_worker(console: Console, cluster: str) -> Iterator[None]:
    """Run a worker for the cluster until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(console, cluster, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _work(console: Console, cluster: str, stop: threading.Event) -> None:
    nodes = PolicyNodes(
        *(Node(f"auth-{number}") for number in (1, 2, 3)),
        *(Node(f"proxy-{number}", "proxy") for number in (1, 2)),
    )
    context = create_step_context(time.time, reader=InMemoryReader(make_views=nodes.views), dialer=nodes)
    book = open_policy_report_store(console.server.url, PREFIX)
    writer = console.writer()
    active_states = (ChangeState.CONFIRMED.value, ChangeState.RUNNING.value)
    with database(console.home):
        while not stop.wait(_PAUSE):
            fill(writer, [State.HEALTHY] * 6, cluster=cluster, auths=3, as_of=time.time())
            book.write(cluster, nodes.read_reports())
            for change in Change.objects.filter(
                cluster=cluster, kind=ChangeKind.POLICY.value, state__in=active_states
            ):
                RolloutRunner().step(change, context)
