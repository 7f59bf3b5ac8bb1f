"""Our tunnel with the real peers: every mix of our programs and those of openconfig/grpctunnel, and OpenSSH through it.

Theirs are the unmodified programs of the Go module, built by `make peers`.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.processes import valkey
from fleet.transport.certificate_authority import KeyPair
from tests.bench._tunnel_variants import make_keys
from tests.fakes import go_tunnel, openssh, our_tunnel
from tests.fakes.openssh import Sshd
from tests.fakes.programs import skip_without
from tests.fakes.waiting import eventually_sync
from tests.flow.transfers import Service, connect, service, transfer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_NAME, _KIND = "router-7", "SSH"
_TARGET = f"{_NAME}:{_KIND}"
_MIB = 1024 * 1024
_SECURITY = ("plain", "tls", "mtls")


@dataclass(frozen=True, slots=True)
class Mix:
    """Which implementation is the client, the server and the target."""

    server: str
    target: str
    client: str
    security: str

    def __str__(self) -> str:
        return f"{self.server}-server, {self.target}-target, {self.client}-client, {self.security}"


def _mixes() -> list[Mix]:
    """All but those without us; their client cannot do TLS without a certificate of its own."""
    return [
        mix
        for server in ("our", "go")
        for target in ("our", "go")
        for client in ("our", "go")
        for security in _SECURITY
        if (mix := Mix(server, target, client, security)) and "our" in (server, target, client)
        if not (client == "go" and security == "tls")
    ]


class Ground:
    """Starts the parts of a mix."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, security: str) -> None:
        self._folder = folder
        self._stack = stack
        self._mutual = security == "mtls"
        self._keys: KeyPair | None = None if security == "plain" else make_keys(folder / "keys", _NAME)

    def start(self, whose_server: str, whose_target: str, service: str) -> str:
        """Start a server and a target that leads to `service`; return where the server listens."""
        if whose_server == "our":
            serve_context = our_tunnel.serve(self._folder, tls=self._keys, mutual=self._mutual)
            refloat_server = self._stack.enter_context(serve_context)
            self.target(whose_target, refloat_server.address, service)
            if whose_target == "go":
                refloat_server.peer.await_output(rf"target {_NAME}.* registered")
            return refloat_server.address
        go_server = go_tunnel.server(self._folder, tls=self._keys, mutual=self._mutual)
        server = self._stack.enter_context(go_server)
        self.target(whose_target, server.address, service)
        server.await_target(_NAME, _KIND)
        return server.address

    def target(self, implementation: str, server: str, service: str) -> None:
        """Start a target."""
        if implementation == "our":
            flags = ("--target", f"{_TARGET}={service}")
            refloat_target = our_tunnel.register(
                self._folder, server, *flags, tls=self._keys, mutual=self._mutual
            )
            self._stack.enter_context(refloat_target)
        else:
            dials = {(_NAME, _KIND): service}
            go_target = go_tunnel.target(self._folder, server, dials, tls=self._keys, mutual=self._mutual)
            self._stack.enter_context(go_target)

    def client_argv(self, implementation: str, server: str) -> list[str]:
        """Return the command of a client that opens one session on standard input and output."""
        if implementation == "our":
            return our_tunnel.dial_argv(server, _TARGET, tls=self._keys, mutual=self._mutual)
        return go_tunnel.client_argv(server, _NAME, _KIND, tls=self._keys)

    def forward(self, server: str) -> str:
        """Start our client with a local port, and return where."""
        flags = ("--forward", f"127.0.0.1:0={_TARGET}")
        dialler = our_tunnel.dial(self._folder, server, *flags, tls=self._keys, mutual=self._mutual)
        return self._stack.enter_context(dialler).forwards[_TARGET]

    def serving_forward(self) -> our_tunnel.TunnelProgram:
        """Start our server with a local port."""
        flags = ("--forward", f"127.0.0.1:0={_TARGET}")
        return self._stack.enter_context(
            our_tunnel.serve(self._folder, *flags, tls=self._keys, mutual=self._mutual)
        )


