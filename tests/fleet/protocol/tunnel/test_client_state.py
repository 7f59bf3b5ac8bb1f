"""What a tunnel client decides, message by message."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.client_state import (
    AskHandler,
    ClientState,
    OpenStream,
    Send,
    SessionFailed,
    SubscriptionResponse,
    TargetAccepted,
    TargetChange,
    TargetRejected,
)
from fleet.protocol.tunnel.messages import (
    LAST_TAG,
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
    """A client of version 0.1 whose server said its capabilities, unless `server` is None."""
    state = ClientState(WireVersion.V0_1, has_handler=handler, limits=limits)
    state.start()
    if server is not None:
        state.receive(Capabilities(server), 0)
    return state


def state_02(*, handler: bool = True, limits: Limits | None = None) -> ClientState:
    return ClientState(WireVersion.V0_2, has_handler=handler, limits=limits)


# -- the beginning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [True, False])
def test_start_0_1(handler: bool) -> None:
    """Capabilities, unasked; sessions may be asked for once the server's are known."""
    state = ClientState(WireVersion.V0_1, has_handler=handler)

    assert state.start() == [Send(Capabilities(handler))]
    assert not state.ready
    with pytest.raises(TunnelError, match="not established yet"):
        state.open(Target("x"), 0)
    assert state.receive(Capabilities(True), 0) == []
    assert state.ready


def test_start_0_1_knows_no_targets() -> None:
    """Nor subscriptions: said before anything goes out."""
    state = ClientState(WireVersion.V0_1, has_handler=True)
    for targets, kinds in (((SSH,), ()), ((), ("SSH",))):
        with pytest.raises(TunnelError, match="neither targets nor subscriptions"):
            state.start(targets, kinds)
    for change in (state.add, state.remove):
        with pytest.raises(TunnelError, match=r"version 0\.1 does not support targets"):
            change(SSH)


def test_start_0_2() -> None:
    """Each target, then each subscription; sessions may be asked for at once."""
    state = state_02()

    assert state.ready
    assert state.start([SSH, GNMI], ["", "SSH"]) == [
        Send(Registration(Op.ADD, SSH)),
        Send(Registration(Op.ADD, GNMI)),
        Send(Subscription(Op.ADD, "")),
        Send(Subscription(Op.ADD, "SSH")),
    ]


def test_capabilities_no_handler_anywhere() -> None:
    """The stream ends; one handler would have been enough."""
    with pytest.raises(TunnelError, match="no handlers defined"):
        state_01(handler=False, server=False)
    assert state_01(handler=True, server=False).ready
    assert state_01(handler=False, server=True).ready


@pytest.mark.parametrize("message", [Session(1, accept=True), Session(-1, error="no")])
def test_capabilities_must_come_first(message: Message) -> None:
    """In 0.1 anything else ends the stream."""
    with pytest.raises(TunnelError, match=r"first message of version 0\.1 must be capabilities"):
        state_01(server=None).receive(message, 0)


def test_empty_message_is_nothing() -> None:
    """An empty RegisterOp, and capabilities said again."""
    assert state_02().receive(None, 0) == []
    assert state_01().receive(Capabilities(False), 0) == []


# -- targets and news ------------------------------------------------------------------------------


def test_target_is_taken() -> None:
    """Acknowledgements carry no operation: theirs is the order of what was asked."""
    state = state_02()

    assert state.add(SSH) == [Send(Registration(Op.ADD, SSH))]
    assert state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0) == [TargetAccepted(SSH)]
    assert state.remove(SSH) == [Send(Registration(Op.REMOVE, SSH))]
    assert state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0) == [TargetAccepted(SSH)]
    with pytest.raises(TunnelError, match=r"target router-7 \(SSH\) is not registered"):
        state.remove(SSH)


def test_target_is_refused() -> None:
    """It is told, the client goes on, and may try again."""
    state = state_02()
    state.add(SSH)
    with pytest.raises(TunnelError, match=r"target router-7 \(SSH\) is already registered"):
        state.add(SSH)

    assert state.receive(Registration(Op.UNKNOWN, SSH, error="no"), 0) == [TargetRejected(SSH, "no")]
    assert state.add(SSH) == [Send(Registration(Op.ADD, SSH))]


def test_target_removed_and_added_at_once() -> None:
    """The refusal of the first is not the end of the second: answers come in the order of what was asked."""
    state = state_02()
    state.add(SSH)
    state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0)
    state.remove(SSH)
    state.add(SSH)

    assert state.receive(Registration(Op.UNKNOWN, SSH, error="displaced"), 0) == [
        TargetRejected(SSH, "displaced")
    ]
    assert state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0) == [TargetAccepted(SSH)]
    assert state.remove(SSH) == [Send(Registration(Op.REMOVE, SSH))]


