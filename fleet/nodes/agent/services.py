"""What an agent serves through its tunnels: the services it exposes and its own status, nothing else."""

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
from fleet.protocol.tunnel.agent_services import STATUS_SERVICE, ServiceNameError
from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession, dial
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.stream import TunnelStream

_SESSION_POLICY = SessionPolicy()

#: Placeholder for host:port: the diag port of this process, which is known only once it listens.
DIAG_PLACEHOLDER = "{diag}"
#: Pairs of service name and host:port, where `{n}` stands for the agent's number.
Services = tuple[tuple[str, str], ...]


def parse(text: str) -> tuple[str, str]:
    """Split `name=host:port`. Raises ValueError."""
    name, equals, address = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not name=host:port")
    agent_services.check_name(name)
    if address != DIAG_PLACEHOLDER:
        _parse_address(address, "1")
    return name, address


def check_unique(services: Services) -> Services:
    """Return the services unchanged. Raises ServiceNameError if a name occurs twice."""
    names = [name for name, _ in services]
    for name in names:
        if names.count(name) > 1:
            raise ServiceNameError(f"--service {name} was given twice")
    return services


def with_diag_address(services: Services, diag_address: str) -> Services:
    """Return the services with the placeholder replaced by the diag port. Raises NodeStartError if there is none."""
    if not diag_address and any(address == DIAG_PLACEHOLDER for _, address in services):
        raise NodeStartError(f"a --service at {DIAG_PLACEHOLDER} needs --diag-listen")
    return tuple(
        (name, diag_address if address == DIAG_PLACEHOLDER else address) for name, address in services
    )


def check_unique_flags(services: Services) -> None:
    """Check that service names are unique. Raises UsageError."""
    try:
        check_unique(services)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


service_option = click.option(
    "--service",
    "services",
    type=ParsedOption("name=host:port", parse),
    multiple=True,
    help="Expose a TCP service to users of the proxies. {n} in the address stands for the agent's number. NAME={diag} "
    "exposes the agent's diag port. Repeatable. Default: none.",
)


def _parse_address(text: str, agent_number: str) -> tuple[str, int]:
    return addresses.parse(text.replace("{n}", agent_number))


class AgentServices:
    """Accepts the sessions that proxies open to one agent."""

    def __init__(
        self, identity: Identity, services: Services, read_status: Callable[[], Mapping[str, Any]]
    ) -> None:
        """`read_status` returns the agent's status document. Raises ValueError for an invalid address."""
        self._identity = identity
        agent_number = identity.name.rpartition("-")[2]
        self._addresses = {name: _parse_address(text, agent_number) for name, text in services}
        self._read_status = read_status
        #: Targets to register, the status first.
        self.targets = tuple(
            agent_services.target_of(name, identity.id) for name in (STATUS_SERVICE, *self.names)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the exposed services, without the status."""
        return tuple(sorted(self._addresses))

    async def accept_session(self, target: Target) -> AcceptedSession:
        """Accept a session by connecting to its service. Raises TunnelError with a message for the user."""
        service, agent_id = agent_services.split_target(target)
        if agent_id != self._identity.id or target.type:
            raise TunnelError(f"{target} is not a target of agent {self._identity.name}")
        if service == STATUS_SERVICE:
            return FunctionSession(self._send_status)
        address = self._addresses.get(service)
        if address is None:
            service_names = ", ".join(self.names) or "none"
            raise TunnelError(
                f"agent {self._identity.name} exposes no service {service!r}; exposed services: {service_names}"
            )
        return await dial(*address, _SESSION_POLICY)

    async def _send_status(self, stream: TunnelStream) -> None:
        await stream.write(json.dumps(self._read_status()).encode())