@pytest.fixture
def go_peers() -> None:
    """Skip without the Go programs, or fail in CI."""
    skip_without(go_tunnel.missing_reason())


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Stops everything that a test started."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def target_service(stack: contextlib.ExitStack) -> Service:
    """The service that checks what it gets."""
    return stack.enter_context(service())


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A real sshd; loud without one."""
    skip_without(openssh.missing_reason())
    with openssh.sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def _session(sshd: Sshd, proxy_command: list[str]) -> None:
    """Log in through `proxy_command`, send 8 MiB into a command there and read what it makes of them."""
    payload = random.Random(7).randbytes(8 * _MIB)
    proxy = shlex.join(proxy_command)
    argv = sshd.ssh(sshd.host, "sha256sum; echo stderr >&2; exit 7", proxy_command=proxy)
    ssh = subprocess.run(
        argv, input=payload, capture_output=True, timeout=600, check=False, env=our_tunnel.environment()
    )
    assert ssh.stdout.split()[:1] == [hashlib.sha256(payload).hexdigest().encode()], ssh.stderr.decode()
    assert ssh.returncode == 7


@pytest.mark.parametrize("mix", _mixes(), ids=str)
def test_ssh_session_through_every_mix(
    go_peers: None, sshd: Sshd, mix: Mix, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A real login: its command gets all we send, and its output and exit code come back."""
    ground = Ground(tmp_path, stack, mix.security)
    server = ground.start(mix.server, mix.target, sshd.address)
    _session(sshd, ground.client_argv(mix.client, server))


