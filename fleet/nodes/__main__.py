"""`python -m fleet.nodes NODE`: each node is a program of its own, configured by flags and environment only."""

from __future__ import annotations

import importlib

import click
from typing_extensions import override

#: The module of each node, whose `command` it is; imported when asked for: the forwarder has no use for grpc.
_NODES = {
    "balancer": "fleet.nodes.balancer",
    "forwarder": "fleet.nodes.forwarder",
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


if __name__ == "__main__":
    main(prog_name="python -m fleet.nodes")
