"""Short words for what is said to a tunnel server's state, and what it says."""

from __future__ import annotations

from collections.abc import Callable

from fleet.protocol.tunnel.messages import (
    Capabilities,
    Message,
    Op,
    Registration,
    Session,
    Subscription,
    Target,
    WireVersion,
)
from fleet.protocol.tunnel.server_state import ClientConnection, Effect, Limits, Peer, Send, ServerState

SSH = Target("router-7", "SSH")
GNMI = Target("router-7", "GNMI")
OTHER = Target("router-8", "SSH")


def state_01(*, handler: bool = True, **more: int) -> ServerState:
    return ServerState(WireVersion.V0_1, has_handler=handler, limits=Limits(**more))


def state_02(
    *,
    handler: bool = False,
    local: frozenset[Target] | None = frozenset(),
    bridge: bool = False,
    may_claim: Callable[[Peer, Target], bool] | None = None,
    limits: Limits | None = None,
) -> ServerState:
    return ServerState(
        WireVersion.V0_2, has_handler=handler, local=local, bridge=bridge, may_claim=may_claim, limits=limits
    )


def client(state: ServerState, key: str, peer: Peer | None = None, handler: bool = True) -> ClientConnection:
    """A connected client; of version 0.1 it said its capabilities."""
    connection, effects = state.connect(key, peer or Peer())
    if effects:
        state.receive(connection, Capabilities(handler), 0)
    return connection


def add(state: ServerState, connection: ClientConnection, target: Target = SSH) -> list[Effect]:
    return state.receive(connection, Registration(Op.ADD, target), 0)


def told(effects: list[Effect], to: ClientConnection) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Send) and effect.to is to]


def refusal(effects: list[Effect]) -> str:
    """The error in the one message that was sent."""
    (effect,) = effects
    assert isinstance(effect, Send)
    assert isinstance(effect.message, (Registration, Session, Subscription))
    assert not effect.message.accept
    return effect.message.error


def nothing_is_left(state: ServerState, *connections: ClientConnection) -> None:
    assert state.wake_at() is None
    assert not state._deadlines
    assert not state.targets()
    for connection in connections:
        assert [
            connection.outgoing_requests,
            connection.incoming_requests,
            connection.open_tags,
            connection.targets,
        ] == [
            {},
            {},
            set(),
            set(),
        ]
