"""Decisions of a tunnel server, message by message."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.messages import (
    Capabilities,
    Message,
    Op,
    Registration,
    Session,
    Subscription,
    Target,
    TunnelError,
    WireVersion,
)
from fleet.protocol.tunnel.server_state import (
    ClientConnection,
    Limits,
    Peer,
    SendToClient,
    ServerState,
    TargetAdded,
    TargetRemoved,
)
from tests.fakes.tunnel_state import (
    GNMI,
    OTHER_SSH,
    SSH,
    add,
    assert_empty,
    client,
    messages_to,
    refusal,
    state_01,
    state_02,
)

# -- start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [True, False])
def test_connect_0_1_sends_capabilities(handler: bool) -> None:
    """The server sends them without waiting for the client's."""
    state = state_01(handler=handler)
    connection, effects = state.connect("a", Peer())

    assert effects == [SendToClient(connection, Capabilities(handler))]
    assert state.connection("a") is connection


def test_connect_0_2_sends_nothing() -> None:
    """Version 0.2 has no handshake."""
    assert state_02().connect("a", Peer())[1] == []


def test_second_register_stream_is_refused() -> None:
    """The first stream continues; after its end another one is accepted."""
    state = state_02()
    first = client(state, "a")

    with pytest.raises(TunnelError, match="already has a Register stream"):
        state.connect("a", Peer())
    assert state.connection("a") is first
    state.disconnect(first)
    assert client(state, "a") is not first


def test_disconnect_twice_or_after_a_successor() -> None:
    """The end of an old stream does not affect its successor."""
    state = state_02()
    first = client(state, "a")
    state.disconnect(first)
    second = client(state, "a")
    add(state, second)

    assert state.disconnect(first) == []
    assert state.connection("a") is second
    assert state.owner_of(SSH) is second


@pytest.mark.parametrize(
    ("has_server_handler", "has_client_handler"), [(True, True), (True, False), (False, True)]
)
def test_capabilities_with_one_handler_are_enough(has_server_handler: bool, has_client_handler: bool) -> None:
    """Either end may be the only one with a handler."""
    state = state_01(handler=has_server_handler)
    connection, _ = state.connect("a", Peer())

    assert state.receive(connection, Capabilities(has_client_handler), 0) == []
    assert connection.has_handler is has_client_handler


def test_capabilities_without_any_handler_end_the_stream() -> None:
    """Without a handler neither end can serve a session."""
    state = state_01(handler=False)
    connection, _ = state.connect("a", Peer())

    with pytest.raises(TunnelError, match="no handlers defined"):
        state.receive(connection, Capabilities(False), 0)


@pytest.mark.parametrize("message", [Session(-1, SSH), Session(0), Session(3, error="no")])
def test_capabilities_must_come_first(message: Message) -> None:
    """In version 0.1 any other first message ends the stream."""
    state = state_01()
    connection, _ = state.connect("a", Peer())

    with pytest.raises(TunnelError, match=r"first message of version 0\.1 must be capabilities"):
        state.receive(connection, message, 0)


def test_repeated_capabilities_are_ignored() -> None:
    state = state_01()
    connection = client(state, "a", handler=False)

    assert state.receive(connection, Capabilities(True), 0) == []
    assert connection.has_handler is False


def test_empty_message_is_ignored() -> None:
    """Some clients of version 0.2 send empty RegisterOps as keep-alives."""
    state = state_02()
    assert state.receive(client(state, "a"), None, 0) == []


# -- targets ---------------------------------------------------------------------------------------


def test_target_is_added_and_removed() -> None:
    """The response has accept and operation 0; the change follows it."""
    state = state_02()
    connection = client(state, "a")

    assert add(state, connection) == [
        SendToClient(connection, Registration(Op.UNKNOWN, SSH, accept=True)),
        TargetAdded(SSH, connection),
    ]
    assert state.targets() == {SSH: connection}
    assert state.receive(connection, Registration(Op.REMOVE, SSH), 0) == [
        SendToClient(connection, Registration(Op.UNKNOWN, SSH, accept=True)),
        TargetRemoved(SSH, connection),
    ]
    assert_empty(state, connection)


