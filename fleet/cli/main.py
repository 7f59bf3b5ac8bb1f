"""The `refloat` command: runs local fleets, and asks a console's HTTP API. No Django."""

from __future__ import annotations

import os
from typing import Any

import click
from typing_extensions import override

from fleet import __version__
from fleet.cli.lazy import LazyGroup


class _Program(LazyGroup):
    @override
    def main(self, *args: Any, **options: Any) -> Any:
        # Failures are exceptions here, and their sentences are ours: gRPC's core, which looks at this when it is
        # imported, would write its own lines beside them.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return super().main(*args, **options)


@click.group(
    cls=_Program,
    lazy={
        "fleet": "fleet.cli.local.fleet:fleet",
        "summary": "fleet.cli.console:summary",
        "agents": "fleet.cli.console:agents",
        "agent": "fleet.cli.console:agent",
        "retire": "fleet.cli.retire:retire",
        "unretire": "fleet.cli.retire:unretire",
        "instances": "fleet.cli.console:instances",
        "drain": "fleet.cli.drain:drain",
        "undrain": "fleet.cli.drain:undrain",
        "degrade": "fleet.cli.degrade:degrade",
        "undegrade": "fleet.cli.degrade:undegrade",
        "incidents": "fleet.cli.incidents:incidents",
        "silence": "fleet.cli.incidents:silence",
        "watch": "fleet.cli.watch:watch",
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
    """Run local fleets, inject faults into them, ask a console what it sees, and carry TCP over gRPC."""


if __name__ == "__main__":
    main(prog_name="refloat")
