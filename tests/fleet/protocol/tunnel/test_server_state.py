"""What a tunnel server decides, message by message."""

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
    Send,
    ServerState,
    TargetAdded,
    TargetRemoved,
)
from tests.fakes.tunnel_state import (
    GNMI,
    OTHER,
    SSH,
    add,
    client,
    nothing_is_left,
    refusal,
    state_01,
    state_02,
    told,
)

# -- the beginning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [True, False])
def test_connect_0_1_says_capabilities(handler: bool) -> None:
    """Unasked and at once: the other end does the same."""
    state = state_01(handler=handler)
    connection, effects = state.connect("a", Peer())

    assert effects == [Send(connection, Capabilities(handler))]
    assert state.connection("a") is connection


def test_connect_0_2_says_nothing() -> None:
    """There is no handshake."""
    assert state_02().connect("a", Peer())[1] == []


def test_connect_twice() -> None:
    """One Register stream a connection; the first goes on, and its end makes room."""
    state = state_02()
    first = client(state, "a")

    with pytest.raises(TunnelError, match="already has a Register stream"):
        state.connect("a", Peer())
    assert state.connection("a") is first
    state.disconnect(first)
    assert client(state, "a") is not first


def test_disconnect_twice_or_after_a_successor() -> None:
    """The end of a stream that is no more takes nothing from the one that has its place."""
    state = state_02()
    first = client(state, "a")
    state.disconnect(first)
    second = client(state, "a")
    add(state, second)

    assert state.disconnect(first) == []
    assert state.connection("a") is second
    assert state.owner(SSH) is second


@pytest.mark.parametrize(("ours", "theirs"), [(True, True), (True, False), (False, True)])
def test_capabilities_one_handler_is_enough(ours: bool, theirs: bool) -> None:
    """Either end may be the only one that serves."""
    state = state_01(handler=ours)
    connection, _ = state.connect("a", Peer())

    assert state.receive(connection, Capabilities(theirs), 0) == []
    assert connection.has_handler is theirs


def test_capabilities_no_handler_anywhere() -> None:
    """Two ends that both only ask have nothing to say to each other."""
    state = state_01(handler=False)
    connection, _ = state.connect("a", Peer())

    with pytest.raises(TunnelError, match="no handlers defined"):
        state.receive(connection, Capabilities(False), 0)


@pytest.mark.parametrize("message", [Session(-1, SSH), Session(0), Session(3, error="no")])
def test_capabilities_must_come_first(message: Message) -> None:
    """In 0.1 anything else ends the stream."""
    state = state_01()
    connection, _ = state.connect("a", Peer())

    with pytest.raises(TunnelError, match=r"first message of version 0\.1 must be capabilities"):
        state.receive(connection, message, 0)


def test_capabilities_once_more() -> None:
    """A second word about them changes nothing."""
    state = state_01()
    connection = client(state, "a", handler=False)

    assert state.receive(connection, Capabilities(True), 0) == []
    assert connection.has_handler is False


def test_empty_message_is_nothing() -> None:
    """0.2: an empty RegisterOp, which some send to keep a connection warm."""
    state = state_02()
    assert state.receive(client(state, "a"), None, 0) == []


# -- targets ---------------------------------------------------------------------------------------


def test_target_comes_and_goes() -> None:
    """The acknowledgement has accept and op 0, and those who watch hear of it after."""
    state = state_02()
    connection = client(state, "a")

    assert add(state, connection) == [
        Send(connection, Registration(Op.UNKNOWN, SSH, accept=True)),
        TargetAdded(SSH, connection),
    ]
    assert state.targets() == {SSH: connection}
    assert state.receive(connection, Registration(Op.REMOVE, SSH), 0) == [
        Send(connection, Registration(Op.UNKNOWN, SSH, accept=True)),
        TargetRemoved(SSH, connection),
    ]
    nothing_is_left(state, connection)


def test_target_types_are_apart() -> None:
    """A name under two types is two targets, of two clients if they like."""
    state = state_02()
    first, second = client(state, "a"), client(state, "b")
    add(state, first, SSH)
    add(state, second, GNMI)

    assert (state.owner(SSH), state.owner(GNMI)) == (first, second)


