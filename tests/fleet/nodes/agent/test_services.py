"""The services that an agent exposes, and the targets that it refuses."""

from __future__ import annotations

import asyncio

import click
import pytest
from click.testing import CliRunner

from fleet.nodes.agent import services as agent_services
from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.program import command
from fleet.nodes.agent.services import AgentServices, Services
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.processes.valkey import find_free_port
from fleet.protocol.tunnel.messages import Target, TunnelError


def services_of(*services: tuple[str, str], name: str = "agent-7") -> AgentServices:
    return AgentServices(Identity("id-7", name), tuple(services), dict)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("web", "not name=host:port"),
        ("web=", "not host:port"),
        ("web=127.0.0.1", "not host:port"),
        ("web=127.0.0.1:99999", "not host:port"),
        ("_web=127.0.0.1:1", "is not a service name"),
        ("We.b=127.0.0.1:1", "is not a service name"),
    ],
)
def test_invalid_service_flag_is_explained(text: str, message: str) -> None:
    """Each mistake has its own message."""
    with pytest.raises(ValueError, match=message):
        agent_services.parse(text)


def test_service_address_may_contain_the_agent_number() -> None:
    """`{n}` is replaced anywhere in the address."""
    assert agent_services.parse("web=10.0.0.{n}:80{n}") == ("web", "10.0.0.{n}:80{n}")
    services: Services = (("web", "10.0.0.{n}:80{n}"),)
    assert services_of(*services)._addresses == {"web": ("10.0.0.7", 807)}


def test_diag_placeholder_becomes_the_diag_address() -> None:
    """The address is filled in after the port is open; without --diag-listen the start fails."""
    services = (agent_services.parse("metrics={diag}"), ("web", "h:1"))
    assert agent_services.with_diag_address(services, "127.0.0.1:5") == (
        ("metrics", "127.0.0.1:5"),
        ("web", "h:1"),
    )
    assert agent_services.with_diag_address((("web", "h:1"),), "") == (("web", "h:1"),)
    with pytest.raises(NodeStartError, match="needs --diag-listen"):
        agent_services.with_diag_address(services, "")


@pytest.mark.parametrize(
    "flags", [["--service", "web"], ["--service", "web=127.0.0.1:1", "--service", "web=127.0.0.1:2"]]
)
def test_command_refuses_invalid_or_duplicate_service(flags: list[str]) -> None:
    """The command does not start and has the exit code of a usage error."""
    invocation = CliRunner().invoke(command, ["--auth", "127.0.0.1:1", "--proxy", "127.0.0.1:2", *flags])
    assert invocation.exit_code == click.UsageError.exit_code
    assert "web" in invocation.output


def test_targets_are_status_and_services_with_the_agent_id() -> None:
    """The status is first, then the services by name."""
    services = services_of(("web", "h:1"), ("db", "h:2"))
    assert [target.name for target in services.targets] == ["_status.id-7", "db.id-7", "web.id-7"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ssh.id-7", r"agent agent-7 exposes no service 'ssh'; exposed services: web"),
        ("web.id-8", "not a target of agent agent-7"),
        ("web", "not a target of agent agent-7"),
        ("_secret.id-7", "exposes no service '_secret'"),
    ],
)
async def test_session_to_unknown_target_is_refused(target: str, message: str) -> None:
    """The error names the agent and the services that it exposes."""
    with pytest.raises(TunnelError, match=message):
        await services_of(("web", "127.0.0.1:1")).accept_session(Target(target))


async def test_session_to_unreachable_service_fails_with_its_address() -> None:
    """The user's error names the address and the reason."""
    with pytest.raises(TunnelError, match=r"cannot connect to 127\.0\.0\.1:\d+"):
        await services_of(("web", f"127.0.0.1:{find_free_port()}")).accept_session(Target("web.id-7"))


async def test_service_is_dialled_before_session_is_accepted() -> None:
    """The service has a connection when the session is accepted."""
    is_connected = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        session = await services_of(("web", f"127.0.0.1:{port}")).accept_session(Target("web.id-7"))
        await asyncio.wait_for(is_connected.wait(), 60)
        session.discard()
