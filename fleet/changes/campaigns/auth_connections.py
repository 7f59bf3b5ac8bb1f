"""A campaign that moves auth connections, as decisions: who may be asked, through which proxy, what became of whom.

The rest of a campaign is in campaign.py. RFD 226, "Periodic Auth Reconnects"; docs/campaigns.md. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zlib import crc32

from fleet.vocabulary.campaigns import AgentSnapshot, CampaignAgentState, AuthSnapshot, AgentOutcome, CampaignSettings, ProxySnapshot


def find_skip_reason(
    agent: AgentSnapshot | None,
    auths: Mapping[str, AuthSnapshot],
    proxies: Mapping[str, ProxySnapshot],
    auths_to_leave: Collection[str] = (),
) -> str:
    """Return why an agent is not asked, as it is now; empty when it may be. `leave`: auths to leave; empty: any."""
    if agent is None:
        return "it is not in the record any more"
    if agent.retired:
        return "it is retired"
    if not agent.auth:
        return "no heartbeat of it is known, and so no auth connection"
    if auths_to_leave and agent.auth not in auths_to_leave:
        name = auths[agent.auth].name if agent.auth in auths else agent.auth
        return f"it is connected to {name} already"
    if not any(auth.usable for instance_id, auth in auths.items() if instance_id != agent.auth):
        return "no other auth to go to: none that is well and takes connections"
    if not _relay_proxies(agent, proxies):
        return "it has no tunnel to a proxy that answers, through which to ask it"
    return ""


def choose_relay_proxy(
    agent: AgentSnapshot, proxies: Mapping[str, ProxySnapshot], agent_id: str, avoided_proxies: Collection[str] = ()
) -> str:
    """Return the proxy through which an agent is asked: one that is well if it can be, not one of `avoid` if it can be.

    Which of several follows from the agent's id, so that one proxy does not carry all of it.
    """
    return min(
        _relay_proxies(agent, proxies),
        key=lambda proxy: (
            proxy in avoided_proxies,
            not proxies[proxy].usable,
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
    """Return what became of an agent that was asked, by the record; None while that is not known."""
    if agent is not None and agent.auth and agent.auth != abandoned_auth:
        return AgentOutcome(CampaignAgentState.OK, new_auth=agent.auth)
    if now - requested_at < settings.patience:
        return None
    if agent is None:
        return AgentOutcome(CampaignAgentState.FAILED, "it is not in the record any more")
    name = auths[abandoned_auth].name if abandoned_auth in auths else abandoned_auth
    return AgentOutcome(
        CampaignAgentState.FAILED, f"no heartbeat through another auth than {name} within {settings.patience} s"
    )


def _relay_proxies(agent: AgentSnapshot, proxies: Mapping[str, ProxySnapshot]) -> list[str]:
    return [proxy for proxy in agent.proxies if proxy in proxies and proxies[proxy].is_reachable]
