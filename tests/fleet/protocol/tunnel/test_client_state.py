"""Decisions of a tunnel client, message by message."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.client_state import (
    ClientState,
    OpenStream,
    QueryRegisterHandler,
    SendToServer,
    SessionFailed,
    SubscriptionResponse,
    TargetAccepted,
    TargetChange,
    TargetRejected,
)
from fleet.protocol.tunnel.messages import (
    HIGHEST_TAG,
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
from fleet.protocol.tunnel.server_state import Limits

SSH = Target("router-7", "SSH")
GNMI = Target("router-7", "GNMI")


def state_01(
    *, handler: bool = True, server: bool | None = True, limits: Limits | None = None
) -> ClientState:
    """Return a client of version 0.1 whose server sent its capabilities, unless `server` is None."""
    state = ClientState(WireVersion.V0_1, has_handler=handler, limits=limits)
    state.start()
    if server is not None:
        state.receive(Capabilities(server), 0)
    return state


def state_02(*, handler: bool = True, limits: Limits | None = None) -> ClientState:
    return ClientState(WireVersion.V0_2, has_handler=handler, limits=limits)


# -- start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [True, False])
def test_start_0_1(handler: bool) -> None:
    """The client sends its capabilities first; sessions can be requested once the server's are known."""
    state = ClientState(WireVersion.V0_1, has_handler=handler)

    assert state.start() == [SendToServer(Capabilities(handler))]
    assert not state.is_ready
    with pytest.raises(TunnelError, match="not established yet"):
        state.request_session(Target("x"), 0)
    assert state.receive(Capabilities(True), 0) == []
    assert state.is_ready


def test_start_0_1_refuses_targets_and_subscriptions() -> None:
    """They are refused before anything is sent."""
    state = ClientState(WireVersion.V0_1, has_handler=True)
    for targets, kinds in (((SSH,), ()), ((), ("SSH",))):
        with pytest.raises(TunnelError, match="neither targets nor subscriptions"):
            state.start(targets, kinds)
    for change in (state.add, state.remove):
        with pytest.raises(TunnelError, match=r"version 0\.1 does not support targets"):
            change(SSH)


def test_start_0_2() -> None:
    """Each target is sent, then each subscription; sessions can be requested at once."""
    state = state_02()

    assert state.is_ready
    assert state.start([SSH, GNMI], ["", "SSH"]) == [
        SendToServer(Registration(Op.ADD, SSH)),
        SendToServer(Registration(Op.ADD, GNMI)),
        SendToServer(Subscription(Op.ADD, "")),
        SendToServer(Subscription(Op.ADD, "SSH")),
    ]


def test_capabilities_without_any_handler_end_the_stream() -> None:
    """One handler at either end is enough."""
    with pytest.raises(TunnelError, match="no handlers defined"):
        state_01(handler=False, server=False)
    assert state_01(handler=True, server=False).is_ready
    assert state_01(handler=False, server=True).is_ready


@pytest.mark.parametrize("message", [Session(1, accept=True), Session(-1, error="no")])
def test_capabilities_must_come_first(message: Message) -> None:
    """In version 0.1 any other first message ends the stream."""
    with pytest.raises(TunnelError, match=r"first message of version 0\.1 must be capabilities"):
        state_01(server=None).receive(message, 0)


def test_empty_message_is_ignored() -> None:
    """Empty RegisterOps and repeated capabilities have no effect."""
    assert state_02().receive(None, 0) == []
    assert state_01().receive(Capabilities(False), 0) == []


# -- targets and changes -----------------------------------------------------------------------------


def test_target_is_accepted() -> None:
    """Responses have no operation; they come in the order of the requests."""
    state = state_02()

    assert state.add(SSH) == [SendToServer(Registration(Op.ADD, SSH))]
    assert state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0) == [TargetAccepted(SSH)]
    assert state.remove(SSH) == [SendToServer(Registration(Op.REMOVE, SSH))]
    assert state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0) == [TargetAccepted(SSH)]
    with pytest.raises(TunnelError, match=r"target router-7 \(SSH\) is not registered"):
        state.remove(SSH)


def test_refused_target_can_be_added_again() -> None:
    """The refusal is reported, and the client continues."""
    state = state_02()
    state.add(SSH)
    with pytest.raises(TunnelError, match=r"target router-7 \(SSH\) is already registered"):
        state.add(SSH)

    assert state.receive(Registration(Op.UNKNOWN, SSH, error="no"), 0) == [TargetRejected(SSH, "no")]
    assert state.add(SSH) == [SendToServer(Registration(Op.ADD, SSH))]


def test_target_removed_and_added_at_once() -> None:
    """A refusal of the first request does not affect the second: responses come in order."""
    state = state_02()
    state.add(SSH)
    state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0)
    state.remove(SSH)
    state.add(SSH)

    assert state.receive(Registration(Op.UNKNOWN, SSH, error="displaced"), 0) == [
        TargetRejected(SSH, "displaced")
    ]
    assert state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0) == [TargetAccepted(SSH)]
    assert state.remove(SSH) == [SendToServer(Registration(Op.REMOVE, SSH))]