def test_targets_of_two_types_are_independent() -> None:
    """A name with two types is two targets, which two clients may own."""
    state = state_02()
    first, second = client(state, "a"), client(state, "b")
    add(state, first, SSH)
    add(state, second, GNMI)

    assert (state.owner_of(SSH), state.owner_of(GNMI)) == (first, second)


def test_target_is_refused_with_a_reason() -> None:
    """A refusal changes nothing."""
    limits = Limits(max_targets=2)
    state = state_02(
        handler=True, local=frozenset((OTHER_SSH,)), may_claim=lambda _, t: t.name != "bank", limits=limits
    )
    first, second = client(state, "a"), client(state, "b")
    named_client = client(state, "c", Peer(identity=("r9.example", "r9")))
    add(state, first)
    bank = Target("bank", "SSH")

    assert refusal(add(state, first)) == "target router-7 (SSH) is already registered by this client"
    assert refusal(add(state, second)) == "target router-7 (SSH) is already registered by another client"
    assert (
        refusal(add(state, second, OTHER_SSH))
        == "target router-8 (SSH) is reserved: it is a target of this server"
    )
    assert refusal(add(state, second, Target(""))) == "a target must have a name"
    assert refusal(add(state, second, bank)).endswith(
        "may not be registered by a client without a certificate"
    )
    assert refusal(add(state, named_client, bank)).endswith("may not be registered by r9.example or r9")
    add(state, first, GNMI)
    assert refusal(add(state, first, Target("x"))) == "target x: this client has the maximum of 2 targets"
    assert state.targets() == {SSH: first, GNMI: first}


@pytest.mark.parametrize("op", [Op.REMOVE, Op.UNKNOWN])
def test_target_of_another_client_cannot_be_removed(op: Op) -> None:
    """An unknown operation is an error, too; the owner keeps the target."""
    state = state_02()
    first, second = client(state, "a"), client(state, "b")
    add(state, first)

    assert "router-7 (SSH)" in refusal(state.receive(second, Registration(op, SSH), 0))
    assert state.owner_of(SSH) is first


def test_targets_are_removed_with_their_client() -> None:
    state = state_02()
    connection = client(state, "a")
    add(state, connection, SSH)
    add(state, connection, GNMI)

    assert state.disconnect(connection) == [TargetRemoved(GNMI, connection), TargetRemoved(SSH, connection)]
    assert_empty(state, connection)


CERTIFICATE = ("r7.example",)


DISPLACEMENTS = pytest.mark.parametrize(
    ("old", "new", "replaces"),
    [
        (Peer(), Peer(), False),
        (Peer(CERTIFICATE), Peer(CERTIFICATE), True),
        (Peer(CERTIFICATE), Peer(), False),
        (Peer(), Peer(CERTIFICATE), False),
        (Peer(CERTIFICATE), Peer(("r8.example",)), False),
        (Peer(CERTIFICATE, "r7", 1), Peer(CERTIFICATE, "r7", 2), True),
        (Peer(CERTIFICATE, "r7", 2), Peer(CERTIFICATE, "r7", 1), False),
        (Peer(CERTIFICATE, "r7", 2), Peer(CERTIFICATE, "r7", 2), False),
        (Peer(CERTIFICATE, "r7", 1), Peer(("r8.example",), "r7", 2), False),
        (Peer(CERTIFICATE, "r7", 1), Peer((), "r7", 2), False),
        (Peer((), "r7", 1), Peer((), "r7", 2), True),
        (Peer((), "r7", 1), Peer((), "r8", 2), False),
        (Peer((), "r7", 1), Peer((), "", 2), False),
        (Peer((), "", 1), Peer((), "", 2), False),
    ],
)


