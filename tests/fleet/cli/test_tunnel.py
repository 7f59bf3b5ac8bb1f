"""`refloat tunnel`: servers, targets, forwarded ports and errors."""

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
def checking_service() -> Iterator[Service]:
    """Run a service that checks the bytes it receives."""
    with service() as new_service:
        yield new_service


def _forward(name: str = "r:SSH") -> tuple[str, str]:
    return ("--forward", f"127.0.0.1:0={name}")


def _target(checking_service: Service, name: str = "r:SSH") -> tuple[str, str]:
    return ("--target", f"{name}={checking_service.address}")


@pytest.mark.parametrize("security", ["plain", "tls"])
def test_server_port_leads_to_a_registered_target(
    checking_service: Service, security: str, tmp_path: Path
) -> None:
    """Bytes both ways; our own peers half-close: what is sent after the other's end still arrives.

    SIGTERM ends each program with 0, with a session open. Who may register is in the server's log.
    """
    keys = None if security == "plain" else make_keys(tmp_path / "keys", "r")
    with (
        our_tunnel.serve(tmp_path, *_forward(), tls=keys) as server,
        our_tunnel.register(tmp_path, server.address, *_target(checking_service), tls=keys) as client,
    ):
        server.peer.await_output("any client may register any target")
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 3_000_000)
            sock.sendall((1_000_000).to_bytes(8, "big") + bytes(1_000_000))
            sock.shutdown(socket.SHUT_WR)
            byte_count = 0
            while part := sock.recv(65536):
                byte_count += len(part)
            assert byte_count == 32 + 1_000_000
            eventually_sync(lambda: checking_service.closed_count == 1)
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 1000)
            for program in (client, server):
                program.peer.process.send_signal(signal.SIGTERM)
                assert program.peer.process.wait(60) == 0, program.peer.output_text()


def test_dialer_reaches_the_target_of_another_client(checking_service: Service, tmp_path: Path) -> None:
    """By a local port and, as ssh's ProxyCommand does, by standard input and output; exit code 0."""
    with (
        our_tunnel.serve(tmp_path) as server,
        our_tunnel.register(tmp_path, server.address, *_target(checking_service)),
        our_tunnel.dial(tmp_path, server.address, *_forward()) as dialler,
    ):
        with connect(dialler.forwards["r:SSH"]) as sock:
            transfer(sock, 100_000)
        process = _dial_once(server.address, "r:SSH", (5).to_bytes(8, "big") + b"hello")
        assert len(process.stdout) == 32 + 5
        assert process.returncode == 0, process.stderr


def _dial_once(server: str, target: str, stdin: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return _run(*our_tunnel.dial_argv(server, target)[len(our_tunnel.argv()) :], *options, stdin=stdin)


def _run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        our_tunnel.argv(*arguments),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env=our_tunnel.environment(),
    )


def test_wire_version_01_calls_the_handlers_of_client_and_server(
    checking_service: Service, tmp_path: Path
) -> None:
    """No targets are registered: the server asks its client's handler, and the client the server's."""
    wire = ("--wire", "0.1")
    with (
        our_tunnel.serve(
            tmp_path, *wire, *_forward("r"), "--service", f"own={checking_service.address}"
        ) as server,
        our_tunnel.register(tmp_path, server.address, *wire, *_target(checking_service, "r")),
        our_tunnel.dial(tmp_path, server.address, *wire, *_forward("own")) as dialler,
    ):
        for address in (server.forwards["r"], dialler.forwards["own"]):
            with connect(address) as sock:
                transfer(sock, 100_000)


def test_client_registers_again_after_a_server_restart(checking_service: Service, tmp_path: Path) -> None:
    """The server restarts on its port, and the target is registered again."""
    listen = f"127.0.0.1:{valkey.find_free_port()}"
    with contextlib.ExitStack() as stack:
        with our_tunnel.serve(tmp_path, "--listen", listen):
            stack.enter_context(our_tunnel.register(tmp_path, listen, *_target(checking_service)))
        server = stack.enter_context(our_tunnel.serve(tmp_path, "--listen", listen, *_forward()))
        server.peer.await_output("target r .SSH. registered")
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 1000)


def test_missing_service_resets_only_its_own_connections(checking_service: Service, tmp_path: Path) -> None:
    """Nothing listens at the address of a target: its connection is reset; the other target works.

    A client that dials the target learns whose address it is.
    """
    unused_address = f"127.0.0.1:{valkey.find_free_port()}"
    with (
        our_tunnel.serve(tmp_path, *_forward("bad"), *_forward("good")) as server,
        our_tunnel.register(
            tmp_path, server.address, "--target", f"bad={unused_address}", *_target(checking_service, "good")
        ),
        connect(server.forwards["good"]) as good,
    ):
        transfer(good, 1000)
        with pytest.raises(ConnectionResetError), connect(server.forwards["bad"]) as bad:
            bad.recv(1)
        transfer(good, 1000)
        process = _dial_once(server.address, "bad", b"")
        assert process.returncode == 2
        assert (
            process.stderr.decode()
            .strip()
            .endswith(
                "the client of target bad does not reach its service: "
                f"cannot connect to {unused_address}: connection refused"
            )
        )


