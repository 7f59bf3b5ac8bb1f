"""Admission of agents by auths and proxies: by the agent's certificate, and with texts of limited length.

Without client certificates, anybody who reaches a port can claim to be any agent. docs/reference/tls.md, "Client
certificates".
"""

from __future__ import annotations

from collections.abc import Iterable

from fleet.nodes.shared import flags
from fleet.protocol import text_limits
from fleet.protocol.text_limits import LONGEST_ID, LONGEST_NAME, LONGEST_TEXT
from fleet.protocol.tunnel import agent_services
from fleet.transport.peers import Caller
from fleet.transport.tls import SHARED_NAMES
from fleet.wire import fleet_pb2

#: The role in the certificates of agents.
AGENT_ROLE = "agent"
#: A TTL of more than a day is a mistake, and a far longer one breaks the backend.
_LONGEST_TTL_MS = 86_400_000


def identity_refusal_of(caller: Caller | None, agent_id: str, name: str, cluster: str) -> str:
    """Return why the certificate does not prove this agent id and name; empty if it does, or if there is none."""
    if caller is None:
        return ""
    if caller.role != AGENT_ROLE:
        return f"the certificate has the role {caller.role!r}: agents need the role {AGENT_ROLE!r}"
    names = [proven for proven in caller.names if proven not in SHARED_NAMES]
    if agent_services.identity_matches(
        names, agent_id, name, lambda proven_name: flags.host_id(cluster, AGENT_ROLE, proven_name)
    ):
        return ""
    return f"the certificate is for {', '.join(caller.names)}, not for agent {name} with id {agent_id}"


def heartbeat_refusal_of(agent: fleet_pb2.AgentResource) -> str:
    """Return why a heartbeat is invalid; empty if it is valid."""
    if not 0 < len(agent.agent_id) <= LONGEST_ID or not 0 < agent.ttl_ms <= _LONGEST_TTL_MS:
        return (
            f"invalid heartbeat: agent_id needs 1 to {LONGEST_ID} characters and ttl_ms must be 1 to "
            f"{_LONGEST_TTL_MS}"
        )
    if agent.ByteSize() > text_limits.LONGEST_HEARTBEAT:
        return f"invalid heartbeat: more than {text_limits.LONGEST_HEARTBEAT} bytes"
    if len(agent.labels) > text_limits.MOST_LABELS:
        return f"labels: more than {text_limits.MOST_LABELS} labels"
    return _first_refusal(
        ("agent_id", agent.agent_id, LONGEST_ID),
        ("name", agent.name, LONGEST_NAME),
        ("version", agent.version, LONGEST_TEXT),
        ("via_proxy_id", agent.via_proxy_id, LONGEST_ID),
        ("networking_revision", agent.networking_revision, LONGEST_TEXT),
        ("policy.mode", agent.policy.mode, LONGEST_TEXT),
        ("policy.auth_id", agent.policy.auth_id, LONGEST_ID),
        *(("tracker.claimed", proxy_id, LONGEST_ID) for proxy_id in agent.tracker.claimed),
        *(("labels", text, LONGEST_TEXT) for pair in agent.labels.items() for text in pair),
    )


def hello_refusal_of(hello: fleet_pb2.AgentHello) -> str:
    """Return why a hello is invalid; empty if it is valid."""
    if not 0 < len(hello.agent_id) <= LONGEST_ID:
        return f"the first frame must be a hello with an agent_id of 1 to {LONGEST_ID} characters"
    return _first_refusal(
        ("agent_id", hello.agent_id, LONGEST_ID),
        ("name", hello.name, LONGEST_NAME),
        ("version", hello.version, LONGEST_TEXT),
    )


def _first_refusal(*texts: tuple[str, str, int]) -> str:
    return next(filter(None, _refusals(texts)), "")


def _refusals(texts: Iterable[tuple[str, str, int]]) -> Iterable[str]:
    return (text_limits.refusal_of(field, text, longest) for field, text, longest in texts)