def test_target_refused() -> None:
    """Each refusal says why, to who asked, and changes nothing."""
    limits = Limits(max_targets=2)
    state = state_02(
        handler=True, local=frozenset((OTHER,)), may_claim=lambda _, t: t.name != "bank", limits=limits
    )
    first, second = client(state, "a"), client(state, "b")
    named = client(state, "c", Peer(identity=("r9.example", "r9")))
    add(state, first)
    bank = Target("bank", "SSH")

    assert refusal(add(state, first)) == "target router-7 (SSH) is already registered by this client"
    assert refusal(add(state, second)) == "target router-7 (SSH) is already registered by another client"
    assert (
        refusal(add(state, second, OTHER))
        == "target router-8 (SSH) is reserved: it is a target of this server"
    )
    assert refusal(add(state, second, Target(""))) == "a target must have a name"
    assert refusal(add(state, second, bank)).endswith(
        "may not be registered by a client without a certificate"
    )
    assert refusal(add(state, named, bank)).endswith("may not be registered by r9.example or r9")
    add(state, first, GNMI)
    assert refusal(add(state, first, Target("x"))) == "target x: this client has the maximum of 2 targets"
    assert state.targets() == {SSH: first, GNMI: first}


@pytest.mark.parametrize("op", [Op.REMOVE, Op.UNKNOWN])
def test_target_neither_here_nor_known(op: Op) -> None:
    """Removing what another holds, or an operation that is none: an error, and the other keeps it."""
    state = state_02()
    first, second = client(state, "a"), client(state, "b")
    add(state, first)

    assert "router-7 (SSH)" in refusal(state.receive(second, Registration(op, SSH), 0))
    assert state.owner(SSH) is first


def test_targets_go_with_their_client() -> None:
    """Whatever ended it."""
    state = state_02()
    connection = client(state, "a")
    add(state, connection, SSH)
    add(state, connection, GNMI)

    assert state.disconnect(connection) == [TargetRemoved(GNMI, connection), TargetRemoved(SSH, connection)]
    nothing_is_left(state, connection)


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
    """Whose clock went back meanwhile has a lower generation: of silence it displaces itself, and nobody else."""
    same = replaces or ((old.identity, old.name) == (new.identity, new.name) and bool(old.name))
    assert new.replaces(old, silent=True) is same
    silent: list[ClientConnection] = []
    state = ServerState(WireVersion.V0_2, is_silent=silent.__contains__)
    stale, fresh = client(state, "a", old), client(state, "b", new)
    silent.append(stale)
    add(state, stale)
    add(state, fresh)
    assert state.owner(SSH) is (fresh if same else stale)


@DISPLACEMENTS
def test_displacement(old: Peer, new: Peer, replaces: bool) -> None:
    """A client that came back takes its targets from its stale self; nobody else does."""
    assert new.replaces(old) is replaces
    state = state_02()
    stale, fresh = client(state, "a", old), client(state, "b", new)
    add(state, stale)
    effects = add(state, fresh)

    assert state.owner(SSH) is (fresh if replaces else stale)
    if replaces:
        assert effects == [
            TargetRemoved(SSH, stale),
            Send(fresh, Registration(Op.UNKNOWN, SSH, accept=True)),
            TargetAdded(SSH, fresh),
        ]
        assert state.disconnect(stale) == []  # it takes nothing with it
        assert state.owner(SSH) is fresh


def test_displacement_of_someone_at_the_limit() -> None:
    """What the stale one holds does not count against who takes it over."""
    state = state_02(limits=Limits(max_targets=1))
    stale, fresh = client(state, "a", Peer((), "r7", 1)), client(state, "b", Peer((), "r7", 2))
    add(state, stale)
    add(state, fresh)

    assert state.owner(SSH) is fresh


# -- subscriptions ---------------------------------------------------------------------------------


def subscribe(
    state: ServerState, connection: ClientConnection, kind: str = "", op: Op = Op.ADD
) -> list[Message]:
    return told(state.receive(connection, Subscription(op, kind), 0), connection)


