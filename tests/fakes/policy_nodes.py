"""Instances in memory that report, get policies and restart, as `fleet.changes.instance_dialer.Dialer` finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from typing_extensions import override

from fleet.changes.base_kind import RecordSnapshot
from fleet.monitoring.sources import SourceError
from fleet.monitoring.views import InstanceView
from fleet.protocol.policies import env_policies
from fleet.transport.admin import RevisionConflictError, UnreachableError
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState
from fleet.vocabulary.node_policies import NodeReport, NodeReportResponse, PolicyReport
from tests.fakes.reader import FakeReader
from tests.fakes.step_contexts import record_snapshot_of


@dataclass
class PolicyNode:
    """One instance."""

    name: str
    role: str = "auth"
    environment: dict[str, str] = field(default_factory=dict)
    accepted_values: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    run: int = 1
    refusal_reason: str = ""
    state: InstanceState = InstanceState.OK
    is_down: bool = False
    serving: bool = True
    #: It comes back well after a restart.
    comes_back: bool = True
    #: Of the run, as `policies.effective` has it.
    effective_values: tuple[env_policies.PolicyValue, ...] = ()
    requests: list[str] = field(default_factory=list)
    #: Agents on it.
    agents: int = 0

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.effective_values = env_policies.effective_values(
            self.role, self.environment, self.accepted_values, self.flags
        )

    @property
    def id(self) -> str:
        """Its id."""
        return f"id-{self.name}"

    @property
    def report(self) -> NodeReport:
        """Return the node's report."""
        values_after_restart = env_policies.effective_values(
            self.role, self.environment, self.accepted_values, self.flags
        )
        environment_values = env_policies.effective_values(self.role, self.environment, {}, self.flags)
        return NodeReport(
            self.id, self.role, str(self.run), 1.0, env_policies.revision_of(self.accepted_values), self.refusal_reason,
            {own.name: PolicyReport(own, then, under)
             for own, then, under in zip(self.effective_values, values_after_restart, environment_values, strict=True)},
        )  # fmt: skip

    def restart(self) -> None:
        """Start a new run."""
        self.run += 1
        self.is_down, self.serving = not self.comes_back, self.comes_back
        self._start()


class PolicyNodes:
    """Policy nodes by id."""

    def __init__(self, *nodes: PolicyNode) -> None:
        self.nodes = {node.id: node for node in nodes}

    def views(self) -> tuple[InstanceView, ...]:
        """Return the nodes as the reader's instance views."""
        return tuple(
            InstanceView(
                InstanceFacts(node.id, index, InstanceKind(node.role), node.name, "127.0.0.1:1"),
                node.state, "", node.agents, {},
            )
            for index, node in enumerate(self.nodes.values())
        )  # fmt: skip

    def read_reports(self) -> dict[str, NodeReportResponse]:
        """Return the reports as the policy book has them."""
        return {
            instance_id: NodeReportResponse(
                1.0, None if node.is_down else node.report, "silent" if node.is_down else ""
            )
            for instance_id, node in self.nodes.items()
        }

    def read_policies(self, instance_id: str) -> tuple[NodeReport, bool]:
        """See Dialer."""
        node = self.nodes[instance_id]
        if node.is_down:
            raise SourceError("unavailable", has_response=False)
        return node.report, node.serving

    def send_policies(self, instance_id: str, revision: str, values: Mapping[str, str]) -> None:
        """See Dialer."""
        node = self._reach(instance_id, "send_policies")
        if revision != env_policies.revision_of(node.accepted_values):
            raise RevisionConflictError("another revision")
        node.accepted_values = dict(values)

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
            raise RevisionConflictError("not this run")
        node.restart()

    def _reach(self, instance_id: str, request_name: str) -> PolicyNode:
        node = self.nodes[instance_id]
        if node.is_down:
            raise UnreachableError(f"{node.name} does not answer")
        node.requests.append(request_name)
        return node

    def record(self, now: float, *, has_reports: bool = True) -> RecordSnapshot:
        """Return a record of a fleet of these nodes; `has_reports`: with their reports."""
        book = SimpleNamespace(read=lambda cluster: self.read_reports() if has_reports else {})
        return record_snapshot_of(_Reader(as_of=now, nodes=self), now, book)


@dataclass
class _Reader(FakeReader):
    nodes: PolicyNodes = field(default_factory=PolicyNodes)

    @override
    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        return self.nodes.views()


class FakePolicyBook:
    """The reports of instances by id; see `fleet.monitoring.state.policy_report_store`."""

    def __init__(self, **nodes: PolicyNode) -> None:
        """Ids are the names given, with hyphens for underscores."""
        self.nodes = nodes

    def read(self, cluster: str) -> dict[str, NodeReportResponse]:
        """See PolicyBook."""
        return {
            instance_id.replace("_", "-"): NodeReportResponse(1.0, node.report)
            for instance_id, node in self.nodes.items()
        }