@DISPLACEMENTS
def test_displacement_of_a_silent_client(old: Peer, new: Peer, replaces: bool) -> None:
    """A client whose clock went back has a lower generation: it still displaces its own silent connection."""
    is_displaced = replaces or ((old.identity, old.name) == (new.identity, new.name) and bool(old.name))
    assert new.replaces(old, silent=True) is is_displaced
    silent: list[ClientConnection] = []
    state = ServerState(WireVersion.V0_2, is_silent=silent.__contains__)
    stale, fresh = client(state, "a", old), client(state, "b", new)
    silent.append(stale)
    add(state, stale)
    add(state, fresh)
    assert state.owner_of(SSH) is (fresh if is_displaced else stale)


@DISPLACEMENTS
def test_displacement(old: Peer, new: Peer, replaces: bool) -> None:
    """A client that reconnected takes its targets from its stale connection; other clients cannot."""
    assert new.replaces(old) is replaces
    state = state_02()
    stale, fresh = client(state, "a", old), client(state, "b", new)
    add(state, stale)
    effects = add(state, fresh)

    assert state.owner_of(SSH) is (fresh if replaces else stale)
    if replaces:
        assert effects == [
            TargetRemoved(SSH, stale),
            SendToClient(fresh, Registration(Op.UNKNOWN, SSH, accept=True)),
            TargetAdded(SSH, fresh),
        ]
        assert state.disconnect(stale) == []  # it takes nothing with it
        assert state.owner_of(SSH) is fresh


def test_displacement_at_the_target_limit() -> None:
    """Targets of the stale connection do not count for the new one."""
    state = state_02(limits=Limits(max_targets=1))
    stale, fresh = client(state, "a", Peer((), "r7", 1)), client(state, "b", Peer((), "r7", 2))
    add(state, stale)
    add(state, fresh)

    assert state.owner_of(SSH) is fresh


# -- subscriptions ---------------------------------------------------------------------------------


def subscribe(
    state: ServerState, connection: ClientConnection, kind: str = "", op: Op = Op.ADD
) -> list[Message]:
    return messages_to(state.receive(connection, Subscription(op, kind), 0), connection)


def test_subscription_lists_then_accepts() -> None:
    """First come existing targets of others, then the acceptance, then changes."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    for target in (SSH, GNMI):
        add(state, owner, target)
    add(state, watcher, OTHER_SSH)

    assert subscribe(state, watcher, "SSH") == [
        Registration(Op.ADD, SSH),
        Subscription(Op.ADD, "SSH", accept=True),
    ]
    assert messages_to(state.receive(owner, Registration(Op.REMOVE, SSH), 0), watcher) == [
        Registration(Op.REMOVE, SSH)
    ]
    assert messages_to(state.receive(owner, Registration(Op.REMOVE, GNMI), 0), watcher) == []
    assert messages_to(add(state, owner), watcher) == [Registration(Op.ADD, SSH)]
    assert messages_to(state.disconnect(owner), watcher) == [Registration(Op.REMOVE, SSH)]


def test_subscription_reports_later_targets() -> None:
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")

    assert subscribe(state, watcher, "GNMI") == [Subscription(Op.ADD, "GNMI", accept=True)]
    assert messages_to(add(state, owner, GNMI), watcher) == [Registration(Op.ADD, GNMI)]


def test_subscription_to_all_and_to_one_type() -> None:
    """A change that matches both is sent once; ending one keeps the other."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    subscribe(state, watcher)
    subscribe(state, watcher, "SSH")

    assert messages_to(add(state, owner), watcher) == [Registration(Op.ADD, SSH)]
    assert subscribe(state, watcher, "", Op.REMOVE) == [Subscription(Op.REMOVE, "", accept=True)]
    assert messages_to(add(state, owner, GNMI), watcher) == []
    assert messages_to(add(state, owner, OTHER_SSH), watcher) == [Registration(Op.ADD, OTHER_SSH)]


