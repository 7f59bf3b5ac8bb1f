"""The `refloat` command: the console, local test fleets, and a client of the console's HTTP API. No Django."""

from __future__ import annotations

import os
from typing import Any

import click
from typing_extensions import override

from fleet import __version__
from fleet.cli.lazy_group import SectionedGroup

#: What `refloat --help` lists: the command, where it is, and its summary.
_SECTIONS = {
    "Administration": {
        "demo": ("fleet.cli.program.server:demo", "Run the console and a local test fleet."),
        "serve": ("fleet.cli.program.server:serve", "Run the console: web server, workers, alerting."),
        "prepare": ("fleet.cli.program.server:prepare", "Prepare the database for this version."),
        "doctor": ("fleet.cli.program.server:doctor", "Check this installation and say what to do."),
        "backup": ("fleet.cli.program.server:backup", "Write an archive of this installation."),
        "restore": ("fleet.cli.program.server:restore", "Restore an archive of this installation."),
        "user": ("fleet.cli.program.server:user", "Create users and change their roles."),
        "token": ("fleet.cli.program.server:token", "Create, list and revoke API tokens."),
        "completion": ("fleet.cli.program.completion:completion", "Print the completion script for a shell."),
    },
    "Fleet": {
        "summary": (
            "fleet.cli.console:summary",
            "Show what is wrong, what helps, and the number of agents in each state.",
        ),
        "watch": (
            "fleet.cli.watch:watch",
            "Show agent counts by state and all instances, live, until Ctrl-C.",
        ),
        "agents": ("fleet.cli.console:agents", "List agents with their state and the reason for it."),
        "views": ("fleet.cli.inventory.saved_views:views", "Manage saved views of the list of agents."),
        "agent": ("fleet.cli.console:agent", "Show one agent: state, reason, cause, recovery, connections."),
        "data-health": (
            "fleet.cli.program.data_health:data_health",
            "Show whether the data can be trusted, and if not, what to do.",
        ),
        "instances": ("fleet.cli.console:instances", "List auths and proxies with their states."),
        "instance": (
            "fleet.cli.inventory.instance:instance",
            "Show one auth or proxy: state, agents, forecast of a failure, history, incidents.",
        ),
        "edge-instances": (
            "fleet.cli.inventory.edge_instances:edge_instances",
            "List gateways and tunnel servers with their states.",
        ),
        "edge-instance": (
            "fleet.cli.inventory.edge_instances:edge_instance",
            "Show a gateway (routes, retries, destinations) or a tunnel server (targets, sessions).",
        ),
        "cluster": (
            "fleet.cli.clusters.cluster:cluster",
            "Manage clusters, and test the connection to a cluster.",
        ),
        "source": (
            "fleet.cli.clusters.source:source",
            "List and check sources: the products that Refloat monitors.",
        ),
        "agent-set": (
            "fleet.cli.agent_actions:agent_set",
            "Add agents to an agent set, which alert rules, silences and routes can name.",
        ),
        "retire": ("fleet.cli.agent_actions:retire", "Retire agents that no longer exist."),
        "reinstate": (
            "fleet.cli.agent_actions:reinstate",
            "Reinstate retired agents: totals and alerts include them again.",
        ),
        "service": (
            "fleet.cli.service:service",
            "Take auths and proxies out of service, and bring them back.",
        ),
        "drain": ("fleet.cli.drain:drain", "Drain auths and proxies: they accept no new connections."),
        "undrain": (
            "fleet.cli.drain:undrain",
            "Undrain auths and proxies: they accept new connections again.",
        ),
        "degrade": ("fleet.cli.degrade:degrade", "Mark auths and proxies as degraded."),
        "undegrade": ("fleet.cli.degrade:undegrade", "Clear the degraded mark of auths and proxies."),
    },
    "Alerts": {
        "incidents": ("fleet.cli.alerts.incidents:incidents", "List incidents, or acknowledge one."),
        "silence": (
            "fleet.cli.alerts.incidents:silence",
            "Silence incidents for a period of time; list and end silences.",
        ),
        "maintenance": (
            "fleet.cli.alerts.maintenance:maintenance",
            "Manage recurring maintenance windows, in which incidents or agents are silenced.",
        ),
        "runbooks": (
            "fleet.cli.alerts.runbooks:runbooks",
            "Show runbooks, one per cause of incidents, and set their custom texts.",
        ),
        "channels": (
            "fleet.cli.alerts.channels:channels",
            "Manage notification channels, to which routes send incidents.",
        ),
        "routes": (
            "fleet.cli.alerts.routes:routes",
            "Manage notification routes, which select the channels of an incident.",
        ),
        "rules": ("fleet.cli.alerts.rules:rules", "Manage alert rules, which decide when an incident fires."),
        "alerting": (
            "fleet.cli.alerts.alerting:alerting_group",
            "Export and import channels, routes, rules and maintenance windows as one YAML file.",
        ),
    },
    "Changes": {
        "reconnect": (
            "fleet.cli.campaign:reconnect",
            "Reconnect agents to other proxies or auths, with a campaign.",
        ),
        "config": ("fleet.cli.config:config", "Read and change the networking config of a cluster."),
        "policies": (
            "fleet.cli.policies:policies",
            "List the policies of auths and proxies; roll out new values.",
        ),
        "changes": ("fleet.cli.changes:changes", "List, confirm, approve, cancel and watch changes."),
        "audit": ("fleet.cli.audit:audit", "Read the audit log: who did what, refused attempts included."),
    },
    "Tunnels and gateway": {
        "connect": (
            "fleet.cli.connect:connect",
            "Connect standard input and output to a service of an agent.",
        ),
        "tunnel": ("fleet.cli.tunnel:tunnel", "Carry TCP over gRPC: serve, register and dial targets."),
        "gateway": ("fleet.cli.gateway:gateway", "Route gRPC calls to backends by GRPCRoute rules."),
    },
    "Local and simulated fleets": {
        "fleet": ("fleet.cli.local.fleet:fleet", "Run a local test fleet, and inject faults into it."),
    },
}


class _MainGroup(SectionedGroup):
    @override
    def main(self, *args: Any, **options: Any) -> Any:
        # Errors are printed by the commands. Without this variable, which gRPC reads when it is imported, gRPC's core
        # would also write its own lines to stderr.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return super().main(*args, **options)


@click.group(
    cls=_MainGroup,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="refloat")
def main() -> None:
    """Run the console, operate a fleet through it, run local test fleets, and carry TCP over gRPC."""


if __name__ == "__main__":
    main(prog_name="refloat")
