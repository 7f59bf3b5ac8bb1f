"""Targets of the path to auths through a proxy."""

from __future__ import annotations

from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.server_state import Peer


def test_agents_cannot_claim_the_targets_of_auths() -> None:
    """Other agents would take such an agent for an auth."""
    for target in auth_path.TARGETS:
        for name in ("", "_auth", "agent-1"):
            assert not agent_services.may_claim(Peer(name=name), target)
