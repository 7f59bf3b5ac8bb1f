"""Instances in memory that report, accept and restart, as `fleet.changes.instance_dialer.Dialer` finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from typing_extensions import override

from fleet.changes.base_kind import RecordSnapshot
from fleet.monitoring.sources import SourceError
from fleet.monitoring.views import InstanceView
from fleet.protocol.policies import env_policies
from fleet.transport.admin import RevisionConflict, UnreachableError
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState
from fleet.vocabulary.node_policies import NodeReport, NodeReportResponse, PolicyReport
from tests.fakes.reader import FakeReader
from tests.fakes.steps import record_of


@dataclass
class PolicyNode:
    """One instance."""

    name: str
    role: str = "auth"
    environment: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    run: int = 1
    why_not: str = ""
    state: InstanceState = InstanceState.OK
    down: bool = False
    serving: bool = True
    #: It comes back well after a restart.
    comes_back: bool = True
    #: Of the run, as `policies.effective` has it.
    running: tuple[env_policies.PolicyValue, ...] = ()
    did: list[str] = field(default_factory=list)
    #: Agents on it.
    agents: int = 0

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.running = env_policies.effective_values(self.role, self.environment, self.accepted, self.flags)

    @property
    def id(self) -> str:
        """Its id."""
        return f"id-{self.name}"

    @property
    def report(self) -> NodeReport:
        """What it says."""
        following = env_policies.effective_values(self.role, self.environment, self.accepted, self.flags)
        beneath = env_policies.effective_values(self.role, self.environment, {}, self.flags)
        return NodeReport(
            self.id, self.role, str(self.run), 1.0, env_policies.revision_of(self.accepted), self.why_not,
            {own.name: PolicyReport(own, then, under)
             for own, then, under in zip(self.running, following, beneath, strict=True)},
        )  # fmt: skip

    def restart(self) -> None:
        """Become another run."""
        self.run += 1
        self.down, self.serving = not self.comes_back, self.comes_back
        self._start()


class PolicyNodes:
    """Several, by id."""

    def __init__(self, *nodes: PolicyNode) -> None:
        self.nodes = {node.id: node for node in nodes}

    def views(self) -> tuple[InstanceView, ...]:
        """As the reader has them."""
        return tuple(
            InstanceView(
                InstanceFacts(node.id, index, InstanceKind(node.role), node.name, "127.0.0.1:1"),
                node.state, "", node.agents, {},
            )
            for index, node in enumerate(self.nodes.values())
        )  # fmt: skip

    def observed(self) -> dict[str, NodeReportResponse]:
        """As the book has them."""
        return {
            one: NodeReportResponse(1.0, None if node.down else node.report, "silent" if node.down else "")
            for one, node in self.nodes.items()
        }

    def read_policies(self, instance_id: str) -> tuple[NodeReport, bool]:
        """See Dialer."""
        node = self.nodes[instance_id]
        if node.down:
            raise SourceError("unavailable", has_response=False)
        return node.report, node.serving

    def accept(self, instance_id: str, revision: str, values: Mapping[str, str]) -> None:
        """See Dialer."""
        node = self._reach(instance_id, "accept")
        if revision != env_policies.revision_of(node.accepted):
            raise RevisionConflict("another revision")
        node.accepted = dict(values)

    def drain(self, instance_id: str, reason: str) -> None:
        """See Dialer."""
        self._reach(instance_id, "drain")

    def undrain(self, instance_id: str) -> None:
        """See Dialer."""
        self._reach(instance_id, "undrain")

    def restart(self, instance_id: str, run_id: str, reason: str, drain: float) -> None:
        """See Dialer."""
        node = self._reach(instance_id, "restart")
        if run_id != str(node.run):
            raise RevisionConflict("not this run")
        node.restart()

    def _reach(self, instance_id: str, what: str) -> PolicyNode:
        node = self.nodes[instance_id]
        if node.down:
            raise UnreachableError(f"{node.name} does not answer")
        node.did.append(what)
        return node

    def record(self, now: float, *, asked: bool = True) -> RecordSnapshot:
        """The record of a fleet of them; `asked`: they said what they run with."""
        book = SimpleNamespace(read=lambda cluster: self.observed() if asked else {})
        return record_of(_Reader(as_of=now, nodes=self), now, book)


@dataclass
class _Reader(FakeReader):
    nodes: PolicyNodes = field(default_factory=PolicyNodes)

    @override
    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        return self.nodes.views()


class FakePolicyBook:
    """What instances said, by id; see `fleet.monitoring.state.policy_book`."""

    def __init__(self, **seen: PolicyNode) -> None:
        """Ids are the names given, with hyphens for underscores."""
        self.seen = seen

    def read(self, cluster: str) -> dict[str, NodeReportResponse]:
        """See PolicyBook."""
        return {
            one.replace("_", "-"): NodeReportResponse(1.0, node.report) for one, node in self.seen.items()
        }
