"""A reader with a fleet in memory: the methods of `fleet.monitoring.state.reader.Reader`, settable by a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fleet.monitoring import columns
from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.classify import places_of
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, Heartbeat, ReconnectMode, Timing
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.identities import ExpiringIdentity, IdentityValidity
from fleet.monitoring.views import (
    AgentView,
    Explanation,
    FleetTable,
    InstanceView,
    Snapshot,
    StreamHeader,
    Summary,
)
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, Recovery, State, Verdict, VerdictSentences

_STALE_AFTER = 10.0


def attributes_of(agent_count: int) -> AttributeTable:
    """Return versions and labels of three kinds in turn; the first kind has neither."""
    rows = np.zeros(agent_count, columns.ATTRIBUTE)
    rows["version"] = rows["label_set"] = np.arange(agent_count) % 3
    return AttributeTable(
        rows, ("", "18.10.0", "18.9.1"), ({}, {"env": "prod"}, {"env": "dev", "site": "oslo"})
    )


@dataclass
class FakeReader:
    """Two auths, two proxies and as many agents as there are `states`; agent i has its tunnel to proxy-(i % 2 + 1)."""

    states: list[State] = field(default_factory=lambda: [State.HEALTHY] * 4)
    #: When the newest round concluded; None: there was none.
    as_of: float | None = None
    epoch: str = "e1"
    seq: int = 0
    #: Every method raises StateUnavailable.
    down: bool = False
    proxy_state: InstanceState = InstanceState.OK
    #: Fields of proxy-1 that differ.
    proxy_changes: Mapping[str, Any] = field(default_factory=dict)
    #: What every agent said of itself.
    answer: AgentReportResponse | None = None
    #: Tunnels that every agent aims for (0: one to every proxy) and has, at most two; with two, one to each proxy.
    desired_count: int = 0
    tunnels_per_agent: int = 1
    #: What rounds found that the source of the cluster cannot do.
    found_capabilities: dict[Capability, str] = field(default_factory=dict)
    #: Identity of Refloat for the cluster.
    identity_validity: IdentityValidity | None = None

    def change(self, index: int, state: State) -> dict[str, object]:
        """Conclude a round that changed one agent; return its event, as publish sends it."""
        self.states[index] = state
        self.seq += 1
        return self.delta([(index, state)])

    def delta(self, changes: list[tuple[int, State]]) -> dict[str, object]:
        """The event of the newest round."""
        return {
            "type": "delta",
            "cluster": "default",
            "epoch": self.epoch,
            "seq": self.seq,
            "as_of": self.as_of,
            "changes": [[index, int(state)] for index, state in changes],
            "counts": {state.slug: self.states.count(state) for state in State},
        }

    def summary(self, cluster: str, now: float) -> Summary:
        """See Reader."""
        header = self.stream_header(cluster, now)
        return Summary(
            cluster=cluster,
            as_of=header.as_of,
            interval=header.interval,
            stale=header.stale,
            counts=header.counts,
            agent_count=len(self.states),
            instance_count=4,
        )

    def stream_header(self, cluster: str, now: float) -> StreamHeader:
        """See Reader."""
        self._reach()
        stale = self.as_of is None or now - self.as_of > _STALE_AFTER
        visible_states = self._visible_states(stale=stale)
        return StreamHeader(
            cluster=cluster,
            epoch=self.epoch,
            seq=self.seq,
            as_of=self.as_of,
            interval=1.0,
            stale=stale,
            layout_version=self.layout_version(cluster),
            agent_count=len(self.states),
            counts={state: visible_states.count(state) for state in State},
        )

    def snapshot(self, cluster: str, now: float) -> Snapshot:
        """See Reader."""
        header, places = self.stream_header(cluster, now), self.table(cluster, now).places
        return Snapshot(
            cluster=cluster,
            epoch=header.epoch,
            seq=header.seq,
            layout_version=header.layout_version,
            as_of=header.as_of,
            interval=header.interval,
            stale=header.stale,
            states=bytes(self._visible_states(stale=header.stale)),
            proxies=places["proxy"].tobytes(),
            auths=places["auth"].tobytes(),
            causes=b"\xff\xff" * len(self.states),
            counts=header.counts,
        )

    def layout_version(self, cluster: str) -> str:
        """See Reader."""
        self._reach()
        return f"{self.epoch}-{len(self.states)}"

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """See Reader."""
        self._reach()
        return tuple(self._instances(now).values())

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        header = self.stream_header(cluster, now)
        count = len(self.states)
        heartbeats = np.zeros(count, columns.HEARTBEAT)
        heartbeats["expires_at"], heartbeats["ttl"] = now + 10, 20
        heartbeats["desired_count"] = self.desired_count
        memory = np.zeros(count, columns.MEMORY)
        homes = np.arange(count) % 2 + 2
        memory["home_proxy"], memory["last_auth"] = homes, np.arange(count) % 2
        memory["last_proxies"] = columns.NO_INSTANCE
        memory["last_proxies"][:, 0] = homes
        verdicts = np.zeros(count, columns.VERDICT)
        verdicts["state"], verdicts["cause"] = self._visible_states(stale=header.stale), NO_CAUSE
        tunnel_agents, tunnel_proxies = np.arange(count, dtype=np.uint32), homes.astype(np.uint16)
        if self.tunnels_per_agent > 1:
            tunnel_agents = np.concatenate([tunnel_agents, tunnel_agents])
            tunnel_proxies = np.concatenate([tunnel_proxies, (5 - homes).astype(np.uint16)])
        return FleetTable(
            cluster=cluster,
            epoch=self.epoch,
            seq=self.seq,
            as_of=self.as_of,
            stale=header.stale,
            ids=self._ids(),
            names=self._names(),
            instances=self._instances(now),
            heartbeats=heartbeats,
            memory=memory,
            verdicts=verdicts,
            places=places_of(memory, tunnel_agents, tunnel_proxies),
            tunnel_agents=tunnel_agents,
            tunnel_proxies=tunnel_proxies,
            fleet=FleetEvidence(
                cluster=cluster,
                timing=Timing(round_interval=header.interval),
                instances={index: view.facts for index, view in self._instances(now).items()},
            ),
            attributes=attributes_of(count),
        )

    def agent(self, table: FleetTable, index: int) -> AgentView:
        """See Reader."""
        state = State(int(table.verdicts["state"][index]))
        verdict = Verdict(
            state=state,
            reason=Reason.NONE if state is State.HEALTHY else Reason.NO_TUNNEL,
            cause="" if state is State.HEALTHY else "proxy-id-1",
            recovery=Recovery.NOT_NEEDED if state is State.HEALTHY else Recovery.BY_ITSELF,
            recovers_at=None,
            strands_at=None,
            sentences=VerdictSentences("" if state is State.HEALTHY else "No proxy holds a tunnel of it."),
        )
        proxy = f"proxy-id-{index % 2 + 1}"
        return AgentView(
            index=index,
            id=table.ids[index],
            name=table.names[index],
            state=state,
            verdict=verdict,
            since=self.as_of,
            auth=f"auth-id-{index % 2 + 1}",
            proxies=(proxy,),
            home_proxy=proxy,
            heartbeat_at=self.as_of,
            expires_at=float(table.heartbeats["expires_at"][index]),
            mode=ReconnectMode.RECONNECT if index % 2 else ReconnectMode.UNKNOWN,
            health_check=True if index % 2 else None,
            policy_read_at=self.as_of if index % 2 else None,
            version=table.attributes.version_of(index),
            labels=table.attributes.labels_of(index),
        )

    def agents(self, table: FleetTable, indices: Iterable[int]) -> Iterator[AgentView]:
        """See Reader."""
        return (self.agent(table, index) for index in indices)

    def explain(self, cluster: str, agent_id: str, now: float) -> Explanation | None:
        """See Reader."""
        table = self.table(cluster, now)
        if agent_id not in table.ids:
            return None
        index = table.ids.index(agent_id)
        return Explanation(
            view=self.agent(table, index),
            evidence=AgentEvidence(
                id=agent_id,
                heartbeat=Heartbeat(
                    auth=index % 2, expires_at=now + 10, ttl=20.0, mode=ReconnectMode.RECONNECT
                ),
                tunnels=(index % 2 + 2,),
                last_proxies=(index % 2 + 2,),
                last_auth=index % 2,
                had_tunnel=True,
            ),
            instances=self._instances(now),
            opened_at_by_proxy={index % 2 + 2: now - 60},
            agent_report_response=self.answer,
        )

    def identity(self, cluster: str) -> IdentityValidity | None:
        """See Reader."""
        return self.identity_validity

    def expiring_identity(self, cluster: str, now: float) -> ExpiringIdentity | None:
        """See Reader."""
        validity = self.identity_validity
        if validity is None or not validity.is_expiring(now):
            return None
        return ExpiringIdentity(validity.expires_at, validity.is_expired(now))

    def missing_capabilities(self, cluster: str) -> dict[Capability, str]:
        """See Reader."""
        self._reach()
        return self.found_capabilities

    def list_notice(self, cluster: str) -> str:
        """See Reader."""
        self._reach()
        return ""

    def agent_responses(self, cluster: str) -> dict[int, AgentReportResponse]:
        """See Reader."""
        self._reach()
        return {} if self.answer is None else dict.fromkeys(range(len(self.states)), self.answer)

    def _reach(self) -> None:
        if self.down:
            raise StateUnavailableError("Redis does not answer: connection refused")

    def _visible_states(self, *, stale: bool) -> list[State]:
        return [State.UNKNOWN if stale and state is not State.RETIRED else state for state in self.states]

    def _ids(self) -> tuple[str, ...]:
        return tuple(f"id-{index}" for index in range(len(self.states)))

    def _names(self) -> tuple[str, ...]:
        return tuple(f"agent-{index}" for index in range(len(self.states)))

    def _instances(self, now: float) -> dict[int, InstanceView]:
        kinds = [InstanceKind.AUTH, InstanceKind.AUTH, InstanceKind.PROXY, InstanceKind.PROXY]
        return {index: self._instance(index, kind, index % 2 + 1, now) for index, kind in enumerate(kinds)}

    def _instance(self, index: int, kind: InstanceKind, number: int, now: float) -> InstanceView:
        is_first_proxy = kind is InstanceKind.PROXY and number == 1
        state = self.proxy_state if is_first_proxy else InstanceState.OK
        view = InstanceView(
            facts=InstanceFacts(
                id=f"{kind.value}-id-{number}",
                index=index,
                kind=kind,
                name=f"{kind.value}-{number}",
                address=f"127.0.0.1:{3000 + index}",
                ttl=10.0,
                expires_at=now + 7,
                attempts=(PollAttempt(at=now - 1, ok=True),),
                serving=ServingStatus.SERVING,
                readyz=200,
                group="blue" if kind is InstanceKind.PROXY and number == 2 else "",
                generation=3 if kind is InstanceKind.PROXY and number == 2 else 0,
                region="eu-1",
            ),
            state=state,
            sentence="" if state is InstanceState.OK else "Its last two probes failed.",
            agent_count=2,
            counts={State.HEALTHY: 1, State.STRANDED: 1},
        )
        return replace(view, **self.proxy_changes) if is_first_proxy else view