def test_certificate_and_claims_permit_targets(checking_service: Service, tmp_path: Path) -> None:
    """A target that neither the certificate nor a claim permits is refused."""
    keys = make_keys(tmp_path / "keys")
    claim = ("--claim", "bench=mine-*")
    with (
        our_tunnel.serve(
            tmp_path, *claim, *_forward("mine-1"), *_forward("bench"), tls=keys, mutual=True
        ) as server,
        our_tunnel.register(
            tmp_path,
            server.address,
            *_target(checking_service, "mine-1"),
            *_target(checking_service, "bench"),
            *_target(checking_service, "yours"),
            tls=keys,
            mutual=True,
        ) as client,
    ):
        client.peer.await_output("target yours was refused: .*may not be registered by")
        for name in ("mine-1", "bench"):
            with connect(server.forwards[name]) as sock:
                transfer(sock, 1000)
        assert "any client may register any target" not in server.peer.output_text()


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (["dial", "--server", "127.0.0.1:1"], "either one TARGET or --forward"),
        (["dial", "--server", "127.0.0.1:1", "r", "--forward", "127.0.0.1:0=r"], "either one TARGET"),
        (["register", "--server", "127.0.0.1:1", "--target", "r"], "'r' is not NAME"),
        (["register", "--server", "somewhere", "--target", "r=127.0.0.1:1"], "is not host:port"),
        (["serve", "--claim", "edge-1=r"], "--claim needs --tls-ca"),
        (["serve", "--listen", "0.0.0.0:0"], "any client that reaches 0.0.0.0 could register any target"),
        (["serve", "--allow-anonymous", "--tls-ca", __file__], "exclude each other"),
        (["serve", "--forward", "r"], "'r' is not HOST:PORT=NAME"),
        (["serve", "--wire", "0.3"], "'0.3' is not one of"),
    ],
)
def test_invalid_flags_exit_with_code_2(arguments: list[str], error_text: str) -> None:
    """Before anything is started."""
    process = CliRunner().invoke(main, ["tunnel", *arguments])
    assert process.exit_code == 2
    assert error_text in process.output


def test_errors_are_one_line_with_exit_code_2(tmp_path: Path) -> None:
    """A port in use, an invalid key, an unreachable server, an unregistered target."""
    with our_tunnel.serve(tmp_path) as server:
        junk = tmp_path / "junk.pem"
        junk.write_text("no key\n")
        for arguments, message in (
            (("serve", "--listen", server.address), "cannot listen on"),
            (("serve", "--tls-cert", str(junk)), "a certificate and its key"),
        ):
            outcome = CliRunner().invoke(main, ["tunnel", *arguments])
            assert outcome.exit_code == 2, outcome.output
            assert outcome.stderr.count("\n") == 1
            assert message in outcome.stderr
        unused_address = f"127.0.0.1:{valkey.find_free_port()}"
        wire = ("--wire", "0.1")
        for process, message in (
            (_dial_once(unused_address, "r:SSH", b""), "refused"),
            (_dial_once(server.address, "r:SSH", b""), "r"),
            (
                _dial_once(server.address, "r", b"", *wire),
                "only wire version 0.2 (refloat tunnel: --wire 0.2)",
            ),
            (
                _run("serve", "--listen", "127.0.0.1:0", "--forward", f"{server.address}=r"),
                "the port is in use",
            ),
            (_run("serve", "--listen", server.address), "the port is in use"),
        ):
            assert process.returncode == 2, process.stderr
            (line,) = process.stderr.decode().splitlines()
            assert message in line


@pytest.mark.slow
def test_refused_target_is_reported_and_retried(checking_service: Service, tmp_path: Path) -> None:
    """The ready line lists registered and refused targets; refused ones are retried."""
    with our_tunnel.serve(tmp_path, *_forward()) as server, contextlib.ExitStack() as stack:
        targets = (*_target(checking_service), *_target(checking_service, "own"))
        with our_tunnel.register(tmp_path, server.address, *_target(checking_service), name="first"):
            second = stack.enter_context(
                our_tunnel.register(tmp_path, server.address, *targets, name="second")
            )
            ready = json.loads(second.peer.await_output(r'\{"event": "ready".*\}').group())
            assert ready["targets"] == ["own"]
            assert "already registered by another client" in ready["refused"]["r:SSH"]
        second.peer.await_output(r"target r \(SSH\) is registered now, after it was refused")
        with connect(server.forwards["r:SSH"]) as sock:
            transfer(sock, 1000)


def test_client_is_identified_by_its_run_name_or_certificate() -> None:
    """Without a certificate each process has a name of its own, so that its stale registration is displaced."""
    plan = ClientPlan(("127.0.0.1", 1))
    assert _make_run_name(plan) != _make_run_name(plan) != ""
    assert _make_run_name(replace(plan, tls=TLSFiles(certificate=Path("client.crt")))) == ""