def test_subscriptions_of_a_client_have_a_limit() -> None:
    """Ending one makes room."""
    state = state_02(bridge=True, limits=Limits(max_targets=2))
    watcher = client(state, "a")
    for kind in ("a", "b"):
        subscribe(state, watcher, kind)

    assert subscribe(state, watcher, "c") == [
        Subscription(Op.ADD, "c", error="this client has reached the maximum of 2 subscriptions")
    ]
    subscribe(state, watcher, "a", Op.REMOVE)
    assert subscribe(state, watcher, "c") == [Subscription(Op.ADD, "c", accept=True)]


def test_subscription_survives_its_own_targets() -> None:
    """Removing an own target ends no subscription."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    subscribe(state, watcher)
    add(state, watcher, OTHER_SSH)
    state.receive(watcher, Registration(Op.REMOVE, OTHER_SSH), 0)

    assert messages_to(add(state, owner), watcher) == [Registration(Op.ADD, SSH)]


def test_second_subscription_to_a_type_is_refused() -> None:
    """The list is sent again with an error; the first subscription stays."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    add(state, owner)
    subscribe(state, watcher)

    assert subscribe(state, watcher) == [
        Registration(Op.ADD, SSH),
        Subscription(Op.ADD, "", error="this client is already subscribed to all types"),
    ]
    assert subscribe(state, watcher, "SSH")[-1] == Subscription(Op.ADD, "SSH", accept=True)
    assert subscribe(state, watcher, "SSH")[-1] == Subscription(
        Op.ADD, "SSH", error="this client is already subscribed to SSH"
    )


def test_subscription_with_an_unknown_operation_is_refused() -> None:
    state = state_02(bridge=True)
    (message,) = subscribe(state, client(state, "a"), "", Op.UNKNOWN)
    assert message == Subscription(Op.UNKNOWN, "", error="the operation must be SUBSCRIBE or UNSUBSCRIBE")


def test_subscription_without_bridge_shows_no_clients() -> None:
    """It is accepted, as a refusal would end a Go client; targets of others are never sent."""
    state = state_02(local=frozenset({GNMI}), handler=True)
    watcher = client(state, "a")
    add(state, client(state, "b"))
    assert subscribe(state, watcher) == [Registration(Op.ADD, GNMI), Subscription(Op.ADD, "", accept=True)]
    assert messages_to(add(state, client(state, "c"), OTHER_SSH), watcher) == []


def test_subscription_lists_the_servers_targets() -> None:
    """Clients can open them like any other target."""
    state = state_02(local=frozenset({GNMI, OTHER_SSH}), handler=True, bridge=True)
    watcher = client(state, "a")
    add(state, client(state, "b"))
    assert subscribe(state, watcher, "SSH") == [
        Registration(Op.ADD, SSH),
        Registration(Op.ADD, OTHER_SSH),
        Subscription(Op.ADD, "SSH", accept=True),
    ]
    assert subscribe(state, watcher, "GNMI")[0] == Registration(Op.ADD, GNMI)


def test_unsubscribe_without_subscription_is_accepted() -> None:
    state = state_02(bridge=True)
    assert subscribe(state, client(state, "a"), "X", Op.REMOVE) == [Subscription(Op.REMOVE, "X", accept=True)]


def test_displacement_is_sent_to_subscribers() -> None:
    """Subscribers get a removal and an addition; the new owner gets neither."""
    state = state_02(bridge=True)
    stale, fresh = client(state, "a", Peer((), "r7", 1)), client(state, "b", Peer((), "r7", 2))
    watcher = client(state, "c")
    add(state, stale)
    subscribe(state, watcher)

    assert messages_to(add(state, fresh), watcher) == [
        Registration(Op.REMOVE, SSH),
        Registration(Op.ADD, SSH),
    ]
