"""The `refloat` command: the console, local test fleets, and a client of the console's HTTP API. No Django."""

from __future__ import annotations

import os
from typing import Any

import click
from typing_extensions import override

from fleet import __version__
from fleet.cli.lazy_group import LazyGroup


class _MainGroup(LazyGroup):
    @override
    def main(self, *args: Any, **options: Any) -> Any:
        # Errors are printed by the commands. Without this variable, which gRPC reads when it is imported, gRPC's core
        # would also write its own lines to stderr.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return super().main(*args, **options)


@click.group(
    cls=_MainGroup,
    lazy_commands={
        "demo": "fleet.cli.program.server:demo",
        "serve": "fleet.cli.program.server:serve",
        "prepare": "fleet.cli.program.server:prepare",
        "doctor": "fleet.cli.program.server:doctor",
        "backup": "fleet.cli.program.server:backup",
        "restore": "fleet.cli.program.server:restore",
        "user": "fleet.cli.program.server:user",
        "token": "fleet.cli.program.server:token",
        "completion": "fleet.cli.program.completion:completion",
        "fleet": "fleet.cli.local.fleet:fleet",
        "summary": "fleet.cli.console:summary",
        "agents": "fleet.cli.console:agents",
        "agent": "fleet.cli.console:agent",
        "agent-set": "fleet.cli.agent_actions:agent_set",
        "retire": "fleet.cli.agent_actions:retire",
        "reinstate": "fleet.cli.agent_actions:reinstate",
        "instances": "fleet.cli.console:instances",
        "cluster": "fleet.cli.cluster:cluster",
        "drain": "fleet.cli.drain:drain",
        "undrain": "fleet.cli.drain:undrain",
        "service": "fleet.cli.service:service",
        "degrade": "fleet.cli.degrade:degrade",
        "undegrade": "fleet.cli.degrade:undegrade",
        "incidents": "fleet.cli.alerts.incidents:incidents",
        "silence": "fleet.cli.alerts.incidents:silence",
        "maintenance": "fleet.cli.alerts.maintenance:maintenance",
        "runbooks": "fleet.cli.alerts.runbooks:runbooks",
        "alerting": "fleet.cli.alerts.alerting:alerting_group",
        "channels": "fleet.cli.alerts.channels:channels",
        "routes": "fleet.cli.alerts.routes:routes",
        "rules": "fleet.cli.alerts.rules:rules",
        "watch": "fleet.cli.watch:watch",
        "audit": "fleet.cli.audit:audit",
        "changes": "fleet.cli.changes:changes",
        "config": "fleet.cli.config:config",
        "policies": "fleet.cli.policies:policies",
        "reconnect": "fleet.cli.campaign:reconnect",
        "tunnel": "fleet.cli.tunnel:tunnel",
        "connect": "fleet.cli.connect:connect",
        "gateway": "fleet.cli.gateway:gateway",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="refloat")
def main() -> None:
    """Run the console, operate a fleet through it, run local test fleets, and carry TCP over gRPC."""


if __name__ == "__main__":
    main(prog_name="refloat")
