"""Sessions that a tunnel server asks for, is asked for, and bridges: message by message."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.messages import LAST_TAG, Session, Target, TunnelError
from fleet.protocol.tunnel.server_state import (
    AskHandler,
    ClientConnection,
    Effect,
    Limits,
    Peer,
    RequestFailed,
    Send,
    ServerRequest,
    ServerState,
    TargetRemoved,
)
from tests.fakes.tunnel_state import (
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

# -- sessions that the server wants ----------------------------------------------------------------


def test_open_0_2_asks_the_owner() -> None:
    """The request carries accept and the pair; the client accepts by its stream."""
    state = state_02()
    owner, bystander = client(state, "a"), client(state, "b")
    add(state, owner)
    request, effects = state.open(SSH, 0)

    assert effects == [Send(owner, Session(1, SSH, accept=True))]
    assert not bystander.outgoing_requests
    assert state.attach(owner, 1) is request
    assert owner.open_tags == {1}
    state.detach(owner, 1)
    state.disconnect(owner)
    nothing_is_left(state, owner)


def test_open_tags_grow() -> None:
    """Many sessions to one target, each by a tag of its own."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    requests = [state.open(SSH, 0)[0] for _ in range(3)]

    assert list(owner.outgoing_requests) == [1, 2, 3]
    assert state.attach(owner, 2) is requests[1]
    assert list(owner.outgoing_requests) == [1, 3]


def test_open_nobody_to_ask() -> None:
    """Each reason in a sentence."""
    state = state_02()
    gone = client(state, "a")
    with pytest.raises(TunnelError, match=r"target router-7 \(SSH\) is not registered"):
        state.open(SSH, 0)
    state.disconnect(gone)
    with pytest.raises(TunnelError, match="this client is not connected"):
        state.open(SSH, 0, to=gone)

    state = state_01()
    with pytest.raises(TunnelError, match="no client with a handler is connected"):
        state.open(Target("x"), 0)
    mute = client(state, "a", handler=False)
    with pytest.raises(TunnelError, match="no client with a handler is connected"):
        state.open(Target("x"), 0)
    with pytest.raises(TunnelError, match="this client has no handler"):
        state.open(Target("x"), 0, to=mute)
    silent, _ = state.connect("b", Peer())
    with pytest.raises(TunnelError, match="this client has no handler"):
        state.open(Target("x"), 0, to=silent)


def test_open_to_one_client_whatever_it_registered() -> None:
    """Whoever names the client need not name a registered target."""
    state = state_02()
    first, second = client(state, "a"), client(state, "b")
    add(state, first)

    assert state.open(SSH, 0, to=second)[1] == [Send(second, Session(1, SSH, accept=True))]


def test_open_refused_by_the_client() -> None:
    """Only the caller hears of it; the client and its other sessions go on."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    first, second = state.open(SSH, 0)[0], state.open(SSH, 0)[0]

    (failure,) = state.receive(owner, Session(1, SSH, error="sshd is down"), 0)
    assert failure == RequestFailed(first, "sshd is down")
    assert state.attach(owner, 2) is second
    with pytest.raises(TunnelError, match="no session on this connection waits for tag 1"):
        state.attach(owner, 1)


def test_open_broadcast_first_wins() -> None:
    """0.1 without a client named: all with a handler are asked, the first stream is it, the rest are refused."""
    state = state_01()
    clients = [client(state, key) for key in "abc"]
    client(state, "d", handler=False)
    request, effects = state.open(Target("x"), 0)

    assert effects == [Send(each, Session(1, Target("x"), accept=True)) for each in clients]
    assert state.receive(clients[0], Session(1, error="not mine"), 0) == []
    assert state.attach(clients[2], 1) is request
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach(clients[1], 1)
    assert state.receive(clients[1], Session(1, error="late"), 0) == []
    assert state.expire(1_000) == []


def test_open_broadcast_all_refuse() -> None:
    """The caller is told every reason, once the last has refused."""
    state = state_01()
    first, second = client(state, "a"), client(state, "b")
    request, _ = state.open(Target("x"), 0)

    assert state.receive(second, Session(1, error="not mine"), 0) == []
    assert state.disconnect(first) == [RequestFailed(request, "not mine; the client disconnected")]


def test_open_broadcast_tags_differ() -> None:
    """Clients that were asked for different numbers of sessions have different tags for this one."""
    state = state_01()
    first = client(state, "a")
    state.open(Target("x"), 0)
    second = client(state, "b")
    request, _ = state.open(Target("y"), 0)

    assert request.pending_tags == {first: 2, second: 1}
    assert state.attach(second, 1) is request
    assert list(first.outgoing_requests) == [1]


def test_open_owner_vanishes() -> None:
    """Nobody is left to wait for a client that is gone."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    request, _ = state.open(SSH, 0)

    failure = RequestFailed(request, "the client disconnected")
    assert state.disconnect(owner) == [TargetRemoved(SSH, owner), failure]
    nothing_is_left(state, owner)