def test_news_of_others_only() -> None:
    """What comes and goes, but for one's own targets and what is no operation."""
    state = state_02()
    state.add(SSH)

    assert state.receive(Registration(Op.ADD, GNMI), 0) == [TargetChange(Op.ADD, GNMI)]
    assert state.receive(Registration(Op.REMOVE, GNMI), 0) == [TargetChange(Op.REMOVE, GNMI)]
    assert state.receive(Registration(Op.ADD, SSH), 0) == []
    assert state.receive(Registration(Op.UNKNOWN, GNMI), 0) == []


def test_subscription_answers() -> None:
    """Yes or no, the client goes on."""
    state = state_02()
    yes, no = Subscription(Op.ADD, "SSH", accept=True), Subscription(Op.ADD, "SSH", error="no")

    assert state.receive(yes, 0) == [SubscriptionResponse(Op.ADD, "SSH", "")]
    assert state.receive(no, 0) == [SubscriptionResponse(Op.ADD, "SSH", "no")]


# -- sessions that the client wants ----------------------------------------------------------------


@pytest.mark.parametrize("state", [state_01(), state_02()])
def test_open_and_accepted(state: ClientState) -> None:
    """Asked for without accept, by a tag below zero; the server's accept opens the stream, once."""
    tag, effects = state.open(SSH, 0)

    assert (tag, effects) == (-1, [Send(Session(-1, SSH))])
    assert state.receive(Session(-1, SSH, accept=True), 0) == [OpenStream(-1, SSH)]
    assert state.receive(Session(-1, SSH, accept=True), 0) == []
    assert state.receive(Session(-1, SSH, error="late"), 0) == []
    assert state.wake_at() is None
    assert state.open(SSH, 0)[0] == -2


def test_open_goes_where_it_was_asked_to() -> None:
    """Not to what the answer says."""
    state = state_02()
    state.open(SSH, 0)
    assert state.receive(Session(-1, Target("elsewhere"), accept=True), 0) == [OpenStream(-1, SSH)]


def test_open_refused() -> None:
    """Only who asked hears of it."""
    state = state_02()
    state.open(SSH, 0)
    state.open(GNMI, 0)

    assert state.receive(Session(-1, SSH, error="no sshd"), 0) == [SessionFailed(-1, "no sshd")]
    assert state.receive(Session(-2, GNMI, accept=True), 0) == [OpenStream(-2, GNMI)]


def test_open_neither_yes_nor_no() -> None:
    """An answer that says nothing is none; the time runs on."""
    state = state_02(limits=Limits(set_up_within=10))
    state.open(SSH, 0)

    assert state.receive(Session(-1, SSH), 0) == []
    assert state.wake_at() == 10
    assert state.receive(Session(-1, SSH, accept=True), 0) == [OpenStream(-1, SSH)]


def test_open_error_outweighs_accept() -> None:
    """An answer that says both is a refusal."""
    state = state_02()
    state.open(SSH, 0)
    assert state.receive(Session(-1, SSH, accept=True, error="no"), 0) == [SessionFailed(-1, "no")]


def test_open_server_without_handler() -> None:
    """0.1: it said so, and is not asked."""
    with pytest.raises(TunnelError, match="the server has no handler"):
        state_01(server=False).open(Target("x"), 0)


def test_open_too_many() -> None:
    """Bounded; room comes back with answers and with callers that give up."""
    state = state_02(limits=Limits(max_pending=2))
    state.open(SSH, 0)
    state.open(SSH, 0)
    with pytest.raises(TunnelError, match="too many sessions are being set up"):
        state.open(SSH, 0)
    state.abandon(-1)
    assert state.open(SSH, 0)[0] == -3
    state.receive(Session(-2, SSH, error="no"), 0)
    assert state.open(SSH, 0)[0] == -4


def test_open_tags_used_up() -> None:
    """The caller is told to use a new connection, and nothing is left of it."""
    state = state_02()
    state._tags._last = -LAST_TAG
    with pytest.raises(TunnelError, match="used up its tags"):
        state.open(SSH, 0)
    assert state.wake_at() is None


def test_open_in_time_only() -> None:
    """In the order in which they were asked for; the answer is late then."""
    state = state_02(limits=Limits(set_up_within=10))
    state.open(SSH, 100)
    state.open(SSH, 104)

    assert state.wake_at() == 110
    assert state.expire(109) == []
    assert state.expire(110) == [SessionFailed(-1, "the server did not answer in time")]
    assert state.receive(Session(-1, SSH, accept=True), 111) == []
    assert state.wake_at() == 114


def test_abandon_is_not_told() -> None:
    """Who gave up is forgotten; the server hears nothing, and its answer is nobody's."""
    state = state_02()
    state.open(SSH, 0)
    state.abandon(-1)
    state.abandon(-1)

    assert state.wake_at() is None
    assert state.receive(Session(-1, SSH, accept=True), 0) == []


# -- sessions that the server wants ----------------------------------------------------------------


