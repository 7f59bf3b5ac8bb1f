"""`refloat tunnel` as people run it: a server, targets behind it, ports and pipes to them, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.main import main
from fleet.nodes.tunnel.client import ClientPlan, _make_run_name
from fleet.processes import valkey
from fleet.transport.tls import TLSFiles
from tests.bench._tunnel_variants import make_keys
from tests.fakes import our_tunnel
from tests.fakes.waiting import eventually_sync
from tests.flow.transfers import Service, connect, service, transfer


@pytest.fixture
def checked() -> Iterator[Service]:
    """A service that checks what it gets."""
    with service() as running:
        yield running


def _forward(name: str = "r:SSH") -> tuple[str, str]:
    return ("--forward", f"127.0.0.1:0={name}")


def _target(checked: Service, name: str = "r:SSH") -> tuple[str, str]:
    return ("--target", f"{name}={checked.address}")


@pytest.mark.parametrize("security", ["plain", "tls"])
def test_server_port_leads_to_a_registered_target(checked: Service, security: str, tmp_path: Path) -> None:
    """Bytes both ways; our own peers half-close: what is sent after the other's end still arrives.

    SIGTERM ends each program with 0, with a session open. Who may register is in the server's log.
    """
    keys = None if security == "plain" else make_keys(tmp_path / "keys", "r")
    with (
        our_tunnel.serve(tmp_path, *_forward(), tls=keys) as server,
        our_tunnel.register(tmp_path, server.address, *_target(checked), tls=keys) as client,
    ):
        server.peer.await_words("any client may register any target")
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 3_000_000)
            sock.sendall((1_000_000).to_bytes(8, "big") + bytes(1_000_000))
            sock.shutdown(socket.SHUT_WR)
            got = 0
            while part := sock.recv(65536):
                got += len(part)
            assert got == 32 + 1_000_000
            eventually_sync(lambda: checked.ended == 1)
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 1000)
            for program in (client, server):
                program.peer.process.send_signal(signal.SIGTERM)
                assert program.peer.process.wait(60) == 0, program.peer.said()


def test_dialler_reaches_another_clients_target(checked: Service, tmp_path: Path) -> None:
    """By a local port and, as ssh's ProxyCommand does, by standard input and output; exit code 0."""
    with (
        our_tunnel.serve(tmp_path) as server,
        our_tunnel.register(tmp_path, server.address, *_target(checked)),
        our_tunnel.dial(tmp_path, server.address, *_forward()) as dialler,
    ):
        with connect(dialler.forwards["r:SSH"]) as sock:
            transfer(sock, 100_000)
        done = _dial_once(server.address, "r:SSH", (5).to_bytes(8, "big") + b"hello")
        assert len(done.stdout) == 32 + 5
        assert done.returncode == 0, done.stderr


def _dial_once(server: str, target: str, sent: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        our_tunnel.dial_argv(server, target),
        input=sent,
        capture_output=True,
        timeout=60,
        check=False,
        env=our_tunnel.environment(),
    )


def test_version_01_asks_the_client_and_the_server(checked: Service, tmp_path: Path) -> None:
    """No targets are registered: the server asks its client's handler, and the client the server's."""
    wire = ("--wire", "0.1")
    with (
        our_tunnel.serve(tmp_path, *wire, *_forward("r"), "--service", f"own={checked.address}") as server,
        our_tunnel.register(tmp_path, server.address, *wire, *_target(checked, "r")),
        our_tunnel.dial(tmp_path, server.address, *wire, *_forward("own")) as dialler,
    ):
        for address in (server.forwards["r"], dialler.forwards["own"]):
            with connect(address) as sock:
                transfer(sock, 100_000)


def test_register_comes_back_when_its_server_does(checked: Service, tmp_path: Path) -> None:
    """The server is gone for a while and starts again on its port: the target is there again, unasked."""
    listen = f"127.0.0.1:{valkey.free_port()}"
    with contextlib.ExitStack() as stack:
        with our_tunnel.serve(tmp_path, "--listen", listen):
            stack.enter_context(our_tunnel.register(tmp_path, listen, *_target(checked)))
        server = stack.enter_context(our_tunnel.serve(tmp_path, "--listen", listen, *_forward()))
        server.peer.await_words("target r .SSH. registered")
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 1000)


def test_service_that_is_gone_resets_its_user_alone(checked: Service, tmp_path: Path) -> None:
    """Nobody listens where a target leads: that connection is reset, the other target goes on."""
    nobody = f"127.0.0.1:{valkey.free_port()}"
    with (
        our_tunnel.serve(tmp_path, *_forward("bad"), *_forward("good")) as server,
        our_tunnel.register(tmp_path, server.address, "--target", f"bad={nobody}", *_target(checked, "good")),
        connect(server.forwards["good"]) as good,
    ):
        transfer(good, 1000)
        with pytest.raises(ConnectionResetError), connect(server.forwards["bad"]) as bad:
            bad.recv(1)
        transfer(good, 1000)


