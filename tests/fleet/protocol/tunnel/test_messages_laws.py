"""Both ends of tunnels joined by queues, and whatever happens: nobody waits for ever, and nothing is left."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.protocol.tunnel import client_state as tunnel_client
from fleet.protocol.tunnel import server_state as tunnel_server
from fleet.protocol.tunnel.client_state import ClientState
from fleet.protocol.tunnel.messages import Message, Session, Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import ClientConnection, Limits, Peer, ServerRequest, ServerState

TARGETS = [Target(name, kind) for name in "ab" for kind in ("SSH", "GNMI")]
LIMITS = Limits(max_pending=3, set_up_within=10, max_targets=3)
picks = st.integers(0, 1_000)


@dataclass(eq=False)
class Client:
    """One client, its connection, and what is on its way between them."""

    connection: ClientConnection
    state: ClientState
    up: deque[Message] = field(default_factory=deque)
    down: deque[Message] = field(default_factory=deque)
    #: Streams on their way to the server.
    streams: deque[int] = field(default_factory=deque)
    #: Handlers that were asked and think: the client's, and the server's.
    asked: list[int] = field(default_factory=list)
    thinking: list[int] = field(default_factory=list)
    #: Sessions that this client asked for, and the end each had.
    wanted: dict[int, str] = field(default_factory=dict)
    there: bool = True


class Tunnels(RuleBasedStateMachine):
    """A server and its clients; each step is one thing that can happen next."""

    wire = WireVersion.V0_2

    @initialize(handler=st.booleans(), bridge=st.booleans())
    def begin(self, handler: bool, bridge: bool) -> None:
        local = None if self.wire is WireVersion.V0_1 else frozenset(TARGETS[:1])
        self.server = ServerState(self.wire, has_handler=handler, local=local, bridge=bridge, limits=LIMITS)
        self.now = 0.0
        self.clients: list[Client] = []
        self.all: list[Client] = []
        #: Sessions that the server asked for, and the end each had.
        self.wanted: dict[ServerRequest, str] = {}
        self.streams: list[tuple[ClientConnection, int]] = []

    # -- effects ---------------------------------------------------------------------------------

    def serve(self, effects: list[tunnel_server.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, tunnel_server.Send):
                client = self.of(effect.to)
                assert client.there, "said to a connection that is gone"
                client.down.append(effect.message)
            elif isinstance(effect, tunnel_server.AskHandler):
                client = self.of(effect.connection)
                assert client.there
                client.thinking.append(effect.tag)
            elif isinstance(effect, tunnel_server.RequestFailed):
                assert self.wanted[effect.request] == "", "told twice"
                self.wanted[effect.request] = effect.error
                assert effect.error
            elif isinstance(effect, tunnel_server.TargetAdded):
                assert self.server.owner(effect.target) is effect.connection
            else:
                assert effect.target not in effect.connection.targets

    def of(self, connection: ClientConnection) -> Client:
        return next(client for client in self.all if client.connection is connection)

    def do(self, client: Client, effects: list[tunnel_client.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, tunnel_client.Send):
                client.up.append(effect.message)
            elif isinstance(effect, tunnel_client.AskHandler):
                client.asked.append(effect.tag)
            elif isinstance(effect, tunnel_client.OpenStream):
                client.streams.append(effect.tag)
                if effect.tag < 0:
                    assert client.wanted[effect.tag] == "", "answered twice"
                    client.wanted[effect.tag] = "opened"
            elif isinstance(effect, tunnel_client.SessionFailed):
                assert client.wanted[effect.tag] == "", "told twice"
                client.wanted[effect.tag] = effect.error
                assert effect.error

    # -- steps -----------------------------------------------------------------------------------

    @rule(handler=st.booleans(), name=st.sampled_from(["", "r7"]))
    def connect(self, handler: bool, name: str) -> None:
        if len(self.clients) >= 3:
            return
        peer = Peer((), name, len(self.all))
        connection, effects = self.server.connect(f"c{len(self.all)}", peer)
        client = Client(connection, ClientState(self.wire, has_handler=handler, limits=LIMITS))
        self.clients.append(client)
        self.all.append(client)
        self.serve(effects)
        self.do(client, client.state.start())

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def disconnect(self, pick: int) -> None:
        self.leave(self.clients[pick % len(self.clients)])

    def leave(self, client: Client) -> None:
        client.there = False
        if client in self.clients:
            self.clients.remove(client)
        self.serve(self.server.disconnect(client.connection))
        self.do(client, client.state.end("the tunnel connection was lost"))
        client.up.clear()
        client.down.clear()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def hear_client(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.up:
            try:
                self.serve(self.server.receive(client.connection, client.up.popleft(), self.now))
            except TunnelError:
                self.leave(client)

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def hear_server(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.down:
            try:
                self.do(client, client.state.receive(client.down.popleft(), self.now))
            except TunnelError:
                self.leave(client)

    @precondition(lambda self: self.wire is WireVersion.V0_2 and self.clients)
    @rule(pick=picks, what=st.sampled_from(TARGETS), add=st.booleans())
    def change_targets(self, pick: int, what: Target, add: bool) -> None:
        client = self.clients[pick % len(self.clients)]
        try:
            self.do(client, client.state.add(what) if add else client.state.remove(what))
        except TunnelError:
            return

    @precondition(lambda self: self.clients)
    @rule(pick=picks, what=st.sampled_from(TARGETS))
    def client_wants(self, pick: int, what: Target) -> None:
        client = self.clients[pick % len(self.clients)]
        try:
            tag, effects = client.state.open(what, self.now)
        except TunnelError:
            return
        client.wanted[tag] = ""
        self.do(client, effects)

    @precondition(lambda self: self.clients)
    @rule(pick=picks, which=picks)
    def client_gives_up(self, pick: int, which: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if waiting := [tag for tag, end in client.wanted.items() if not end]:
            tag = waiting[which % len(waiting)]
            client.state.abandon(tag)
            client.wanted[tag] = "given up"

    @rule(what=st.sampled_from(TARGETS), named=st.booleans(), pick=picks)
    def server_wants(self, what: Target, named: bool, pick: int) -> None:
        to = self.all[pick % len(self.all)].connection if named and self.all else None
        try:
            request, effects = self.server.open(what, self.now, to)
        except TunnelError:
            return
        self.wanted[request] = ""
        self.serve(effects)

    @rule(pick=picks)
    def server_gives_up(self, pick: int) -> None:
        if waiting := [request for request, end in self.wanted.items() if not end]:
            request = waiting[pick % len(waiting)]
            self.server.abandon(request)
            self.wanted[request] = "given up"

    @precondition(lambda self: self.all)
    @rule(pick=picks, error=st.sampled_from([None, "no"]))
    def client_handler_answers(self, pick: int, error: str | None) -> None:
        client = self.all[pick % len(self.all)]
        if client.asked:
            effects = client.state.respond(client.asked.pop(0), error)
            assert client.there or not effects, "a stream for a tunnel that is down"
            self.do(client, effects)

    @precondition(lambda self: self.all)
    @rule(pick=picks, error=st.sampled_from([None, "no"]))
    def server_handler_answers(self, pick: int, error: str | None) -> None:
        client = self.all[pick % len(self.all)]
        if client.thinking:
            self.serve(self.server.respond(client.connection, client.thinking.pop(0), error))

    @precondition(lambda self: self.all)
    @rule(pick=picks, lost=st.booleans())
    def stream_comes(self, pick: int, lost: bool) -> None:
        client = self.all[pick % len(self.all)]
        if not client.streams:
            return
        tag = client.streams.popleft()
        if lost:
            if client.there:
                self.do(client, client.state.on_stream_failed(tag, TARGETS[0], "it broke"))
            return
        self.attach(client, tag)

    def attach(self, client: Client, tag: int) -> None:
        try:
            found = self.server.attach(client.connection, tag)
        except TunnelError:
            return
        assert client.there
        self.streams.append((client.connection, tag))
        if isinstance(found, ServerRequest):
            assert self.wanted[found] == "", "answered twice"
            self.wanted[found] = "opened"

    @precondition(lambda self: self.clients)
    @rule(pick=picks, tag=st.integers(-4, 4))
    def stray_stream(self, pick: int, tag: int) -> None:
        self.attach(self.clients[pick % len(self.clients)], tag)

    @precondition(lambda self: self.clients)
    @rule(
        pick=picks,
        tag=st.integers(-4, 4),
        accept=st.booleans(),
        error=st.sampled_from(["", "odd"]),
        up=st.booleans(),
    )
    def stray_words(self, pick: int, tag: int, accept: bool, error: str, up: bool) -> None:
        client = self.clients[pick % len(self.clients)]
        (client.up if up else client.down).append(Session(tag, TARGETS[0], accept, error))

    @rule(pick=picks)
    def stream_ends(self, pick: int) -> None:
        if self.streams:
            self.server.detach(*self.streams.pop(pick % len(self.streams)))

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.serve(self.server.expire(self.now))
        for client in list(self.clients):
            self.do(client, client.state.expire(self.now))

    # -- laws ------------------------------------------------------------------------------------

    @invariant()
    def who_waits_is_waited_for(self) -> None:
        """The states know of exactly those who wait, so each will be told in time."""
        for request, end in self.wanted.items():
            assert bool(request.pending_tags) is not bool(end)
            for connection, tag in request.pending_tags.items():
                assert connection.outgoing_requests[tag] is request
        for client in self.all:
            assert set(client.state._outgoing_requests) == {
                tag for tag, end in client.wanted.items() if not end
            }

    @invariant()
    def bounds_hold(self) -> None:
        """Whatever is said: one client has so much and no more; and owners are those who are there."""
        for client in self.all:
            connection = client.connection
            assert (
                max(
                    len(connection.outgoing_requests),
                    len(connection.incoming_requests),
                    len(client.state._incoming_requests),
                )
                <= 3
            )
            assert len(connection.targets) <= 3
            if not client.there:
                assert (connection.outgoing_requests, connection.incoming_requests) == ({}, {})
        there = {client.connection for client in self.clients}
        for target, owner in self.server.targets().items():
            assert owner in there
            assert target in owner.targets

    def teardown(self) -> None:
        """When the time is over nobody waits; when all have left nothing is left."""
        if not hasattr(self, "server"):
            return
        self.time_passes(11.0)
        assert all(self.wanted.values())
        for client in self.all:
            assert all(client.wanted.values())
        for client in list(self.clients):
            self.leave(client)
        for stream in self.streams:
            self.server.detach(*stream)
        assert (self.server.wake_at(), len(self.server._deadlines), self.server.targets()) == (None, 0, {})
        for client in self.all:
            found = client.connection
            assert [found.outgoing_requests, found.incoming_requests, found.open_tags, found.targets] == [
                {},
                {},
                set(),
                set(),
            ]
            assert client.state.wake_at() is None


class TunnelsOfTheFirstVersion(Tunnels):
    """The same with capabilities, and without targets."""

    wire = WireVersion.V0_1


_settings = hypothesis.settings(max_examples=150, stateful_step_count=60, deadline=None)
TestTunnels = Tunnels.TestCase
TestTunnels.settings = _settings
TestTunnelsOfTheFirstVersion = TunnelsOfTheFirstVersion.TestCase
TestTunnelsOfTheFirstVersion.settings = _settings
