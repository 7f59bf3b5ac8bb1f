"""A campaign that moves auth connections, as decisions: who may be asked, through which proxy, what became of whom.

The rest of a campaign is in campaign.py. RFD 226, "Periodic Auth Reconnects"; docs/campaigns.md. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zlib import crc32

from fleet.vocabulary.campaigns import AgentSeen, AgentState, AuthSeen, Outcome, Pace, ProxySeen


def why_skip(
    agent: AgentSeen | None,
    auths: Mapping[str, AuthSeen],
    proxies: Mapping[str, ProxySeen],
    leave: Collection[str] = (),
) -> str:
    """Return why an agent is not asked, as it is now; empty when it may be. `leave`: auths to leave; empty: any."""
    if agent is None:
        return "it is not in the record any more"
    if agent.retired:
        return "it is retired"
    if not agent.auth:
        return "no heartbeat of it is known, and so no auth connection"
    if leave and agent.auth not in leave:
        name = auths[agent.auth].name if agent.auth in auths else agent.auth
        return f"it is connected to {name} already"
    if not any(auth.usable for instance_id, auth in auths.items() if instance_id != agent.auth):
        return "no other auth to go to: none that is well and takes connections"
    if not _messengers(agent, proxies):
        return "it has no tunnel to a proxy that answers, through which to ask it"
    return ""


def messenger(
    agent: AgentSeen, proxies: Mapping[str, ProxySeen], agent_id: str, avoid: Collection[str] = ()
) -> str:
    """Return the proxy through which an agent is asked: one that is well if it can be, not one of `avoid` if it can be.

    Which of several follows from the agent's id, so that one proxy does not carry all of it.
    """
    return min(
        _messengers(agent, proxies),
        key=lambda proxy: (
            proxy in avoid,
            not proxies[proxy].usable,
            crc32(f"{proxy} {agent_id}".encode()),
            proxy,
        ),
    )


def outcome(
    leaves: str,
    asked_at: float,
    agent: AgentSeen | None,
    auths: Mapping[str, AuthSeen],
    pace: Pace,
    now: float,
) -> Outcome | None:
    """Return what became of an agent that was asked, by the record; None while that is not known."""
    if agent is not None and agent.auth and agent.auth != leaves:
        return Outcome(AgentState.OK, new_auth=agent.auth)
    if now - asked_at < pace.patience:
        return None
    if agent is None:
        return Outcome(AgentState.FAILED, "it is not in the record any more")
    name = auths[leaves].name if leaves in auths else leaves
    return Outcome(
        AgentState.FAILED, f"no heartbeat through another auth than {name} within {pace.patience} s"
    )


def _messengers(agent: AgentSeen, proxies: Mapping[str, ProxySeen]) -> list[str]:
    return [proxy for proxy in agent.proxies if proxy in proxies and proxies[proxy].answers]
