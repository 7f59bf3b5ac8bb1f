"""`python -m fleet.nodes COMMAND`: run one program of a fleet, configured by flags and environment variables only."""

from __future__ import annotations

import importlib
import os
import sys

import click
from typing_extensions import override

#: The module whose `command` runs each program. Imported on demand, so that the forwarder does not load grpc.
_NODES = {
    "agent": "fleet.nodes.agent.program",
    "auth": "fleet.nodes.auth.server",
    "balancer": "fleet.nodes.balancer.server",
    "forwarder": "fleet.nodes.local.forwarder",
    "gateway": "fleet.nodes.gateway.server",
    "proxy": "fleet.nodes.proxy.server",
}


class _Nodes(click.Group):
    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_NODES)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NODES:
            return None
        command: click.Command = importlib.import_module(_NODES[cmd_name]).command
        return command


@click.group(cls=_Nodes, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run one program of a fleet: an auth, a proxy, agents, a gateway, a balancer or a forwarder."""


def run() -> int:
    """Run the command and return its exit code. A usage error is one line on stderr and exit code 2."""
    # gRPC errors reach us as exceptions, and we log them in our own words. GRPC_VERBOSITY=ERROR adds gRPC's own log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        code = main.main(prog_name="python -m fleet.nodes", standalone_mode=False)
    except click.ClickException as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return error.exit_code if isinstance(error, click.UsageError) else 2
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(run())
