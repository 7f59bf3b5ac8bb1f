"""Both ends of tunnels joined by queues: for any events no request waits for ever, and no state remains."""

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
from fleet.protocol.tunnel.server_state import (
    ClientConnection,
    Limits,
    OutgoingRequest,
    Peer,
    ServerState,
)

TARGETS = [Target(name, kind) for name in "ab" for kind in ("SSH", "GNMI")]
LIMITS = Limits(max_pending_sessions=3, set_up_timeout=10, max_targets=3)
picks = st.integers(0, 1_000)


@dataclass(eq=False)
class Client:
    """A client, its connection, and the messages in transit in both directions."""

    connection: ClientConnection
    state: ClientState
    to_server: deque[Message] = field(default_factory=deque)
    to_client: deque[Message] = field(default_factory=deque)
    #: Tags of streams in transit to the server.
    streams: deque[int] = field(default_factory=deque)
    #: Tags of handler queries without a response: the client's, and the server's.
    client_queries: list[int] = field(default_factory=list)
    server_queries: list[int] = field(default_factory=list)
    #: The outcome of each session that this client requested; empty while it is pending.
    outcomes: dict[int, str] = field(default_factory=dict)
    is_connected: bool = True


class Tunnels(RuleBasedStateMachine):
    """A server and its clients; each rule is an event that may happen next."""

    wire = WireVersion.V0_2

    @initialize(handler=st.booleans(), bridge=st.booleans())
    def begin(self, handler: bool, bridge: bool) -> None:
        local = None if self.wire is WireVersion.V0_1 else frozenset(TARGETS[:1])
        self.server = ServerState(self.wire, has_handler=handler, local=local, bridge=bridge, limits=LIMITS)
        self.now = 0.0
        self.clients: list[Client] = []
        self.all: list[Client] = []
        #: The outcome of each session that the server requested; empty while it is pending.
        self.outcomes: dict[OutgoingRequest, str] = {}
        self.streams: list[tuple[ClientConnection, int]] = []

    # -- effects ---------------------------------------------------------------------------------

    def apply_server_effects(self, effects: list[tunnel_server.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, tunnel_server.SendToClient):
                client = self.client_of(effect.connection)
                assert client.is_connected, "message to a closed connection"
                client.to_client.append(effect.message)
            elif isinstance(effect, tunnel_server.QuerySessionHandler):
                client = self.client_of(effect.connection)
                assert client.is_connected
                client.server_queries.append(effect.tag)
            elif isinstance(effect, tunnel_server.RequestFailed):
                assert self.outcomes[effect.request] == "", "reported twice"
                self.outcomes[effect.request] = effect.error
                assert effect.error
            elif isinstance(effect, tunnel_server.TargetAdded):
                assert self.server.owner_of(effect.target) is effect.connection
            else:
                assert effect.target not in effect.connection.targets

    def client_of(self, connection: ClientConnection) -> Client:
        return next(client for client in self.all if client.connection is connection)

    def apply_client_effects(self, client: Client, effects: list[tunnel_client.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, tunnel_client.SendToServer):
                client.to_server.append(effect.message)
            elif isinstance(effect, tunnel_client.QueryRegisterHandler):
                client.client_queries.append(effect.tag)
            elif isinstance(effect, tunnel_client.OpenStream):
                client.streams.append(effect.tag)
                if effect.tag < 0:
                    assert client.outcomes[effect.tag] == "", "answered twice"
                    client.outcomes[effect.tag] = "opened"
            elif isinstance(effect, tunnel_client.SessionFailed):
                assert client.outcomes[effect.tag] == "", "reported twice"
                client.outcomes[effect.tag] = effect.error
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
        self.apply_server_effects(effects)
        self.apply_client_effects(client, client.state.start())

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def disconnect(self, pick: int) -> None:
        self.close_client(self.clients[pick % len(self.clients)])

    def close_client(self, client: Client) -> None:
        client.is_connected = False
        if client in self.clients:
            self.clients.remove(client)
        self.apply_server_effects(self.server.disconnect(client.connection))
        self.apply_client_effects(client, client.state.end("the tunnel connection was lost"))
        client.to_server.clear()
        client.to_client.clear()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def receive_from_client(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.to_server:
            try:
                self.apply_server_effects(
                    self.server.receive(client.connection, client.to_server.popleft(), self.now)
                )
            except TunnelError:
                self.close_client(client)

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def receive_from_server(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.to_client:
            try:
                self.apply_client_effects(client, client.state.receive(client.to_client.popleft(), self.now))
            except TunnelError:
                self.close_client(client)

    @precondition(lambda self: self.wire is WireVersion.V0_2 and self.clients)
    @rule(pick=picks, tunnel_target=st.sampled_from(TARGETS), add=st.booleans())
    def change_targets(self, pick: int, tunnel_target: Target, add: bool) -> None:
        client = self.clients[pick % len(self.clients)]
        try:
            self.apply_client_effects(
                client, client.state.add(tunnel_target) if add else client.state.remove(tunnel_target)
            )
        except TunnelError:
            return

    @precondition(lambda self: self.clients)
    @rule(pick=picks, tunnel_target=st.sampled_from(TARGETS))
    def client_opens_session(self, pick: int, tunnel_target: Target) -> None:
        client = self.clients[pick % len(self.clients)]
        try:
            tag, effects = client.state.request_session(tunnel_target, self.now)
        except TunnelError:
            return
        client.outcomes[tag] = ""
        self.apply_client_effects(client, effects)

    @precondition(lambda self: self.clients)
    @rule(pick=picks, tag_pick=picks)
    def client_abandons_session(self, pick: int, tag_pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if pending := [tag for tag, outcome in client.outcomes.items() if not outcome]:
            tag = pending[tag_pick % len(pending)]
            client.state.abandon(tag)
            client.outcomes[tag] = "abandoned"

    @rule(tunnel_target=st.sampled_from(TARGETS), has_client=st.booleans(), pick=picks)
    def server_opens_session(self, tunnel_target: Target, has_client: bool, pick: int) -> None:
        owner = self.all[pick % len(self.all)].connection if has_client and self.all else None
        try:
            request, effects = self.server.request_session(tunnel_target, self.now, owner)
        except TunnelError:
            return
        self.outcomes[request] = ""
        self.apply_server_effects(effects)

    @rule(pick=picks)
    def server_abandons_session(self, pick: int) -> None:
        if pending := [request for request, outcome in self.outcomes.items() if not outcome]:
            request = pending[pick % len(pending)]
            self.server.abandon(request)
            self.outcomes[request] = "abandoned"

    @precondition(lambda self: self.all)
    @rule(pick=picks, error=st.sampled_from([None, "no"]))
    def client_handler_responds(self, pick: int, error: str | None) -> None:
        client = self.all[pick % len(self.all)]
        if client.client_queries:
            effects = client.state.respond(client.client_queries.pop(0), error)
            assert client.is_connected or not effects, "a stream for a tunnel that is down"
            self.apply_client_effects(client, effects)

    @precondition(lambda self: self.all)
    @rule(pick=picks, error=st.sampled_from([None, "no"]))
    def server_handler_responds(self, pick: int, error: str | None) -> None:
        client = self.all[pick % len(self.all)]
        if client.server_queries:
            self.apply_server_effects(
                self.server.respond(client.connection, client.server_queries.pop(0), error)
            )

    @precondition(lambda self: self.all)
    @rule(pick=picks, is_lost=st.booleans())
    def stream_arrives(self, pick: int, is_lost: bool) -> None:
        client = self.all[pick % len(self.all)]
        if not client.streams:
            return
        tag = client.streams.popleft()
        if is_lost:
            if client.is_connected:
                self.apply_client_effects(client, client.state.on_stream_failed(tag, TARGETS[0], "it broke"))
            return
        self.attach(client, tag)

    def attach(self, client: Client, tag: int) -> None:
        try:
            request = self.server.attach_stream(client.connection, tag)
        except TunnelError:
            return
        assert client.is_connected
        self.streams.append((client.connection, tag))
        if isinstance(request, OutgoingRequest):
            assert self.outcomes[request] == "", "answered twice"
            self.outcomes[request] = "opened"

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
        is_to_server=st.booleans(),
    )
    def stray_session(self, pick: int, tag: int, accept: bool, error: str, is_to_server: bool) -> None:
        client = self.clients[pick % len(self.clients)]
        (client.to_server if is_to_server else client.to_client).append(
            Session(tag, TARGETS[0], accept, error)
        )

    @rule(pick=picks)
    def stream_ends(self, pick: int) -> None:
        if self.streams:
            self.server.detach_stream(*self.streams.pop(pick % len(self.streams)))

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.apply_server_effects(self.server.expire(self.now))
        for client in list(self.clients):
            self.apply_client_effects(client, client.state.expire(self.now))

    # -- laws ------------------------------------------------------------------------------------

    @invariant()
    def pending_requests_are_in_the_states(self) -> None:
        """The states hold exactly the pending requests, so each one ends in time."""
        for request, outcome in self.outcomes.items():
            assert bool(request.pending_tags) is not bool(outcome)
            for connection, tag in request.pending_tags.items():
                assert connection.outgoing_requests[tag] is request
        for client in self.all:
            assert set(client.state._outgoing_requests) == {
                tag for tag, outcome in client.outcomes.items() if not outcome
            }

    @invariant()
    def limits_hold(self) -> None:
        """Every client stays within the limits, and only connected clients own targets."""
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
            if not client.is_connected:
                assert (connection.outgoing_requests, connection.incoming_requests) == ({}, {})
        connections = {client.connection for client in self.clients}
        for target, owner in self.server.targets().items():
            assert owner in connections
            assert target in owner.targets

    def teardown(self) -> None:
        """Check that no request stays pending, and that no state remains without clients."""
        if not hasattr(self, "server"):
            return
        self.time_passes(11.0)
        assert all(self.outcomes.values())
        for client in self.all:
            assert all(client.outcomes.values())
        for client in list(self.clients):
            self.close_client(client)
        for stream in self.streams:
            self.server.detach_stream(*stream)
        assert (self.server.wake_at(), len(self.server._deadlines), self.server.targets()) == (None, 0, {})
        for client in self.all:
            connection = client.connection
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
            assert client.state.wake_at() is None


class TunnelsOfTheFirstVersion(Tunnels):
    """The same machine for version 0.1: with capabilities, without targets."""

    wire = WireVersion.V0_1


_settings = hypothesis.settings(max_examples=150, stateful_step_count=60, deadline=None)
TestTunnels = Tunnels.TestCase
TestTunnels.settings = _settings
TestTunnelsOfTheFirstVersion = TunnelsOfTheFirstVersion.TestCase
TestTunnelsOfTheFirstVersion.settings = _settings