def test_target_changes_of_others_are_reported() -> None:
    """Own targets and unknown operations are left out."""
    state = state_02()
    state.add(SSH)

    assert state.receive(Registration(Op.ADD, GNMI), 0) == [TargetChange(Op.ADD, GNMI)]
    assert state.receive(Registration(Op.REMOVE, GNMI), 0) == [TargetChange(Op.REMOVE, GNMI)]
    assert state.receive(Registration(Op.ADD, SSH), 0) == []
    assert state.receive(Registration(Op.UNKNOWN, GNMI), 0) == []


def test_subscription_responses_are_reported() -> None:
    """Accepted or refused, the client continues."""
    state = state_02()
    accepted_response, refused_response = (
        Subscription(Op.ADD, "SSH", accept=True),
        Subscription(Op.ADD, "SSH", error="no"),
    )

    assert state.receive(accepted_response, 0) == [SubscriptionResponse(Op.ADD, "SSH", "")]
    assert state.receive(refused_response, 0) == [SubscriptionResponse(Op.ADD, "SSH", "no")]


# -- sessions requested by the client--------------------------------------------------------------


@pytest.mark.parametrize("state", [state_01(), state_02()])
def test_open_and_accepted(state: ClientState) -> None:
    """The request has no accept and a negative tag; the server's accept opens the stream, once."""
    tag, effects = state.request_session(SSH, 0)

    assert (tag, effects) == (-1, [SendToServer(Session(-1, SSH))])
    assert state.receive(Session(-1, SSH, accept=True), 0) == [OpenStream(-1, SSH)]
    assert state.receive(Session(-1, SSH, accept=True), 0) == []
    assert state.receive(Session(-1, SSH, error="late"), 0) == []
    assert state.wake_at() is None
    assert state.request_session(SSH, 0)[0] == -2


def test_open_uses_the_requested_target() -> None:
    """The target in the response is ignored."""
    state = state_02()
    state.request_session(SSH, 0)
    assert state.receive(Session(-1, Target("elsewhere"), accept=True), 0) == [OpenStream(-1, SSH)]


def test_open_refused() -> None:
    """Only the caller of that session gets the error."""
    state = state_02()
    state.request_session(SSH, 0)
    state.request_session(GNMI, 0)

    assert state.receive(Session(-1, SSH, error="no sshd"), 0) == [SessionFailed(-1, "no sshd")]
    assert state.receive(Session(-2, GNMI, accept=True), 0) == [OpenStream(-2, GNMI)]


def test_open_response_without_accept_or_error_is_ignored() -> None:
    """The deadline stays."""
    state = state_02(limits=Limits(set_up_timeout=10))
    state.request_session(SSH, 0)

    assert state.receive(Session(-1, SSH), 0) == []
    assert state.wake_at() == 10
    assert state.receive(Session(-1, SSH, accept=True), 0) == [OpenStream(-1, SSH)]


def test_open_response_with_accept_and_error_is_a_refusal() -> None:
    state = state_02()
    state.request_session(SSH, 0)
    assert state.receive(Session(-1, SSH, accept=True, error="no"), 0) == [SessionFailed(-1, "no")]


def test_open_server_without_handler() -> None:
    """In version 0.1 the server's capabilities say so, and no request is sent."""
    with pytest.raises(TunnelError, match="the server has no handler"):
        state_01(server=False).request_session(Target("x"), 0)


def test_open_has_a_limit() -> None:
    """Responses and abandoned requests make room."""
    state = state_02(limits=Limits(max_pending_sessions=2))
    state.request_session(SSH, 0)
    state.request_session(SSH, 0)
    with pytest.raises(TunnelError, match="too many sessions are being set up"):
        state.request_session(SSH, 0)
    state.abandon(-1)
    assert state.request_session(SSH, 0)[0] == -3
    state.receive(Session(-2, SSH, error="no"), 0)
    assert state.request_session(SSH, 0)[0] == -4


def test_open_without_free_tags_is_refused() -> None:
    """The error asks for a new connection, and no request remains."""
    state = state_02()
    state._tags._last = -HIGHEST_TAG
    with pytest.raises(TunnelError, match="used up its tags"):
        state.request_session(SSH, 0)
    assert state.wake_at() is None


def test_open_times_out() -> None:
    """Requests expire in their order; a later response is ignored."""
    state = state_02(limits=Limits(set_up_timeout=10))
    state.request_session(SSH, 100)
    state.request_session(SSH, 104)

    assert state.wake_at() == 110
    assert state.expire(109) == []
    assert state.expire(110) == [SessionFailed(-1, "the server did not answer in time")]
    assert state.receive(Session(-1, SSH, accept=True), 111) == []
    assert state.wake_at() == 114


def test_abandon_sends_nothing() -> None:
    """A late response is ignored."""
    state = state_02()
    state.request_session(SSH, 0)
    state.abandon(-1)
    state.abandon(-1)

    assert state.wake_at() is None
    assert state.receive(Session(-1, SSH, accept=True), 0) == []


