"""Sessions that a tunnel server requests, serves and bridges, message by message."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.messages import HIGHEST_TAG, Session, Target, TunnelError
from fleet.protocol.tunnel.server_state import (
    ClientConnection,
    Effect,
    Limits,
    OutgoingRequest,
    Peer,
    QuerySessionHandler,
    RequestFailed,
    SendToClient,
    ServerState,
    TargetRemoved,
)
from tests.fakes.tunnel_state import (
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

# -- sessions requested by the server--------------------------------------------------------------


def test_open_0_2_sends_a_request_to_the_owner() -> None:
    """The request has accept and the target; the client accepts by opening the stream."""
    state = state_02()
    owner, bystander = client(state, "a"), client(state, "b")
    add(state, owner)
    request, effects = state.request_session(SSH, 0)

    assert effects == [SendToClient(owner, Session(1, SSH, accept=True))]
    assert not bystander.outgoing_requests
    assert state.attach_stream(owner, 1) is request
    assert owner.open_tags == {1}
    state.detach_stream(owner, 1)
    state.disconnect(owner)
    assert_empty(state, owner)


def test_open_gives_every_session_its_tag() -> None:
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    requests = [state.request_session(SSH, 0)[0] for _ in range(3)]

    assert list(owner.outgoing_requests) == [1, 2, 3]
    assert state.attach_stream(owner, 2) is requests[1]
    assert list(owner.outgoing_requests) == [1, 3]


def test_open_without_a_usable_client_is_refused() -> None:
    state = state_02()
    former_client = client(state, "a")
    with pytest.raises(TunnelError, match=r"target router-7 \(SSH\) is not registered"):
        state.request_session(SSH, 0)
    state.disconnect(former_client)
    with pytest.raises(TunnelError, match="this client is not connected"):
        state.request_session(SSH, 0, to=former_client)

    state = state_01()
    with pytest.raises(TunnelError, match="no client with a handler is connected"):
        state.request_session(Target("x"), 0)
    client_without_handler = client(state, "a", handler=False)
    with pytest.raises(TunnelError, match="no client with a handler is connected"):
        state.request_session(Target("x"), 0)
    with pytest.raises(TunnelError, match="this client has no handler"):
        state.request_session(Target("x"), 0, to=client_without_handler)
    client_without_capabilities, _ = state.connect("b", Peer())
    with pytest.raises(TunnelError, match="this client has no handler"):
        state.request_session(Target("x"), 0, to=client_without_capabilities)


def test_open_to_a_client_needs_no_registered_target() -> None:
    state = state_02()
    first, second = client(state, "a"), client(state, "b")
    add(state, first)

    assert state.request_session(SSH, 0, to=second)[1] == [SendToClient(second, Session(1, SSH, accept=True))]


def test_open_refused_by_the_client() -> None:
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    first, second = state.request_session(SSH, 0)[0], state.request_session(SSH, 0)[0]

    (failure,) = state.receive(owner, Session(1, SSH, error="sshd is down"), 0)
    assert failure == RequestFailed(first, "sshd is down")
    assert state.attach_stream(owner, 2) is second
    with pytest.raises(TunnelError, match="no session on this connection waits for tag 1"):
        state.attach_stream(owner, 1)


def test_open_broadcast_first_wins() -> None:
    """Without a named client, version 0.1 sends the request to all with a handler; the first stream is used."""
    state = state_01()
    clients = [client(state, key) for key in "abc"]
    client(state, "d", handler=False)
    request, effects = state.request_session(Target("x"), 0)

    assert effects == [
        SendToClient(connection, Session(1, Target("x"), accept=True)) for connection in clients
    ]
    assert state.receive(clients[0], Session(1, error="not mine"), 0) == []
    assert state.attach_stream(clients[2], 1) is request
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach_stream(clients[1], 1)
    assert state.receive(clients[1], Session(1, error="late"), 0) == []
    assert state.expire(1_000) == []


def test_open_broadcast_all_refuse() -> None:
    """The caller gets all errors after the last refusal."""
    state = state_01()
    first, second = client(state, "a"), client(state, "b")
    request, _ = state.request_session(Target("x"), 0)

    assert state.receive(second, Session(1, error="not mine"), 0) == []
    assert state.disconnect(first) == [RequestFailed(request, "not mine; the client disconnected")]


def test_open_broadcast_tags_differ() -> None:
    """Clients with different numbers of earlier requests have different tags for this one."""
    state = state_01()
    first = client(state, "a")
    state.request_session(Target("x"), 0)
    second = client(state, "b")
    request, _ = state.request_session(Target("y"), 0)

    assert request.pending_tags == {first: 2, second: 1}
    assert state.attach_stream(second, 1) is request
    assert list(first.outgoing_requests) == [1]


def test_open_fails_when_the_owner_disconnects() -> None:
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    request, _ = state.request_session(SSH, 0)

    failure = RequestFailed(request, "the client disconnected")
    assert state.disconnect(owner) == [TargetRemoved(SSH, owner), failure]
    assert_empty(state, owner)


def test_open_times_out() -> None:
    """Only the session whose stream did not open in time fails."""
    state = state_02(limits=Limits(set_up_timeout=10))
    owner = client(state, "a")
    add(state, owner)
    first, second = state.request_session(SSH, 100)[0], state.request_session(SSH, 103)[0]

    assert state.wake_at() == 110
    assert state.expire(109.9) == []
    assert state.expire(110) == [RequestFailed(first, "the client did not open the stream in time")]
    assert state.wake_at() == 113
    assert state.attach_stream(owner, 2) is second
    assert state.wake_at() is None
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach_stream(owner, 1)


def test_abandoned_open_refuses_its_stream() -> None:
    """A late refusal of the client is ignored."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    request, _ = state.request_session(SSH, 0)
    state.abandon(request)
    state.abandon(request)

    assert state.wake_at() is None
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach_stream(owner, 1)
    assert state.receive(owner, Session(1, error="late"), 0) == []


