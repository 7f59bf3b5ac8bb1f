"""The agents, tunnels and proxies that a plan of the networking config is made over. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from fleet.changes.networking.closing_plan import SeenAgent, SeenProxy, SeenTunnel
from fleet.changes.networking.plan import Fleet
from fleet.changes.plan_input import newest_generations, refuse_blind
from fleet.monitoring.agent_report import AgentReport, Answer
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import LOST, InstanceKind, InstanceState
from fleet.vocabulary.naming import natural
from fleet.vocabulary.verdicts import State

#: Agents before this do not know the fields that close tunnels.
_KNOWS_SINCE = (0, 1)


def fleet_of(table: FleetTable, answers: Mapping[int, Answer], now: float) -> Fleet:
    """The fleet as a plan needs it. Raises Blind."""
    refuse_blind(table)
    assert table.as_of is not None, "a table without a round is refused as blind"
    ids = {index: view.facts.id for index, view in table.instances.items()}
    retired = table.verdicts["state"] == State.RETIRED
    counts = np.bincount(table.tunnel_agents, minlength=len(table.ids))
    order = np.argsort(table.tunnel_agents, kind="stable")
    agents, at_proxy = table.tunnel_agents[order], table.tunnel_proxies[order]
    starts = np.searchsorted(agents, np.arange(len(table.ids)))
    seen = []
    for index in np.flatnonzero((counts > 0) & ~retired).tolist():
        start = int(starts[index])
        proxies = at_proxy[start : start + int(counts[index])].tolist()
        answer = answers.get(index)
        report = answer.report if answer is not None else None
        seen.append(
            SeenAgent(
                id=table.ids[index],
                desired=int(table.heartbeats["desired"][index]),
                tunnels=tuple(
                    _tunnel(ids[proxy], answer.at if answer else 0.0, report)
                    for proxy in proxies
                    if proxy in ids
                ),
                knows=_knows(report),
            )
        )
    held = np.bincount(table.tunnel_proxies, minlength=max(ids, default=0) + 1)
    views = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
    newest = newest_generations(views)
    return Fleet(
        agents=tuple(seen),
        proxies=tuple(
            _proxy(view, newest) for view in sorted(views, key=lambda view: natural(view.facts.name))
        ),
        held={identity: int(held[index]) for index, identity in ids.items()},
        size=int(len(table.ids) - retired.sum()),
        as_of=table.as_of,
        age=max(now - table.as_of, 0.0),
    )


def tunnels_of(table: FleetTable, agents: Collection[str]) -> dict[str, int]:
    """How many tunnels some agents hold now, by id; those that are not in the record any more are left out."""
    counts = np.bincount(table.tunnel_agents, minlength=len(table.ids))
    return {name: int(counts[index]) for index, name in enumerate(table.ids) if name in agents}


def _tunnel(proxy: str, at: float, report: AgentReport | None) -> SeenTunnel:
    said = next((one for one in report.tunnels if one.proxy_id == proxy), None) if report else None
    if said is None:
        return SeenTunnel(proxy)
    return SeenTunnel(proxy, said.sessions, at - said.open_for_ms / 1000)


def _knows(report: AgentReport | None) -> bool | None:
    found = re.match(r"v?(\d+)\.(\d+)", report.version) if report else None
    return (int(found[1]), int(found[2])) >= _KNOWS_SINCE if found else None


def _proxy(view: InstanceView, newest: Mapping[str, int]) -> SeenProxy:
    facts = view.facts
    return SeenProxy(
        id=facts.id,
        name=facts.name,
        tracked=view.state not in LOST,
        newest=facts.generation == newest.get(facts.group),
        unsure=view.state not in LOST and view.state is not InstanceState.OK,
    )
