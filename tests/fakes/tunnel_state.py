"""Build a tunnel server's state machine and its clients, and read the effects that it returns."""

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
from fleet.protocol.tunnel.server_state import (
    ClientConnection,
    Effect,
    Limits,
    Peer,
    SendToClient,
    ServerState,
)

SSH = Target("router-7", "SSH")
GNMI = Target("router-7", "GNMI")
OTHER_SSH = Target("router-8", "SSH")


def state_01(*, handler: bool = True, **limits: int) -> ServerState:
    return ServerState(WireVersion.V0_1, has_handler=handler, limits=Limits(**limits))


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
    """Return a connected client; a client of version 0.1 has sent its capabilities."""
    connection, effects = state.connect(key, peer or Peer())
    if effects:
        state.receive(connection, Capabilities(handler), 0)
    return connection


def add(state: ServerState, connection: ClientConnection, target: Target = SSH) -> list[Effect]:
    return state.receive(connection, Registration(Op.ADD, target), 0)


def messages_to(effects: list[Effect], to: ClientConnection) -> list[Message]:
    return [
        effect.message for effect in effects if isinstance(effect, SendToClient) and effect.connection is to
    ]


def refusal(effects: list[Effect]) -> str:
    """Return the error of the only message that was sent."""
    (effect,) = effects
    assert isinstance(effect, SendToClient)
    assert isinstance(effect.message, (Registration, Session, Subscription))
    assert not effect.message.accept
    return effect.message.error


def assert_empty(state: ServerState, *connections: ClientConnection) -> None:
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