def test_certificate_names_the_targets_and_claims_add_to_them(checked: Service, tmp_path: Path) -> None:
    """The certificate says `bench`: `bench` and what the claim adds are taken, another's is not; the client is told."""
    keys = make_keys(tmp_path / "keys")
    claim = ("--claim", "bench=mine-*")
    with (
        our_tunnel.serve(
            tmp_path, *claim, *_forward("mine-1"), *_forward("bench"), tls=keys, mutual=True
        ) as server,
        our_tunnel.register(
            tmp_path,
            server.address,
            *_target(checked, "mine-1"),
            *_target(checked, "bench"),
            *_target(checked, "yours"),
            tls=keys,
            mutual=True,
        ) as client,
    ):
        client.peer.await_words("target yours was refused: .*may not be registered by")
        for name in ("mine-1", "bench"):
            with connect(server.forwards[name]) as sock:
                transfer(sock, 1000)
        assert "any client may register any target" not in server.peer.said()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dial", "--server", "127.0.0.1:1"], "either one TARGET or --forward"),
        (["dial", "--server", "127.0.0.1:1", "r", "--forward", "127.0.0.1:0=r"], "either one TARGET"),
        (["register", "--server", "127.0.0.1:1", "--target", "r"], "'r' is not NAME"),
        (["register", "--server", "somewhere", "--target", "r=127.0.0.1:1"], "is not host:port"),
        (["serve", "--claim", "edge-1=r"], "--claim needs --tls-ca"),
        (["serve", "--listen", "0.0.0.0:0"], "any client that reaches 0.0.0.0 could register any target"),
        (["serve", "--anybody", "--tls-ca", __file__], "exclude each other"),
        (["serve", "--forward", "r"], "'r' is not HOST:PORT=NAME"),
        (["serve", "--wire", "0.3"], "'0.3' is not one of"),
    ],
)
def test_wrong_flags_are_code_2_with_a_sentence(words: list[str], said: str) -> None:
    """Before anything is started."""
    done = CliRunner().invoke(main, ["tunnel", *words])
    assert done.exit_code == 2
    assert said in done.output


def test_what_cannot_be_is_one_line_and_code_2(tmp_path: Path) -> None:
    """A port in use, a key that is none, a server that is not there, a target nobody registered."""
    with our_tunnel.serve(tmp_path) as server:
        junk = tmp_path / "junk.pem"
        junk.write_text("no key\n")
        for words, message in (
            (("serve", "--listen", server.address), "cannot listen on"),
            (("serve", "--tls-cert", str(junk)), "a certificate and a key"),
        ):
            refused = CliRunner().invoke(main, ["tunnel", *words])
            assert refused.exit_code == 2, refused.output
            assert refused.stderr.count("\n") == 1
            assert message in refused.stderr
        nobody = f"127.0.0.1:{valkey.free_port()}"
        for address, message in ((nobody, "refused"), (server.address, "r")):
            done = _dial_once(address, "r:SSH", b"")
            assert done.returncode == 2, done.stderr
            (line,) = done.stderr.decode().splitlines()
            assert message in line


@pytest.mark.slow
def test_register_says_what_is_refused_and_asks_again(checked: Service, tmp_path: Path) -> None:
    """The ready line lists what is registered and, with the reason, what is not; that is tried until it is taken."""
    with our_tunnel.serve(tmp_path, *_forward()) as server, contextlib.ExitStack() as stack:
        targets = (*_target(checked), *_target(checked, "own"))
        with our_tunnel.register(tmp_path, server.address, *_target(checked), name="first"):
            second = stack.enter_context(
                our_tunnel.register(tmp_path, server.address, *targets, name="second")
            )
            ready = json.loads(second.peer.await_words(r'\{"event": "ready".*\}').group())
            assert ready["targets"] == ["own"]
            assert "already registered by another client" in ready["refused"]["r:SSH"]
        second.peer.await_words(r"target r \(SSH\) is registered now, after it was refused")
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 1000)


def test_process_that_comes_back_is_known_by_a_name_or_its_certificate() -> None:
    """Without a certificate each process has a name of its own, so that its stale registration is displaced."""
    plan = ClientPlan(("127.0.0.1", 1))
    assert _make_run_name(plan) != _make_run_name(plan) != ""
    assert _make_run_name(replace(plan, tls=TLSFiles(certificate=Path("client.crt")))) == ""
