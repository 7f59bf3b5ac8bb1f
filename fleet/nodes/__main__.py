"""`python -m fleet.nodes NODE`: each node is a program of its own, configured by flags and environment only."""

from __future__ import annotations

import importlib
import os
import sys

import click
from typing_extensions import override

#: The module of each node, whose `command` it is; imported when asked for: the forwarder has no use for grpc.
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
    """Run one node of a fleet."""


def run() -> int:
    """Run it and return the exit code; wrong flags are one line on stderr and 2, without click's usage above it."""
    # What fails comes to us as an exception and is told in our words; GRPC_VERBOSITY=ERROR has gRPC's beside them.
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