# -- sessions requested by the server--------------------------------------------------------------


@pytest.mark.parametrize("state", [state_01(), state_02()])
def test_requested_session_is_accepted(state: ClientState) -> None:
    """The client accepts by opening the stream."""
    assert state.receive(Session(1, SSH, accept=True), 0) == [QueryRegisterHandler(1, SSH)]
    assert state.respond(1, None) == [OpenStream(1, SSH)]
    assert state.respond(1, None) == []
    assert state.wake_at() is None


def test_requested_session_is_refused() -> None:
    """The handler's error reaches the server's caller."""
    state = state_01()
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.respond(1, "no sshd") == [SendToServer(Session(1, SSH, error="no sshd"))]
    assert state.respond(1, None) == []


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Session(0, SSH, accept=True), "tags of a server must be positive"),
        (Session(3, SSH), "the server's session request does not have accept set"),
        (Session(2, SSH, accept=True), "tag 2 is in use"),
    ],
)
def test_invalid_session_request_is_refused(message: Session, error: str) -> None:
    """The error is for that tag only; the connection continues."""
    state = state_02()
    state.receive(Session(2, SSH, accept=True), 0)

    assert state.receive(message, 0) == [SendToServer(Session(message.tag, SSH, error=error))]
    assert state.respond(2, None) == [OpenStream(2, SSH)]


def test_requested_session_without_a_handler_is_refused() -> None:
    """The refusal is immediate, so the server's caller does not wait."""
    assert state_02(handler=False).receive(Session(1, SSH, accept=True), 0) == [
        SendToServer(Session(1, SSH, error="this client has no handler"))
    ]


def test_requested_sessions_have_a_limit() -> None:
    state = state_02(limits=Limits(max_pending_sessions=1))
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.receive(Session(2, SSH, accept=True), 0) == [
        SendToServer(Session(2, SSH, error="too many sessions are being set up"))
    ]
    state.respond(1, None)
    assert state.receive(Session(3, SSH, accept=True), 0) == [QueryRegisterHandler(3, SSH)]


def test_requested_session_times_out() -> None:
    """The server gets an error in time; a later response of the handler is ignored."""
    state = state_02(limits=Limits(set_up_timeout=10))
    state.receive(Session(1, SSH, accept=True), 5)

    assert state.expire(15) == [SendToServer(Session(1, SSH, error="the handler did not answer in time"))]
    assert state.respond(1, None) == []
    assert state.wake_at() is None


def test_reused_tag_gets_a_new_deadline() -> None:
    state = state_02(limits=Limits(set_up_timeout=10))
    state.receive(Session(1, SSH, accept=True), 0)
    state.respond(1, "no")
    state.receive(Session(1, SSH, accept=True), 9)

    assert state.expire(10) == []
    assert state.wake_at() == 19


def test_cancelled_session_request_gets_no_response() -> None:
    """Errors for unknown tags and for tag 0 get none either."""
    state = state_02()
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.receive(Session(1, SSH, error="never mind"), 0) == []
    assert state.respond(1, None) == []
    assert state.receive(Session(9, SSH, error="what?"), 0) == []
    assert state.receive(Session(0, SSH, error="what?"), 0) == []


def test_failed_stream_is_reported_to_the_server() -> None:
    """Only for sessions that the server requested."""
    state = state_02()

    assert state.on_stream_failed(1, SSH, "no connection") == [
        SendToServer(Session(1, SSH, error="no connection"))
    ]
    assert state.on_stream_failed(-1, SSH, "no connection") == []


def test_end_fails_every_pending_request() -> None:
    """No state remains, and late responses of handlers are ignored."""
    state = state_02()
    for target in (SSH, GNMI):
        state.request_session(target, 0)
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.end("it broke") == [SessionFailed(-1, "it broke"), SessionFailed(-2, "it broke")]
    assert state.end("it broke") == []
    assert state.respond(1, None) == []
    assert state.wake_at() is None
    assert state.expire(1_000) == []


def test_malformed_session_is_answered_and_closed() -> None:
    """The server gets the error under its tag, and so does the caller who waits for that tag."""
    state = state_01()
    state.receive(Session(1, SSH, accept=True), 0)
    assert state.receive(Session(1, SSH, malformed_reason="odd"), 0) == [
        SendToServer(Session(1, SSH, error="odd"))
    ]
    assert state.respond(1, None) == []
    tag, _ = state.request_session(SSH, 0)
    assert state.receive(Session(tag, SSH, malformed_reason="odd"), 0) == [
        SendToServer(Session(tag, SSH, error="odd")),
        SessionFailed(tag, "odd"),
    ]


def test_registered_targets_are_the_accepted() -> None:
    """Neither unanswered targets nor those being removed are included."""
    state = state_02()
    state.start([SSH, GNMI])
    assert state.registered_targets == frozenset()
    state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0)
    state.receive(Registration(Op.UNKNOWN, GNMI, error="taken"), 0)
    assert state.registered_targets == {SSH}
    state.remove(SSH)
    assert state.registered_targets == frozenset()
