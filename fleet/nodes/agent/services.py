"""What an agent serves through its tunnels: the services it was told to expose, its own status, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.shared import addresses
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.nodes.shared.options import ParsedOption
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.agent_services import STATUS, ServiceNameError
from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.tunnel.handlers import FunctionSession, AcceptedSession, dial
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.stream import TunnelStream

_POLICY = SessionPolicy()

#: In the place of host:port: the diag port of the agents' own process, which is known only once it listens.
DIAG = "{diag}"
#: name=host:port as given, where `{n}` stands for the agent's number.
Services = tuple[tuple[str, str], ...]


def parse(text: str) -> tuple[str, str]:
    """Split `name=host:port`. Raises ValueError with a sentence."""
    name, equals, address = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not name=host:port")
    agent_services.check_name(name)
    if address != DIAG:
        _address(address, "1")
    return name, address


def check_unique(services: Services) -> Services:
    """Return services as they are. Raises ServiceNameError when a name comes twice."""
    names = [name for name, _ in services]
    for name in names:
        if names.count(name) > 1:
            raise ServiceNameError(f"--service {name} is given twice")
    return services


def with_diag_address(services: Services, diag: str) -> Services:
    """Services with the diag port's host:port where they ask for it. Raises StartError when there is none."""
    if not diag and any(address == DIAG for _, address in services):
        raise NodeStartError(f"a --service at {DIAG} needs --diag-listen")
    return tuple((name, diag if address == DIAG else address) for name, address in services)


def check_unique_flags(services: Services) -> None:
    """Stop a command whose services are not unique. Raises UsageError."""
    try:
        check_unique(services)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


service_option = click.option(
    "--service",
    "services",
    type=ParsedOption("name=host:port", parse),
    multiple=True,
    help="Expose a TCP service of this network to users of the proxies; {n} in it is the agent's number, "
    "{diag} for all of host:port is the diag port of the agents' own process. "
    "Repeatable; without it nothing is exposed.",
)


def _address(text: str, number: str) -> tuple[str, int]:
    return addresses.parse(text.replace("{n}", number))


class AgentServices:
    """Takes the sessions that proxies ask one agent for."""

    def __init__(
        self, identity: Identity, services: Services, status: Callable[[], Mapping[str, Any]]
    ) -> None:
        """`status` is asked for what the agent knows, as JSON has it. Raises ValueError for an address that is none."""
        self._identity = identity
        number = identity.name.rpartition("-")[2]
        self._addresses = {name: _address(text, number) for name, text in services}
        self._status = status
        #: All there is to register, the status first.
        self.targets = tuple(agent_services.target_of(name, identity.id) for name in (STATUS, *self.names))

    @property
    def names(self) -> tuple[str, ...]:
        """The services, without its status."""
        return tuple(sorted(self._addresses))

    async def accept_session(self, target: Target) -> AcceptedSession:
        """Take a session by connecting to its service. Raises TunnelError with a sentence for the user."""
        service, agent_id = agent_services.split(target)
        if agent_id != self._identity.id or target.type:
            raise TunnelError(f"{target} is not of agent {self._identity.name}")
        if service == STATUS:
            return FunctionSession(self._send_status)
        address = self._addresses.get(service)
        if address is None:
            service_names = ", ".join(self.names) or "none"
            raise TunnelError(
                f"agent {self._identity.name} exposes no service {service!r} (it exposes: {service_names})"
            )
        return await dial(*address, _POLICY)

    async def _send_status(self, stream: TunnelStream) -> None:
        await stream.write(json.dumps(self._status()).encode())