def test_open_has_a_limit_per_client() -> None:
    """Other clients are not affected, and a stream that opens makes room."""
    state = state_01(max_pending_sessions=2)
    first, second = client(state, "a"), client(state, "b")
    for _ in range(2):
        state.request_session(Target("x"), 0, to=first)

    with pytest.raises(TunnelError, match="too many sessions are being set up with this client"):
        state.request_session(Target("x"), 0, to=first)
    assert list(state.request_session(Target("x"), 0)[0].pending_tags) == [second]
    state.attach_stream(first, 1)
    session = Session(3, Target("x"), accept=True)
    assert state.request_session(Target("x"), 0, to=first)[1] == [SendToClient(first, session)]


def test_open_skips_connections_without_tags() -> None:
    """If there is no other connection the caller gets an error, and no request remains."""
    state = state_01()
    first = client(state, "a")
    exhausted = client(state, "b")
    exhausted.tags._last = HIGHEST_TAG

    request, effects = state.request_session(Target("x"), 0)
    assert [effect.connection for effect in effects if isinstance(effect, SendToClient)] == [first]
    state.abandon(request)
    with pytest.raises(TunnelError, match="used up its tags"):
        state.request_session(Target("x"), 0, to=exhausted)
    assert state.wake_at() is None


@pytest.mark.parametrize("tag", [0, 1, 7, -1])
def test_attach_without_a_session_is_refused(tag: int) -> None:
    state = state_02()
    with pytest.raises(TunnelError, match=f"no session on this connection waits for tag {tag}"):
        state.attach_stream(client(state, "a"), tag)


def test_tag_is_valid_for_one_stream_of_one_connection() -> None:
    state = state_01()
    first, second = client(state, "a"), client(state, "b")
    state.request_session(Target("x"), 0, to=first)

    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach_stream(second, 1)
    state.attach_stream(first, 1)
    with pytest.raises(TunnelError, match="waits for tag 1"):
        state.attach_stream(first, 1)


# -- sessions requested by a client----------------------------------------------------------------


def request_session(
    state: ServerState, connection: ClientConnection, tag: int, target: Target = SSH, now: float = 0
) -> list[Effect]:
    return state.receive(connection, Session(tag, target), now)


@pytest.mark.parametrize("local", [None, frozenset((SSH,))])
def test_requested_session_is_accepted(local: frozenset[Target] | None) -> None:
    """The acceptance repeats tag and target; afterwards the stream may open."""
    state = state_02(handler=True, local=local)
    connection = client(state, "a")

    assert request_session(state, connection, -1) == [QuerySessionHandler(connection, -1, SSH, bridge=False)]
    with pytest.raises(TunnelError, match="waits for tag -1"):
        state.attach_stream(connection, -1)  # not before it was accepted
    assert state.respond(connection, -1, None) == [SendToClient(connection, Session(-1, SSH, accept=True))]
    assert state.attach_stream(connection, -1) == SSH
    assert (connection.incoming_requests, connection.open_tags) == ({}, {-1})
    state.detach_stream(connection, -1)
    assert_empty(state, connection)


def test_requested_session_is_refused() -> None:
    """The client gets the handler's error, and the tag is free."""
    state = state_01()
    connection = client(state, "a")
    request_session(state, connection, -1)

    assert state.respond(connection, -1, "not today") == [
        SendToClient(connection, Session(-1, SSH, error="not today"))
    ]
    with pytest.raises(TunnelError, match="waits for tag -1"):
        state.attach_stream(connection, -1)
    assert state.respond(connection, -1, None) == []