def test_open_in_time_only() -> None:
    """A client that never opens the stream costs its caller the set-up time, and nobody else."""
    state = state_02(limits=Limits(set_up_within=10))
    owner = client(state, "a")
    add(state, owner)
    first, second = state.open(SSH, 100)[0], state.open(SSH, 103)[0]

    assert state.wake_at() == 110
    assert state.expire(109.9) == []
    assert state.expire(110) == [RequestFailed(first, "the client did not open the stream in time")]
    assert state.wake_at() == 113
    assert state.attach(owner, 2) is second
    assert state.wake_at() is None
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach(owner, 1)


def test_open_abandoned() -> None:
    """A caller that gave up: its stream is refused, a late refusal disturbs nobody."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    request, _ = state.open(SSH, 0)
    state.abandon(request)
    state.abandon(request)

    assert state.wake_at() is None
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach(owner, 1)
    assert state.receive(owner, Session(1, error="late"), 0) == []


def test_open_too_many() -> None:
    """The bound is a client's own: one full client leaves the others free, and room comes back."""
    state = state_01(max_pending=2)
    first, second = client(state, "a"), client(state, "b")
    for _ in range(2):
        state.open(Target("x"), 0, to=first)

    with pytest.raises(TunnelError, match="too many sessions are being set up with this client"):
        state.open(Target("x"), 0, to=first)
    assert list(state.open(Target("x"), 0)[0].pending_tags) == [second]
    state.attach(first, 1)
    assert state.open(Target("x"), 0, to=first)[1] == [Send(first, Session(3, Target("x"), accept=True))]


def test_open_tags_used_up() -> None:
    """A connection without tags is passed over; alone, it is the caller's error, and nothing is left of it."""
    state = state_01()
    first = client(state, "a")
    used = client(state, "b")
    used.tags._last = LAST_TAG

    request, effects = state.open(Target("x"), 0)
    assert [effect.to for effect in effects if isinstance(effect, Send)] == [first]
    state.abandon(request)
    with pytest.raises(TunnelError, match="used up its tags"):
        state.open(Target("x"), 0, to=used)
    assert state.wake_at() is None


@pytest.mark.parametrize("tag", [0, 1, 7, -1])
def test_attach_without_a_session(tag: int) -> None:
    """A stream nobody asked for."""
    state = state_02()
    with pytest.raises(TunnelError, match=f"no session on this connection waits for tag {tag}"):
        state.attach(client(state, "a"), tag)


def test_attach_twice_or_elsewhere() -> None:
    """A tag is good for one stream of one connection."""
    state = state_01()
    first, second = client(state, "a"), client(state, "b")
    state.open(Target("x"), 0, to=first)

    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach(second, 1)
    state.attach(first, 1)
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach(first, 1)


# -- sessions that a client wants ------------------------------------------------------------------


def ask(
    state: ServerState, connection: ClientConnection, tag: int, target: Target = SSH, now: float = 0
) -> list[Effect]:
    return state.receive(connection, Session(tag, target), now)


@pytest.mark.parametrize("local", [None, frozenset((SSH,))])
def test_asked_and_taken(local: frozenset[Target] | None) -> None:
    """The handler is asked beside the reader; its yes echoes tag and target, and then the stream may come."""
    state = state_02(handler=True, local=local)
    connection = client(state, "a")

    assert ask(state, connection, -1) == [AskHandler(connection, -1, SSH, bridge=False)]
    with pytest.raises(TunnelError, match="waits for tag -1"):
        state.attach(connection, -1)  # not before it was accepted
    assert state.respond(connection, -1, None) == [Send(connection, Session(-1, SSH, accept=True))]
    assert state.attach(connection, -1) == SSH
    assert (connection.incoming_requests, connection.open_tags) == ({}, {-1})
    state.detach(connection, -1)
    nothing_is_left(state, connection)


def test_asked_and_refused() -> None:
    """The handler's words reach who asked, and the tag is free."""
    state = state_01()
    connection = client(state, "a")
    ask(state, connection, -1)

    assert state.respond(connection, -1, "not today") == [
        Send(connection, Session(-1, SSH, error="not today"))
    ]
    with pytest.raises(TunnelError, match="waits for tag -1"):
        state.attach(connection, -1)
    assert state.respond(connection, -1, None) == []


