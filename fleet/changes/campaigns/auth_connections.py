"""Decisions of a campaign that moves auth connections: which agents can move, through which proxy, their results.

The other decisions are in `fleet.vocabulary.campaigns`. RFD 226, "Periodic Auth Reconnects";
docs/reference/campaigns.md. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zlib import crc32

from fleet.vocabulary.campaigns import (
    AgentOutcome,
    AgentSnapshot,
    AuthSnapshot,
    CampaignAgentState,
    CampaignSettings,
    ProxySnapshot,
)


def find_skip_reason(
    agent: AgentSnapshot | None,
    auths: Mapping[str, AuthSnapshot],
    proxies: Mapping[str, ProxySnapshot],
    auths_to_leave: Collection[str] = (),
) -> str:
    """Return why a campaign must skip an agent now; empty when it can move. `auths_to_leave` empty: any auth."""
    if agent is None:
        return "the agent is no longer in the fleet"
    if agent.is_retired:
        return "the agent is retired"
    if not agent.auth:
        return "the agent has not sent a heartbeat, so its auth is unknown"
    if auths_to_leave and agent.auth not in auths_to_leave:
        name = auths[agent.auth].name if agent.auth in auths else agent.auth
        return f"the agent is already connected to {name}"
    if not any(auth.is_usable for instance_id, auth in auths.items() if instance_id != agent.auth):
        return "no other healthy auth that accepts connections is available"
    if not _relay_proxies(agent, proxies):
        return "the agent has no tunnel to a reachable proxy, so Refloat cannot reach it"
    return ""


def choose_relay_proxy(
    agent: AgentSnapshot,
    proxies: Mapping[str, ProxySnapshot],
    agent_id: str,
    avoided_proxies: Collection[str] = (),
) -> str:
    """Return the proxy through which Refloat asks an agent: a healthy one outside `avoided_proxies`, if any.

    The agent's id decides between several, so that the load is spread over them.
    """
    return min(
        _relay_proxies(agent, proxies),
        key=lambda proxy: (
            proxy in avoided_proxies,
            not proxies[proxy].is_usable,
            crc32(f"{proxy} {agent_id}".encode()),
            proxy,
        ),
    )


def decide_agent_outcome(
    abandoned_auth: str,
    requested_at: float,
    agent: AgentSnapshot | None,
    auths: Mapping[str, AuthSnapshot],
    settings: CampaignSettings,
    now: float,
) -> AgentOutcome | None:
    """Return the result of an agent that Refloat asked to leave an auth; None while there is none."""
    if agent is not None and agent.auth and agent.auth != abandoned_auth:
        return AgentOutcome(CampaignAgentState.SUCCEEDED, new_auth=agent.auth)
    if now - requested_at < settings.timeout_seconds:
        return None
    if agent is None:
        return AgentOutcome(CampaignAgentState.FAILED, "the agent is no longer in the fleet")
    name = auths[abandoned_auth].name if abandoned_auth in auths else abandoned_auth
    return AgentOutcome(
        CampaignAgentState.FAILED,
        f"timed out: the agent sent no heartbeat through an auth other than {name} within {settings.timeout_seconds} s",
    )


def _relay_proxies(agent: AgentSnapshot, proxies: Mapping[str, ProxySnapshot]) -> list[str]:
    return [proxy for proxy in agent.proxies if proxy in proxies and proxies[proxy].is_reachable]