def test_invalid_session_request_is_refused() -> None:
    """Without handler or target, or with a wrong or used tag, there is an error at once; the connection
    continues.
    """
    state = state_01(handler=False)
    assert (
        refusal(request_session(state, client(state, "a"), -1)) == "target router-7 (SSH) is not registered"
    )

    state = state_02(handler=True, local=frozenset((SSH,)))
    connection = client(state, "a")
    assert refusal(request_session(state, connection, 0)) == "tags of a client must be negative"
    assert refusal(request_session(state, connection, 3)) == "tags of a client must be negative"
    assert (
        refusal(request_session(state, connection, -1, OTHER_SSH))
        == "target router-8 (SSH) is not registered"
    )
    request_session(state, connection, -2)
    assert refusal(request_session(state, connection, -2)) == "tag -2 is in use"
    state.respond(connection, -2, None)
    state.attach_stream(connection, -2)
    assert refusal(request_session(state, connection, -2)) == "tag -2 is in use"
    assert request_session(state, connection, -3) == [QuerySessionHandler(connection, -3, SSH, bridge=False)]


def test_requested_sessions_have_a_limit_per_client() -> None:
    """Other clients are not affected."""
    state = state_01(max_pending_sessions=2)
    first, second = client(state, "a"), client(state, "b")
    request_session(state, first, -1)
    request_session(state, first, -2)

    assert refusal(request_session(state, first, -3)) == "too many sessions of this client are being set up"
    assert request_session(state, second, -1) == [QuerySessionHandler(second, -1, SSH, bridge=False)]
    state.respond(first, -1, "no")
    assert request_session(state, first, -4) == [QuerySessionHandler(first, -4, SSH, bridge=False)]


@pytest.mark.parametrize("is_accepted", [False, True])
def test_requested_session_times_out(is_accepted: bool) -> None:
    """The client gets one error, whether the handler hangs or the stream does not open."""
    state = state_02(handler=True, local=None, limits=Limits(set_up_timeout=10))
    connection = client(state, "a")
    request_session(state, connection, -1, now=5)
    if is_accepted:
        state.respond(connection, -1, None)

    assert state.wake_at() == 15
    (effect,) = state.expire(15)
    assert effect == SendToClient(connection, Session(-1, SSH, error="the session was not set up in time"))
    assert state.respond(connection, -1, None) == []
    with pytest.raises(TunnelError, match="waits for tag -1"):
        state.attach_stream(connection, -1)


def test_cancelled_session_request_gets_no_response() -> None:
    """That holds before and after the handler's response."""
    state = state_02(handler=True, local=None)
    connection = client(state, "a")
    request_session(state, connection, -1)

    assert state.receive(connection, Session(-1, SSH, error="never mind"), 0) == []
    assert state.respond(connection, -1, None) == []
    assert state.wake_at() is None


def test_session_request_of_a_former_client_gets_no_response() -> None:
    for error in (None, "no"):
        state = state_02(handler=True, local=None)
        connection = client(state, "a")
        request_session(state, connection, -1)
        assert state.disconnect(connection) == []
        assert state.respond(connection, -1, error) == []
        assert state.expire(1_000) == []
        assert_empty(state, connection)


def test_reused_tag_gets_a_new_deadline() -> None:
    state = state_02(handler=True, local=None, limits=Limits(set_up_timeout=10))
    connection = client(state, "a")
    request_session(state, connection, -1, now=0)
    state.respond(connection, -1, "no")
    request_session(state, connection, -1, now=9)

    assert state.expire(10) == []
    assert state.wake_at() == 19


def test_sessions_outlive_their_register_stream() -> None:
    state = state_01()
    connection = client(state, "a")
    state.request_session(Target("x"), 0)
    state.attach_stream(connection, 1)
    state.disconnect(connection)

    assert connection.open_tags == {1}
    state.detach_stream(connection, 1)
    assert_empty(state, connection)


def test_sessions_with_unknown_positive_tags_are_ignored() -> None:
    """A client sends positive tags only to refuse a request."""
    state = state_02(handler=True, local=None)
    connection = client(state, "a")

    assert state.receive(connection, Session(5, SSH, accept=True), 0) == []
    assert state.receive(connection, Session(5, SSH, error="what?"), 0) == []
    assert state.receive(connection, Session(0, SSH, error="what?"), 0) == []


# -- bridges ---------------------------------------------------------------------------------------


def test_bridge_to_another_clients_target() -> None:
    """The owner is queried before the caller gets a response, so that a refusal reaches the caller."""
    state = state_02(bridge=True)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner)

    assert request_session(state, caller, -1) == [QuerySessionHandler(caller, -1, SSH, bridge=True)]


