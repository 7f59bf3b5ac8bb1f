"""What an agent exposes, and what it refuses."""

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
from fleet.processes.valkey import free_port
from fleet.protocol.tunnel.messages import Target, TunnelError


def services_of(*services: tuple[str, str], name: str = "agent-7") -> AgentServices:
    return AgentServices(Identity("id-7", name), tuple(services), dict)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("web", "not name=host:port"),
        ("web=", "not host:port"),
        ("web=127.0.0.1", "not host:port"),
        ("web=127.0.0.1:99999", "not host:port"),
        ("_web=127.0.0.1:1", "is not a service name"),
        ("We.b=127.0.0.1:1", "is not a service name"),
    ],
)
def test_flag_that_is_wrong(text: str, why: str) -> None:
    """Each has its sentence."""
    with pytest.raises(ValueError, match=why):
        agent_services.parse(text)


def test_flag_with_the_agents_number() -> None:
    """{n} may stand anywhere in the address."""
    assert agent_services.parse("web=10.0.0.{n}:80{n}") == ("web", "10.0.0.{n}:80{n}")
    services: Services = (("web", "10.0.0.{n}:80{n}"),)
    assert services_of(*services)._addresses == {"web": ("10.0.0.7", 807)}


def test_diag_port_of_the_process() -> None:
    """It is filled in once it is known; without one there is nothing to expose."""
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
def test_command_refuses_flags(flags: list[str]) -> None:
    """A wrong or doubled service stops the start, with exit code 2."""
    result = CliRunner().invoke(command, ["--auth", "127.0.0.1:1", "--proxy", "127.0.0.1:2", *flags])
    assert result.exit_code == click.UsageError.exit_code
    assert "web" in result.output


def test_targets_are_its_own() -> None:
    """The status first, then its services, each under its id."""
    services = services_of(("web", "h:1"), ("db", "h:2"))
    assert [target.name for target in services.targets] == ["_status.id-7", "db.id-7", "web.id-7"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("ssh.id-7", r"agent agent-7 exposes no service 'ssh'; exposed services: web"),
        ("web.id-8", "not a target of agent agent-7"),
        ("web", "not a target of agent agent-7"),
        ("_secret.id-7", "exposes no service '_secret'"),
    ],
)
async def test_session_to_anything_else(target: str, why: str) -> None:
    """It is refused with a sentence."""
    with pytest.raises(TunnelError, match=why):
        await services_of(("web", "127.0.0.1:1")).accept_session(Target(target))


async def test_service_that_is_down() -> None:
    """Who asks is told the address and why."""
    with pytest.raises(TunnelError, match=r"cannot connect to 127\.0\.0\.1:\d+"):
        await services_of(("web", f"127.0.0.1:{free_port()}")).accept_session(Target("web.id-7"))


async def test_service_that_is_up() -> None:
    """It is dialled before the session is accepted."""
    came = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        taken = await services_of(("web", f"127.0.0.1:{port}")).accept_session(Target("web.id-7"))
        await asyncio.wait_for(came.wait(), 60)
        taken.discard()
