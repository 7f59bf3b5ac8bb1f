"""The connection test against real auths and proxies, with one real fault at a time: the sentence, and what to do."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.test_report import ConnectionTestStep, StepName, StepVerdict
from fleet.source_plugins.refloat import SOURCE as REFLOAT
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import AddressKind
from tests.fakes.dns_server import serve_dns
from tests.fakes.faulty_certificates import FaultyCertificates
from tests.fakes.plane import Plane
from tests.fakes.tcp import serve_tcp


@pytest.fixture
def certificates(tmp_path: Path) -> FaultyCertificates:
    """Certificates of CAs of this test."""
    return FaultyCertificates(tmp_path)


@pytest.fixture
def console(certificates: FaultyCertificates) -> TLSFiles:
    """Good files of Refloat."""
    return certificates.of("console", "console")


async def _run(
    entries: Sequence[str], tls: TLSFiles | None = None, kind: AddressKind = AddressKind.STATIC
) -> dict[StepName, ConnectionTestStep]:
    return {step.name: step async for step in run_connection_test(kind, entries, tls)}


def _assert_fails_at(
    steps: dict[StepName, ConnectionTestStep], name: StepName, text: str, remedy_part: str
) -> None:
    """Check that a step is the first and only one that failed, with its sentence, and that later ones are skipped."""
    step = steps[name]
    assert (step.verdict, step.text) == (StepVerdict.FAILED, text)
    assert remedy_part in step.remedy
    names = list(REFLOAT.test_steps)
    position = names.index(name)
    assert {steps[earlier].verdict for earlier in names[:position]} <= {StepVerdict.OK}
    assert {steps[later].verdict for later in names[position + 1 :]} <= {StepVerdict.SKIPPED}


async def test_a_fleet_with_tls_passes_every_step(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """Each step says what it found."""
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    await plane.proxy(tls=certificates.of("proxy-1", "proxy"))
    address = auth.instance.grpc_address

    steps = await _run([address], console)

    assert list(steps) == list(REFLOAT.test_steps)
    assert {step.name: step.text for step in steps.values() if step.verdict is not StepVerdict.OK} == {}
    assert steps[StepName.RESOLVE].text == f"1 address: {address}."
    assert steps[StepName.TLS].text.startswith(
        "The certificates are valid for auth.refloat.local: auth-1 until 2"
    )
    assert steps[StepName.IDENTITY].text == "Servers: auth-1 (role auth). Refloat: console (role console)."
    assert steps[StepName.INSTANCES].text == "1 auth and 1 proxy."
    assert steps[StepName.TUNNELS].text == "0 tunnels on 1 proxy."
    assert steps[StepName.READYZ].text == "2 instances ready."
    assert steps[StepName.CLOCK].text.startswith("The clocks of 2 instances are within 5 s")


async def test_a_fleet_on_loopback_without_tls_passes(plane: Plane) -> None:
    """Nobody is authenticated, which the step says."""
    auth = await plane.auth()
    await plane.proxy()

    steps = await _run([auth.instance.grpc_address])

    assert steps[StepName.TLS].text == "TLS is off, and the servers accept gRPC without it."
    assert steps.pop(StepName.IDENTITY).verdict is StepVerdict.SKIPPED
    assert {step.verdict for step in steps.values()} == {StepVerdict.OK}


async def test_no_addresses() -> None:
    """Nothing is tried."""
    _assert_fails_at(
        await _run([]),
        StepName.RESOLVE,
        "This cluster has no addresses.",
        "Enter the address of at least one auth",
    )


async def test_a_name_that_does_not_resolve() -> None:
    """The name, the reason of the system, and where to look."""
    steps = await _run(["auth.invalid:3025"])

    assert steps[StepName.RESOLVE].text.startswith("The name auth.invalid does not resolve: ")
    assert "hosts file" in steps[StepName.RESOLVE].remedy
    assert steps[StepName.CONNECT].verdict is StepVerdict.SKIPPED


async def test_a_closed_port() -> None:
    """Nobody listens."""
    with closing(socket.socket()) as closed_socket:
        closed_socket.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed_socket.getsockname()[1]}"
        steps = await _run([address])

    _assert_fails_at(
        steps, StepName.CONNECT, f"{address}: connection refused.", "Check that the auth runs and listens"
    )


@pytest.fixture
def blackhole() -> Iterator[str]:
    """A port whose packets are dropped: the queue of its listener is full."""
    with closing(socket.socket()) as listener, closing(socket.socket()) as waiting_client:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting_client.connect(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_port_that_does_not_respond(blackhole: str) -> None:
    """A firewall that drops packets: the step ends by its own timeout, and later ones say that it is the reason."""
    steps = await _run([blackhole])
    _assert_fails_at(steps, StepName.CONNECT, f"{blackhole}: no response within 4 s.", "no firewall")
    requests = (StepName.HEALTH, StepName.TUNNELS, StepName.READYZ, StepName.POLICIES, StepName.CLOCK)
    assert {steps[name].text for name in requests} == {"No auth to ask: an earlier step failed."}


@asynccontextmanager
async def _serve_text(text: bytes) -> AsyncIterator[str]:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(text)
        await writer.drain()

    async with serve_tcp(respond) as port:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("has_tls", [False, True])
async def test_a_server_of_another_protocol(console: TLSFiles, has_tls: bool) -> None:
    """The beginning of its response tells what it is."""
    async with _serve_text(b"SSH-2.0-OpenSSH_9.2p1\r\n") as address:
        steps = await _run([address], console if has_tls else None)

    _assert_fails_at(
        steps,
        StepName.TLS,
        f"{address}: it is not a gRPC server: its response begins with 'SSH-2.0-OpenSSH_9.2p1'.",
        "Enter the address of the gRPC port of an auth.",
    )


async def test_an_auth_without_tls(plane: Plane, console: TLSFiles) -> None:
    """This cluster has TLS files."""
    address = (await plane.auth()).instance.grpc_address

    _assert_fails_at(
        await _run([address], console),
        StepName.TLS,
        f"{address}: it speaks gRPC without TLS, but this cluster uses TLS.",
        "set this cluster to no TLS",
    )


async def test_an_auth_with_tls_and_a_cluster_without(plane: Plane, certificates: FaultyCertificates) -> None:
    """gRPC's server closes the connection without a word."""
    address = (await plane.auth(tls=certificates.of("auth-1", "auth"))).instance.grpc_address

    _assert_fails_at(
        await _run([address]),
        StepName.TLS,
        f"{address}: it closed the connection without a response: it may require TLS, or not be a gRPC server.",
        "set the CA of the auths",
    )