@pytest.mark.parametrize("state", [state_01(), state_02()])
def test_asked_and_taken(state: ClientState) -> None:
    """The client accepts by its stream, and by nothing else."""
    assert state.receive(Session(1, SSH, accept=True), 0) == [AskHandler(1, SSH)]
    assert state.respond(1, None) == [OpenStream(1, SSH)]
    assert state.respond(1, None) == []
    assert state.wake_at() is None


def test_asked_and_refused() -> None:
    """The handler's words reach the server's caller."""
    state = state_01()
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.respond(1, "no sshd") == [Send(Session(1, SSH, error="no sshd"))]
    assert state.respond(1, None) == []


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Session(0, SSH, accept=True), "tags of a server must be positive"),
        (Session(3, SSH), "the server's session request does not have accept set"),
        (Session(2, SSH, accept=True), "tag 2 is in use"),
    ],
)
def test_asked_what_cannot_be(message: Session, why: str) -> None:
    """An error for that tag, and the stream goes on."""
    state = state_02()
    state.receive(Session(2, SSH, accept=True), 0)

    assert state.receive(message, 0) == [Send(Session(message.tag, SSH, error=why))]
    assert state.respond(2, None) == [OpenStream(2, SSH)]


def test_asked_without_a_handler() -> None:
    """Said at once: the server's caller would wait for nothing."""
    assert state_02(handler=False).receive(Session(1, SSH, accept=True), 0) == [
        Send(Session(1, SSH, error="this client has no handler"))
    ]


def test_asked_too_often() -> None:
    """A bound for servers, too."""
    state = state_02(limits=Limits(max_pending=1))
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.receive(Session(2, SSH, accept=True), 0) == [
        Send(Session(2, SSH, error="too many sessions are being set up"))
    ]
    state.respond(1, None)
    assert state.receive(Session(3, SSH, accept=True), 0) == [AskHandler(3, SSH)]


def test_asked_and_the_handler_hangs() -> None:
    """The server is told in time; what the handler says later is nobody's."""
    state = state_02(limits=Limits(set_up_within=10))
    state.receive(Session(1, SSH, accept=True), 5)

    assert state.expire(15) == [Send(Session(1, SSH, error="the handler did not answer in time"))]
    assert state.respond(1, None) == []
    assert state.wake_at() is None


def test_asked_again_by_a_tag_that_is_free() -> None:
    """The time of an earlier session of that tag is not the time of this one."""
    state = state_02(limits=Limits(set_up_within=10))
    state.receive(Session(1, SSH, accept=True), 0)
    state.respond(1, "no")
    state.receive(Session(1, SSH, accept=True), 9)

    assert state.expire(10) == []
    assert state.wake_at() == 19


def test_asked_and_given_up() -> None:
    """A server that wants it no more: nothing is answered. So of tags nobody knows, and of tag 0."""
    state = state_02()
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.receive(Session(1, SSH, error="never mind"), 0) == []
    assert state.respond(1, None) == []
    assert state.receive(Session(9, SSH, error="what?"), 0) == []
    assert state.receive(Session(0, SSH, error="what?"), 0) == []


def test_broke() -> None:
    """A stream that could not be opened: the server is told of its session, and not of one of ours."""
    state = state_02()

    assert state.on_stream_failed(1, SSH, "no connection") == [Send(Session(1, SSH, error="no connection"))]
    assert state.on_stream_failed(-1, SSH, "no connection") == []


def test_end() -> None:
    """Everybody who still waits is told; nothing is left, and late answers of handlers go nowhere."""
    state = state_02()
    for target in (SSH, GNMI):
        state.open(target, 0)
    state.receive(Session(1, SSH, accept=True), 0)

    assert state.end("it broke") == [SessionFailed(-1, "it broke"), SessionFailed(-2, "it broke")]
    assert state.end("it broke") == []
    assert state.respond(1, None) == []
    assert state.wake_at() is None
    assert state.expire(1_000) == []


def test_malformed_session_is_answered_and_closed() -> None:
    """The server hears what is wrong, under its tag; whoever waits for a session of that tag hears it as well."""
    state = state_01()
    state.receive(Session(1, SSH, accept=True), 0)
    assert state.receive(Session(1, SSH, malformed_reason="odd"), 0) == [Send(Session(1, SSH, error="odd"))]
    assert state.respond(1, None) == []
    tag, _ = state.open(SSH, 0)
    assert state.receive(Session(tag, SSH, malformed_reason="odd"), 0) == [
        Send(Session(tag, SSH, error="odd")),
        SessionFailed(tag, "odd"),
    ]


def test_registered_targets_are_those_that_were_answered() -> None:
    """Not what was said and may be refused, nor what is being let go."""
    state = state_02()
    state.start([SSH, GNMI])
    assert state.registered_targets == frozenset()
    state.receive(Registration(Op.UNKNOWN, SSH, accept=True), 0)
    state.receive(Registration(Op.UNKNOWN, GNMI, error="taken"), 0)
    assert state.registered_targets == {SSH}
    state.remove(SSH)
    assert state.registered_targets == frozenset()