def test_asked_what_cannot_be() -> None:
    """No handler, no such target, a tag that is nobody's, or in use: an error at once, and the stream goes on."""
    state = state_01(handler=False)
    assert refusal(ask(state, client(state, "a"), -1)) == "target router-7 (SSH) is not registered"

    state = state_02(handler=True, local=frozenset((SSH,)))
    connection = client(state, "a")
    assert refusal(ask(state, connection, 0)) == "tags of a client must be negative"
    assert refusal(ask(state, connection, 3)) == "tags of a client must be negative"
    assert refusal(ask(state, connection, -1, OTHER)) == "target router-8 (SSH) is not registered"
    ask(state, connection, -2)
    assert refusal(ask(state, connection, -2)) == "tag -2 is in use"
    state.respond(connection, -2, None)
    state.attach(connection, -2)
    assert refusal(ask(state, connection, -2)) == "tag -2 is in use"
    assert ask(state, connection, -3) == [AskHandler(connection, -3, SSH, bridge=False)]


def test_asked_too_often() -> None:
    """Bounded a client; those of others are not touched."""
    state = state_01(max_pending=2)
    first, second = client(state, "a"), client(state, "b")
    ask(state, first, -1)
    ask(state, first, -2)

    assert refusal(ask(state, first, -3)) == "too many sessions of this client are being set up"
    assert ask(state, second, -1) == [AskHandler(second, -1, SSH, bridge=False)]
    state.respond(first, -1, "no")
    assert ask(state, first, -4) == [AskHandler(first, -4, SSH, bridge=False)]


@pytest.mark.parametrize("accepted", [False, True])
def test_asked_and_never_finished(accepted: bool) -> None:
    """A handler that hangs, or a client that never opens the stream: told once, and over."""
    state = state_02(handler=True, local=None, limits=Limits(set_up_within=10))
    connection = client(state, "a")
    ask(state, connection, -1, now=5)
    if accepted:
        state.respond(connection, -1, None)

    assert state.wake_at() == 15
    (effect,) = state.expire(15)
    assert effect == Send(connection, Session(-1, SSH, error="the session was not set up in time"))
    assert state.respond(connection, -1, None) == []
    with pytest.raises(TunnelError, match="waits for tag -1"):
        state.attach(connection, -1)


def test_asked_and_given_up() -> None:
    """A client that wants it no more says so: nothing is answered, before or after the handler."""
    state = state_02(handler=True, local=None)
    connection = client(state, "a")
    ask(state, connection, -1)

    assert state.receive(connection, Session(-1, SSH, error="never mind"), 0) == []
    assert state.respond(connection, -1, None) == []
    assert state.wake_at() is None


def test_asked_by_a_client_that_went() -> None:
    """The handler's late answer, yes or no, reaches nobody."""
    for error in (None, "no"):
        state = state_02(handler=True, local=None)
        connection = client(state, "a")
        ask(state, connection, -1)
        assert state.disconnect(connection) == []
        assert state.respond(connection, -1, error) == []
        assert state.expire(1_000) == []
        nothing_is_left(state, connection)


def test_asked_again_by_a_tag_that_is_free() -> None:
    """The time of an earlier session of that tag is not the time of this one."""
    state = state_02(handler=True, local=None, limits=Limits(set_up_within=10))
    connection = client(state, "a")
    ask(state, connection, -1, now=0)
    state.respond(connection, -1, "no")
    ask(state, connection, -1, now=9)

    assert state.expire(10) == []
    assert state.wake_at() == 19


def test_sessions_outlive_their_register_stream() -> None:
    """What is open goes on to its own end."""
    state = state_01()
    connection = client(state, "a")
    state.open(Target("x"), 0)
    state.attach(connection, 1)
    state.disconnect(connection)

    assert connection.open_tags == {1}
    state.detach(connection, 1)
    nothing_is_left(state, connection)


def test_positive_tags_of_a_client() -> None:
    """Only refusals of what was asked mean anything."""
    state = state_02(handler=True, local=None)
    connection = client(state, "a")

    assert state.receive(connection, Session(5, SSH, accept=True), 0) == []
    assert state.receive(connection, Session(5, SSH, error="what?"), 0) == []
    assert state.receive(connection, Session(0, SSH, error="what?"), 0) == []


# -- bridges ---------------------------------------------------------------------------------------


def test_bridge_to_another_clients_target() -> None:
    """The owner is asked before the caller is answered, so that its refusal can reach the caller."""
    state = state_02(bridge=True)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner)

    assert ask(state, caller, -1) == [AskHandler(caller, -1, SSH, bridge=True)]


