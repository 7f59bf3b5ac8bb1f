"""Changes of a watch on their way from the worker that receives them to the round that records them. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.sources.presence import ListedAgent


def pack_changes(agents: Mapping[str, ListedAgent | None]) -> bytes:
    """Return changes as JSON: the values of each agent in the order of `ListedAgent`; empty without any."""
    if not agents:
        return b""
    document = {agent_id: None if agent is None else _values_of(agent) for agent_id, agent in agents.items()}
    return json.dumps(document, separators=(",", ":")).encode()


def unpack_changes(blobs: Iterable[bytes]) -> dict[str, ListedAgent | None]:
    """Return the newest change of each agent."""
    agents: dict[str, ListedAgent | None] = {}
    for blob in blobs:
        document: dict[str, list[Any] | None] = json.loads(blob)
        agents.update(
            (agent_id, None if values is None else _agent_of(values)) for agent_id, values in document.items()
        )
    return agents


def _values_of(agent: ListedAgent) -> list[Any]:
    attributes = agent.attributes
    return [
        *agent._replace(mode=agent.mode.value)[:-1],  # type: ignore[arg-type]  # as JSON has it
        [attributes.version, attributes.labels],
    ]


def _agent_of(values: list[Any]) -> ListedAgent:
    *fields, (version, labels) = values
    attributes = AgentAttributes(version, tuple((key, text) for key, text in labels))
    agent = ListedAgent._make([*fields, attributes])
    return agent._replace(mode=ReconnectMode(agent.mode))
