"""Names of the way to auths."""

from __future__ import annotations

from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.server_state import Peer


def test_no_agent_can_claim_the_way_to_auths() -> None:
    """An agent that could would be what other agents take for an auth."""
    for target in auth_path.TARGETS:
        for name in ("", "_auth", "agent-1"):
            assert not agent_services.may_claim(Peer(name=name), target)