def test_bridge_is_refused_for_own_targets_or_if_disabled() -> None:
    state = state_02(bridge=True)
    owner = client(state, "a")
    add(state, owner)
    assert refusal(request_session(state, owner, -1)) == "target router-7 (SSH) belongs to this client itself"
    assert refusal(request_session(state, owner, -2, OTHER_SSH)) == "target router-8 (SSH) is not registered"

    state = state_02(bridge=False)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner)
    assert refusal(request_session(state, caller, -1)) == "target router-7 (SSH) is not registered"


def test_bridge_beside_a_handler() -> None:
    state = state_02(handler=True, local=frozenset((SSH,)), bridge=True)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner, OTHER_SSH)
    assert request_session(state, caller, -1, SSH) == [QuerySessionHandler(caller, -1, SSH, bridge=False)]
    assert request_session(state, caller, -2, OTHER_SSH) == [
        QuerySessionHandler(caller, -2, OTHER_SSH, bridge=True)
    ]

    state = state_02(handler=True, local=None, bridge=True)
    owner, caller = client(state, "a"), client(state, "b")
    add(state, owner, OTHER_SSH)
    assert request_session(state, caller, -1, SSH) == [QuerySessionHandler(caller, -1, SSH, bridge=False)]
    assert request_session(state, caller, -2, OTHER_SSH) == [
        QuerySessionHandler(caller, -2, OTHER_SSH, bridge=True)
    ]


def test_requests_are_equal_by_identity() -> None:
    assert OutgoingRequest(SSH) != OutgoingRequest(SSH)


def test_long_refusal_is_cut() -> None:
    """A client may send any text, and callers see it."""
    state = state_02()
    owner = client(state, "a")
    add(state, owner)
    request, _ = state.request_session(SSH, 0)

    (effect,) = state.receive(owner, Session(1, SSH, error="x" * 4_000_000), 0)

    assert isinstance(effect, RequestFailed)
    assert effect.request is request
    assert len(effect.error) == 500


def test_malformed_session_is_answered_and_closed() -> None:
    """The client gets the error under its tag, and so does the caller who waits for that tag."""
    state = state_01()
    caller = client(state, "a")
    state.receive(caller, Session(-1, SSH), 0)
    assert messages_to(state.receive(caller, Session(-1, SSH, malformed_reason="odd"), 0), caller) == [
        Session(-1, SSH, error="odd")
    ]
    request, _ = state.request_session(SSH, 0)
    response, failure = state.receive(caller, Session(1, SSH, malformed_reason="odd"), 0)
    assert response == SendToClient(caller, Session(1, SSH, error="odd"))
    assert failure == RequestFailed(request, "odd")
    assert (caller.outgoing_requests, caller.incoming_requests) == ({}, {})


def test_withdrawn_sessions_leave_no_deadlines() -> None:
    """A client may withdraw thousands of sessions while an earlier one is pending."""
    state = state_02(handler=True, local=None, limits=Limits(set_up_timeout=10))
    caller = client(state, "a")
    state.receive(caller, Session(-1, SSH), 0)
    for tag in range(-2, -20_002, -1):
        state.receive(caller, Session(tag, SSH), 1)
        state.receive(caller, Session(tag, SSH, error="not any more"), 1)
        assert len(state._deadlines) <= 1_100
    state.receive(caller, Session(-20_002, SSH), 2)
    assert [state.wake_at(), *messages_to(state.expire(10), caller)] == [
        10,
        Session(-1, SSH, error="the session was not set up in time"),
    ]
    assert state.wake_at() == 12


def test_open_sessions_have_a_limit_per_client() -> None:
    """A session may be a connection to a service. One that ends makes room."""
    state = state_02(handler=True, local=None, limits=Limits(max_sessions=2))
    caller = client(state, "a")
    for tag in (-1, -2):
        state.receive(caller, Session(tag, SSH), 0)
        state.respond(caller, tag, None)
    state.attach_stream(caller, -1)
    assert (
        refusal(state.receive(caller, Session(-3, SSH), 0))
        == "this client has reached the maximum of 2 sessions"
    )
    state.attach_stream(caller, -2)
    assert (
        refusal(state.receive(caller, Session(-3, SSH), 0))
        == "this client has reached the maximum of 2 sessions"
    )
    state.detach_stream(caller, -2)
    assert len(state.receive(caller, Session(-3, SSH), 0)) == 1
    assert refusal(state.receive(caller, Session(-4, SSH), 0))
    assert len(state.receive(client(state, "b"), Session(-1, SSH), 0)) == 1