@pytest.mark.parametrize("security", _SECURITY)
def test_large_transfer_from_refloat_server_to_go_target(
    go_peers: None, target_service: Service, security: str, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """256 MiB each way through a local port of our server, every byte right, and both ends see the end."""
    ground = Ground(tmp_path, stack, security)
    server = ground.serving_forward()
    ground.target("go", server.address, target_service.address)
    server.peer.await_output(rf"target {_NAME}.* registered")
    _transfer_and_end(target_service, server.forwards[_TARGET], 256 * _MIB)


@pytest.mark.parametrize("security", _SECURITY)
@pytest.mark.parametrize("target", ["our", "go"])
def test_large_transfer_through_go_server(
    go_peers: None,
    target_service: Service,
    target: str,
    security: str,
    tmp_path: Path,
    stack: contextlib.ExitStack,
) -> None:
    """256 MiB each way from a local port of our client, bridged by their server."""
    ground = Ground(tmp_path, stack, security)
    server = ground.start("go", target, target_service.address)
    _transfer_and_end(target_service, ground.forward(server), 256 * _MIB)


def _transfer_and_end(target_service: Service, address: str, size: int) -> None:
    with connect(address) as sock:
        transfer(sock, size)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b"", "the session ends with its user"
    eventually_sync(lambda: target_service.open == 0)
    assert target_service.closed_count == 1


def test_many_sessions_at_once_with_go_target(
    go_peers: None, target_service: Service, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """Forty connections open together, each gets its own bytes; afterwards nothing is left open at the service."""
    ground = Ground(tmp_path, stack, "plain")
    server = ground.serving_forward()
    ground.target("go", server.address, target_service.address)
    server.peer.await_output(rf"target {_NAME}.* registered")
    socks = [connect(server.forwards[_TARGET]) for _ in range(40)]
    for turn, sock in enumerate(socks):
        transfer(sock, 1000 + turn)
    for sock in socks:
        sock.close()
    eventually_sync(lambda: target_service.open == 0)


def test_killed_go_target_aborts_its_user(
    go_peers: None, target_service: Service, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A Go target gets SIGKILL: the user's connection is reset, never ended in an orderly way."""
    ground = Ground(tmp_path, stack, "plain")
    server = ground.serving_forward()
    go_target = go_tunnel.target(tmp_path, server.address, {(_NAME, _KIND): target_service.address})
    peer = stack.enter_context(go_target)
    server.peer.await_output(rf"target {_NAME}.* registered")
    with connect(server.forwards[_TARGET]) as sock:
        transfer(sock, _MIB)
        peer.process.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    server.peer.await_output(rf"target {_NAME}.* deregistered")


def test_go_target_with_unreachable_service_registers_again(
    go_peers: None, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A Go target ends when its dial fails and registers again: its user is reset, and the next user is served."""
    ground = Ground(tmp_path, stack, "plain")
    server = ground.serving_forward()
    port = valkey.find_free_port()
    ground.target("go", server.address, f"127.0.0.1:{port}")
    server.peer.await_output(rf"target {_NAME}.* registered")
    # The reset may come before the connection is told to be there.
    with pytest.raises(ConnectionResetError), connect(server.forwards[_TARGET]) as sock:
        sock.recv(1)
    server.peer.await_output(rf"target {_NAME}.* deregistered")
    stack.enter_context(service(port))

    def works() -> bool:
        try:
            with connect(server.forwards[_TARGET]) as sock:
                transfer(sock, 1000)
        except OSError:
            return False
        return True

    eventually_sync(works, seconds=120)


def test_killed_go_server_aborts_refloat_user(
    go_peers: None, target_service: Service, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A Go server gets SIGKILL: connections through it are reset at both ends of our tunnel."""
    ground = Ground(tmp_path, stack, "plain")
    server = stack.enter_context(go_tunnel.server(tmp_path))
    ground.target("our", server.address, target_service.address)
    server.await_target(_NAME, _KIND)
    with connect(ground.forward(server.address)) as sock:
        transfer(sock, _MIB)
        server.peer.process.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    eventually_sync(lambda: target_service.open == 0)
    assert target_service.closed_count == 0


def test_unknown_target_is_refused_by_go_server_in_one_line(
    go_peers: None, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """Our client prints the Go server's message and exits with 2."""
    server = stack.enter_context(go_tunnel.server(tmp_path))
    argv = our_tunnel.dial_argv(server.address, "nobody:SSH")
    ssh = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=our_tunnel.environment(),
    )
    assert ssh.returncode == 2
    assert 'no target "nobody" of type "SSH" registered' in ssh.stderr
    assert len(ssh.stderr.splitlines()) == 1


def test_go_client_reaches_a_target_of_refloat_server(
    go_peers: None, sshd: Sshd, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A Go client subscribes first and dials the announced targets: `--service` targets, also without a bridge."""
    flags = ("--no-bridge", "--service", f"{_TARGET}={sshd.address}")
    server = stack.enter_context(our_tunnel.serve(tmp_path, *flags))
    _session(sshd, go_tunnel.client_argv(server.address, _NAME, _KIND))


def test_refused_target_registers_when_its_owner_is_gone(
    go_peers: None, target_service: Service, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """Their server refuses a target that another client has: we say so, ask again, and serve it once that is gone."""
    server = stack.enter_context(go_tunnel.server(tmp_path))
    flags = ("--target", f"{_TARGET}={target_service.address}")
    with our_tunnel.register(tmp_path, server.address, *flags) as first:
        server.await_target(_NAME, _KIND)
        second = stack.enter_context(our_tunnel.register(tmp_path, server.address, *flags, name="second"))
        assert '"targets": []' in second.peer.output_text()
        assert f'"refused": {{"{_TARGET}": ' in second.peer.output_text()
        first.peer.process.send_signal(signal.SIGKILL)
        first.peer.process.wait(60)
    second.peer.await_output(rf"target {_NAME} \({_KIND}\) is registered now, after it was refused")
    flags = ("--forward", f"127.0.0.1:0={_TARGET}")
    dialler = stack.enter_context(our_tunnel.dial(tmp_path, server.address, *flags))
    with connect(dialler.forwards[_TARGET]) as sock:
        transfer(sock, 100_000)


def test_sessions_continue_while_go_server_closes_connections(
    go_peers: None, target_service: Service, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """Their server waits for a session without end: while it lets go of one connection after the other, every session
    is served or refused, and none is left to wait."""
    server = stack.enter_context(go_tunnel.listener(tmp_path, _NAME, _KIND, max_age="1s"))
    flags = ("--target", f"{_TARGET}={target_service.address}")
    refloat_target = stack.enter_context(our_tunnel.register(tmp_path, server.address, *flags))
    server.peer.await_output(r"handling target addition")
    served_count = refused_count = 0
    while refloat_target.peer.output_text().count("registering on a new one") < 5 or served_count < 20:
        with connect(server.listen) as sock:
            sock.settimeout(30)
            try:
                transfer(sock, 1000)
                served_count += 1
            except ConnectionError:
                refused_count += 1
        assert served_count + refused_count < 100_000