def test_bridge_not_to_oneself_nor_unasked_for() -> None:
    """A client's own target, a target nobody has, and a server that keeps clients apart."""
    state = state_02(bridge=True)
    owner = client(state, "a")
    add(state, owner)
    assert refusal(ask(state, owner, -1)) == "target router-7 (SSH) belongs to this client itself"
    assert refusal(ask(state, owner, -2, OTHER)) == "target router-8 (SSH) is not registered"

    state = state_02(bridge=False)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner)
    assert refusal(ask(state, caller, -1)) == "target router-7 (SSH) is not registered"


def test_bridge_beside_a_handler() -> None:
    """A server's own targets are its own; a handler for any stands back behind a client that registered one."""
    state = state_02(handler=True, local=frozenset((SSH,)), bridge=True)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner, OTHER)
    assert ask(state, caller, -1, SSH) == [AskHandler(caller, -1, SSH, bridge=False)]
    assert ask(state, caller, -2, OTHER) == [AskHandler(caller, -2, OTHER, bridge=True)]

    state = state_02(handler=True, local=None, bridge=True)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner, OTHER)
    assert ask(state, caller, -1, SSH) == [AskHandler(caller, -1, SSH, bridge=False)]
    assert ask(state, caller, -2, OTHER) == [AskHandler(caller, -2, OTHER, bridge=True)]


def test_requests_compare_by_themselves() -> None:
    """Two requests to one target are two."""
    assert ServerRequest(SSH) != ServerRequest(SSH)


def test_refusal_of_megabytes_is_cut() -> None:
    """Any client of the server may write one, and callers are shown it."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    request, _ = state.open(SSH, 0)

    (effect,) = state.receive(owner, Session(1, SSH, error="x" * 4_000_000), 0)

    assert isinstance(effect, RequestFailed)
    assert effect.request is request
    assert len(effect.error) == 500


def test_malformed_session_is_answered_and_closed() -> None:
    """The client hears what is wrong, under its tag; whoever waits for a session of that tag hears it as well."""
    state = state_01()
    asker = client(state, "a")
    state.receive(asker, Session(-1, SSH), 0)
    assert told(state.receive(asker, Session(-1, SSH, malformed_reason="odd"), 0), asker) == [
        Session(-1, SSH, error="odd")
    ]
    request, _ = state.open(SSH, 0)
    answer, failed = state.receive(asker, Session(1, SSH, malformed_reason="odd"), 0)
    assert answer == Send(asker, Session(1, SSH, error="odd"))
    assert failed == RequestFailed(request, "odd")
    assert (asker.outgoing_requests, asker.incoming_requests) == ({}, {})


def test_sessions_that_are_withdrawn_leave_nothing() -> None:
    """Also behind a session that still waits, whose deadline comes first: a client may withdraw thousands meanwhile."""
    state = state_02(handler=True, local=None, limits=Limits(set_up_within=10))
    asker = client(state, "a")
    state.receive(asker, Session(-1, SSH), 0)
    for tag in range(-2, -20_002, -1):
        state.receive(asker, Session(tag, SSH), 1)
        state.receive(asker, Session(tag, SSH, error="not any more"), 1)
        assert len(state._deadlines) <= 1_100
    state.receive(asker, Session(-20_002, SSH), 2)
    assert [state.wake_at(), *told(state.expire(10), asker)] == [
        10,
        Session(-1, SSH, error="the session was not set up in time"),
    ]
    assert state.wake_at() == 12


def test_sessions_that_one_client_has_open_are_bounded() -> None:
    """Each may be a connection to a service: one that is over makes room, and sessions of others do not count."""
    state = state_02(handler=True, local=None, limits=Limits(max_sessions=2))
    asker = client(state, "a")
    for tag in (-1, -2):
        state.receive(asker, Session(tag, SSH), 0)
        state.respond(asker, tag, None)
    state.attach(asker, -1)
    assert (
        refusal(state.receive(asker, Session(-3, SSH), 0))
        == "this client has reached the maximum of 2 sessions"
    )
    state.attach(asker, -2)
    assert (
        refusal(state.receive(asker, Session(-3, SSH), 0))
        == "this client has reached the maximum of 2 sessions"
    )
    state.detach(asker, -2)
    assert len(state.receive(asker, Session(-3, SSH), 0)) == 1
    assert refusal(state.receive(asker, Session(-4, SSH), 0))
    assert len(state.receive(client(state, "b"), Session(-1, SSH), 0)) == 1
