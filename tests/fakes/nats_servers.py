"""Real nats-servers, built by `make peers`: hubs behind a forward that a test can hold, and their leaf nodes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.processes import children
from fleet.processes.valkey import find_free_port
from tests.fakes.programs import BUILT, Peer, run_program

PROGRAM = BUILT / "nats-server"
#: A dead connection is found within 2 s, and opened again after 0.5 s.
_COMMON = 'ping_interval: "1s"\nping_max: 1\nwrite_deadline: "2s"\n'


@dataclass(slots=True)
class NATSServer:
    """A hub or leaf node that can be stopped and started again with the same ports."""

    name: str
    config: str
    folder: Path
    stack: contextlib.ExitStack
    monitoring_address: str = ""
    peer: Peer | None = None

    def start(self) -> None:
        """Start the server, and wait until it is ready."""
        path = self.folder / f"{self.name}.conf"
        path.write_text(self.config)
        program = run_program(self.name, [str(PROGRAM), "-c", str(path)], self.folder)
        self.peer = self.stack.enter_context(program)
        self.peer.await_output("Server is ready")

    def kill(self) -> None:
        """End the server without a goodbye."""
        assert self.peer is not None, "the server was started"
        self.peer.process.kill()
        children.stop([self.peer.process])


class ForwardThread:
    """Forwards in an event loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._forwards: list[Forward] = []

    def add(self, port: int) -> Forward:
        """Start a forward to a port on loopback."""
        forward = Forward(f"to-{port}", ("127.0.0.1", 0), ("127.0.0.1", port))
        asyncio.run_coroutine_threadsafe(forward.start(), self._loop).result(30)
        self._forwards.append(forward)
        return forward

    def change(self, forward: Forward, mode: ForwardMode) -> None:
        """Pass or hold the connections of a forward."""
        asyncio.run_coroutine_threadsafe(forward.change(mode=mode), self._loop).result(30)

    def stop(self) -> None:
        """Stop all forwards."""
        for forward in self._forwards:
            asyncio.run_coroutine_threadsafe(forward.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@dataclass(slots=True)
class NATSFleet:
    """Hubs and leaf nodes by name, and the forward to the leaf port of each hub."""

    folder: Path
    stack: contextlib.ExitStack
    forwarding: ForwardThread
    servers: dict[str, NATSServer] = field(default_factory=dict)
    forwards: dict[str, Forward] = field(default_factory=dict)

    def add_hub(self, name: str) -> NATSServer:
        """Start a hub that advertises the forward to its port for leaf nodes."""
        port, leaf_port, monitoring_port = (find_free_port() for _ in range(3))
        forward = self.forwards[name] = self.forwarding.add(leaf_port)
        config = (
            f'server_name: {name}\nlisten: "127.0.0.1:{port}"\nhttp: "127.0.0.1:{monitoring_port}"\n{_COMMON}'
            f'leafnodes {{ listen: "127.0.0.1:{leaf_port}", advertise: "127.0.0.1:{forward.listen[1]}" }}\n'
        )
        return self._start(NATSServer(name, config, self.folder, self.stack, f"127.0.0.1:{monitoring_port}"))

    def add_leaf(self, name: str, hub: str) -> NATSServer:
        """Start a leaf node of a hub."""
        url = f"nats-leaf://127.0.0.1:{self.forwards[hub].listen[1]}"
        config = (
            f'server_name: {name}\nlisten: "127.0.0.1:{find_free_port()}"\n{_COMMON}'
            f'leafnodes {{ reconnect: "500ms", remotes: [ {{ url: "{url}" }} ] }}\n'
        )
        return self._start(NATSServer(name, config, self.folder, self.stack))

    def _start(self, server: NATSServer) -> NATSServer:
        server.start()
        self.servers[server.name] = server
        return server


@contextlib.contextmanager
def run_fleet(folder: Path) -> Iterator[NATSFleet]:
    """Run a fleet to which a test adds hubs and leaf nodes."""
    forwarding = ForwardThread()
    try:
        with contextlib.ExitStack() as stack:
            yield NATSFleet(folder, stack, forwarding)
    finally:
        forwarding.stop()