async def test_an_expired_server_certificate(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """The day is in the sentence; another auth with a valid certificate makes it a warning."""
    expired_address = (
        await plane.auth("auth-1", tls=certificates.of("auth-1", "auth", days_ago=400))
    ).instance.grpc_address

    steps = await _run([expired_address], console)

    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 35 * 86400))
    step = steps[StepName.TLS]
    assert step.verdict is StepVerdict.FAILED
    assert step.text.startswith(f"{expired_address}: its certificate expired on {day}")
    assert step.remedy == "Renew the certificate of the auth and restart it."
    good_address = (await plane.auth("auth-2", tls=certificates.of("auth-2", "auth"))).instance.grpc_address
    steps = await _run([expired_address, good_address], console)
    assert steps[StepName.TLS].verdict is StepVerdict.WARNING
    assert steps[StepName.INSTANCES].verdict is not StepVerdict.FAILED


async def test_a_server_certificate_that_expires_soon(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """A warning; all other steps run."""
    auth = await plane.auth(tls=certificates.of("auth-1", "auth", days_ago=360))

    steps = await _run([auth.instance.grpc_address], console)

    assert steps[StepName.TLS].verdict is StepVerdict.WARNING
    assert "(in 4 days)" in steps[StepName.TLS].text or "(in 5 days)" in steps[StepName.TLS].text
    assert steps[StepName.POLICIES].verdict is StepVerdict.OK


async def test_a_server_certificate_of_another_ca(plane: Plane, certificates: FaultyCertificates) -> None:
    """Both CAs have the same name, as Refloat's own always have."""
    address = (await plane.auth(tls=certificates.of("auth-1", "auth"))).instance.grpc_address

    _assert_fails_at(
        await _run([address], certificates.of("console", "console", ca="other")),
        StepName.TLS,
        f"{address}: its certificate (issuer 'Refloat CA') was not issued by the CA of this cluster.",
        "Set the CA that issued",
    )


async def test_a_server_certificate_with_another_name(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """The sentence has the name and those that there are."""
    address = (await plane.auth(tls=certificates.of("auth-1", "auth"))).instance.grpc_address

    _assert_fails_at(
        await _run([address], replace(console, server_name="auth.example.com")),
        StepName.TLS,
        f"{address}: its certificate does not have the name auth.example.com, only refloat.local, "
        "auth.refloat.local, teleport.cluster.local, *.teleport.cluster.local, localhost, auth-1 and 2 more.",
        "set one of its names as the server name",
    )


async def test_a_proxy_in_place_of_an_auth(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """Its certificate has the role, and without TLS its APIs tell."""
    proxy = await plane.proxy(tls=certificates.of("proxy-1", "proxy"))
    address = proxy.instance.grpc_address
    _assert_fails_at(
        await _run([address], console),
        StepName.TLS,
        f"{address}: its certificate has the role proxy: it is not an auth.",
        "Enter the address of an auth.",
    )

    plain_address = (await plane.proxy("proxy-2")).instance.grpc_address
    steps = await _run([plain_address])

    assert (
        steps[StepName.INSTANCES].text
        == f"{plain_address} does not list auths and proxies (PresenceService): it is not an auth."
    )
    assert steps[StepName.AGENTS].verdict is StepVerdict.SKIPPED


async def test_a_certificate_for_clients_only(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """The certificate of an agent cannot act as a server."""
    address = (await plane.auth(tls=certificates.of("agent-1", "agent"))).instance.grpc_address

    _assert_fails_at(
        await _run([address], console),
        StepName.TLS,
        f"{address}: its certificate (role agent) is for clients only, not for servers.",
        "for server authentication",
    )


async def test_no_client_certificate(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """The auth requires one."""
    address = (await plane.auth(tls=certificates.of("auth-1", "auth"))).instance.grpc_address

    _assert_fails_at(
        await _run([address], TLSFiles(authority=console.authority)),
        StepName.TLS,
        f"{address}: the server requires a client certificate, and Refloat has none.",
        "set the certificate and its key here",
    )


async def test_a_client_certificate_of_another_ca(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """The auth does not accept it; its own is fine."""
    address = (await plane.auth(tls=certificates.of("auth-1", "auth"))).instance.grpc_address
    other_files = certificates.of("console", "console", ca="other")

    _assert_fails_at(
        await _run([address], replace(other_files, authority=console.authority)),
        StepName.TLS,
        f"{address}: the server refuses Refloat's certificate, which the CA of this cluster did not issue.",
        "Issue Refloat's certificate with the CA",
    )


async def test_a_client_certificate_of_the_wrong_role(plane: Plane, certificates: FaultyCertificates) -> None:
    """Reads work, and changes would be refused."""
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    await plane.proxy(tls=certificates.of("proxy-1", "proxy"))

    steps = await _run([auth.instance.grpc_address], certificates.of("agent-1", "agent"))

    identity = steps.pop(StepName.IDENTITY)
    assert identity.verdict is StepVerdict.WARNING
    assert "Refloat's certificate (agent-1) has the role agent" in identity.text
    assert "with the role console" in identity.remedy
    assert {step.verdict for step in steps.values()} == {StepVerdict.OK}


async def test_faults_of_refloats_own_files(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles, tmp_path: Path
) -> None:
    """A missing file, no PEM, the key of another certificate, a certificate without its key, an expired one."""
    address = (await plane.auth(tls=certificates.of("auth-1", "auth"))).instance.grpc_address
    text_file = tmp_path / "notes.txt"
    text_file.write_text("x")
    missing_file = tmp_path / "missing.crt"
    other_key = certificates.of("console", "console", ca="other").key
    expired_files = certificates.of("old", "console", days_ago=400)
    for tls, sentence, remedy_part in (
        (
            replace(console, certificate=missing_file),
            f"Cannot read {missing_file}: No such file",
            "permissions",
        ),
        (replace(console, authority=text_file), f"Cannot use CA {text_file}: not a PEM", "-----BEGIN"),
        (replace(console, key=text_file), f"Cannot use key {text_file}: not a PEM private key", "-----BEGIN"),
        (
            replace(console, key=other_key),
            f"Cannot use certificate {console.certificate} with key {other_key}: key values mismatch",
            "Set the key that belongs to this certificate.",
        ),
        (replace(console, key=None), "Refloat's client certificate is incomplete: its key", "Set both"),
        (expired_files, "Refloat's certificate expired on 20", "Issue Refloat's certificate again"),
    ):
        step = (await _run([address], tls))[StepName.TLS]
        assert step.verdict is StepVerdict.FAILED
        assert step.text.startswith(sentence)
        assert remedy_part in step.remedy


async def test_credentials_that_cannot_be_used(plane: Plane) -> None:
    """Uploaded files that cannot be decrypted are no TLS, and nothing is sent without TLS instead."""
    address = (await plane.auth()).instance.grpc_address

    steps = await _run(
        [address], TLSFiles(problem="the uploaded files cannot be decrypted: upload them again")
    )

    _assert_fails_at(
        steps,
        StepName.TLS,
        "The uploaded files cannot be decrypted: upload them again.",
        "Correct the TLS files of this cluster.",
    )


async def test_a_proxy_that_does_not_respond_is_named(
    plane: Plane, certificates: FaultyCertificates, console: TLSFiles
) -> None:
    """The auth lists it; gRPC only says that it failed to connect, and the test says why."""
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    await plane.proxy(tls=certificates.of("proxy-1", "proxy", days_ago=400))
    await plane.proxy("proxy-2", tls=certificates.of("proxy-2", "proxy"))

    step = (await _run([auth.instance.grpc_address], console))[StepName.TUNNELS]

    assert step.verdict is StepVerdict.WARNING
    assert "its certificate expired on" in step.text
    assert step.text.endswith("0 tunnels on 1 proxy.")
    assert "Renew the certificate of the proxy" in step.remedy


async def test_a_clock_five_minutes_off(plane: Plane) -> None:
    """All instances differ by the same time, so it is the worker's clock."""
    auth = await plane.auth()
    await plane.proxy()

    steps = {
        step.name: step
        async for step in run_connection_test(
            AddressKind.STATIC, [auth.instance.grpc_address], None, clock=lambda: time.time() + 300
        )
    }

    step = steps[StepName.CLOCK]
    assert (step.verdict, step.text) == (
        StepVerdict.FAILED,
        "The clock of this worker is 5 min ahead of those of all 2 instances.",
    )
    assert "NTP" in step.remedy


async def test_addresses_from_dns(plane: Plane) -> None:
    """An SRV record of which one target is not there: the step that finds it says so."""
    auth = await plane.auth()
    await plane.proxy()
    port = auth.instance.grpc_address.rpartition(":")[2]
    records = {("_auth._tcp.test", "SRV"): [f"1 1 {port} localhost.", "2 1 1 localhost."]}
    async with serve_dns(records) as server:
        steps = {
            step.name: step
            async for step in run_connection_test(
                AddressKind.SRV, ["_auth._tcp.test", "_other._tcp.test"], None, resolver=server.resolver
            )
        }

    assert steps[StepName.RESOLVE].verdict is StepVerdict.WARNING
    assert steps[StepName.RESOLVE].text == (
        f"DNS has no SRV record _other._tcp.test. 2 addresses: localhost:{port}, localhost:1."
    )
    assert steps[StepName.CONNECT].verdict is StepVerdict.WARNING
    assert steps[StepName.INSTANCES].text == "1 auth and 1 proxy."


async def test_a_step_that_fails_in_refloat_ends_no_other(plane: Plane) -> None:
    """The log of the worker has the error."""
    auth = await plane.auth()

    def fail() -> float:
        raise RuntimeError("no clock")

    test = run_connection_test(AddressKind.STATIC, [auth.instance.grpc_address], None, clock=fail)
    steps = {step.name: step async for step in test}

    assert list(steps) == list(REFLOAT.test_steps)
    step = steps[StepName.TLS]
    assert (step.verdict, step.text) == (StepVerdict.FAILED, "This step ended with an error in Refloat.")
    assert steps[StepName.CONNECT].verdict is StepVerdict.OK