def test_subscription_lists_then_accepts() -> None:
    """First what is there, but for one's own; then the word that it was all; then what comes and goes."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    for target in (SSH, GNMI):
        add(state, owner, target)
    add(state, watcher, OTHER)

    assert subscribe(state, watcher, "SSH") == [
        Registration(Op.ADD, SSH),
        Subscription(Op.ADD, "SSH", accept=True),
    ]
    assert told(state.receive(owner, Registration(Op.REMOVE, SSH), 0), watcher) == [
        Registration(Op.REMOVE, SSH)
    ]
    assert told(state.receive(owner, Registration(Op.REMOVE, GNMI), 0), watcher) == []
    assert told(add(state, owner), watcher) == [Registration(Op.ADD, SSH)]
    assert told(state.disconnect(owner), watcher) == [Registration(Op.REMOVE, SSH)]


def test_subscription_before_any_target_exists() -> None:
    """It is for targets to come as much as for those that are there."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")

    assert subscribe(state, watcher, "GNMI") == [Subscription(Op.ADD, "GNMI", accept=True)]
    assert told(add(state, owner, GNMI), watcher) == [Registration(Op.ADD, GNMI)]


def test_subscription_to_all_and_to_one_type() -> None:
    """Two subscriptions that both match tell the news once; ending one leaves the other."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    subscribe(state, watcher)
    subscribe(state, watcher, "SSH")

    assert told(add(state, owner), watcher) == [Registration(Op.ADD, SSH)]
    assert subscribe(state, watcher, "", Op.REMOVE) == [Subscription(Op.REMOVE, "", accept=True)]
    assert told(add(state, owner, GNMI), watcher) == []
    assert told(add(state, owner, OTHER), watcher) == [Registration(Op.ADD, OTHER)]


def test_subscriptions_of_one_client_are_bounded() -> None:
    """As its targets are; one that it ends makes room."""
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
    """Letting go of a target of one's own ends no subscription."""
    state = state_02(bridge=True)
    owner, watcher = client(state, "a"), client(state, "b")
    subscribe(state, watcher)
    add(state, watcher, OTHER)
    state.receive(watcher, Registration(Op.REMOVE, OTHER), 0)

    assert told(add(state, owner), watcher) == [Registration(Op.ADD, SSH)]


def test_subscription_twice() -> None:
    """The list again, and an error; the first one stands."""
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


def test_subscription_refused() -> None:
    """An operation that is none."""
    state = state_02(bridge=True)
    (message,) = subscribe(state, client(state, "a"), "", Op.UNKNOWN)
    assert message == Subscription(Op.UNKNOWN, "", error="the operation must be SUBSCRIBE or UNSUBSCRIBE")


def test_subscription_where_clients_are_kept_apart() -> None:
    """It is accepted, for a refusal would end a client of Go's; nothing is told of others, before or after it."""
    state = state_02(local=frozenset({GNMI}), handler=True)
    watcher = client(state, "a")
    add(state, client(state, "b"))
    assert subscribe(state, watcher) == [Registration(Op.ADD, GNMI), Subscription(Op.ADD, "", accept=True)]
    assert told(add(state, client(state, "c"), OTHER), watcher) == []


def test_subscription_lists_targets_of_the_server_itself() -> None:
    """They can be asked for like others', so they are told of like them, by their type."""
    state = state_02(local=frozenset({GNMI, OTHER}), handler=True, bridge=True)
    watcher = client(state, "a")
    add(state, client(state, "b"))
    assert subscribe(state, watcher, "SSH") == [
        Registration(Op.ADD, SSH),
        Registration(Op.ADD, OTHER),
        Subscription(Op.ADD, "SSH", accept=True),
    ]
    assert subscribe(state, watcher, "GNMI")[0] == Registration(Op.ADD, GNMI)


def test_unsubscribe_without_subscription() -> None:
    """Always acknowledged, as elsewhere."""
    state = state_02(bridge=True)
    assert subscribe(state, client(state, "a"), "X", Op.REMOVE) == [Subscription(Op.REMOVE, "X", accept=True)]


def test_displacement_is_news() -> None:
    """Subscribers hear that the target went and came; its new owner's client skips its own."""
    state = state_02(bridge=True)
    stale, fresh = client(state, "a", Peer((), "r7", 1)), client(state, "b", Peer((), "r7", 2))
    watcher = client(state, "c")
    add(state, stale)
    subscribe(state, watcher)

    assert told(add(state, fresh), watcher) == [Registration(Op.REMOVE, SSH), Registration(Op.ADD, SSH)]
